"""What a store promises about transactions that are not its own.

A caller has one open and wants a job in it: the job exists if and only if that commits.
A task wants one whose commit also records its end: what it wrote and its end are there
together, or neither is.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from durio.model.job import NewJob
from durio.model.outcome import Outcome
from durio.model.tx import Joinable
from durio.ports.enqueue import Enqueued


class OwnTransaction(Protocol):
    """A transaction for one task, on a connection of its own."""

    @property
    def connection(self) -> Any:
        """The driver's connection, on which the task writes its rows."""
        ...

    async def commit(self, outcome: Outcome) -> None:
        """Record how the attempt ended and commit it all; then let go of the connection.

        Its last progress comes along. Nothing that the task left behind on the connection
        comes in between.

        Raises LeaseLost when the fence refuses, and StoreError: nothing of it happened,
        unless that says `unknown`.
        """
        ...

    async def roll_back(self) -> None:
        """Leave nothing of it; let go of the connection. Never raises."""
        ...


class Transactions(Protocol):
    """Writing in transactions of others."""

    async def enqueue_in(self, tx: Joinable, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write these jobs in a transaction that the caller has open.

        Nothing is committed and nobody is waited for: in one that belongs to no event
        loop this never gives up the loop. Keys are judged as in `enqueue`. A full queue
        refuses nothing here: the answers say `full` of jobs that were `created`. A queue
        that was closed by hand takes none.

        Whoever serves the lanes is woken after the commit, as far as it can be seen;
        else they look by themselves before long. Raises WrongTransaction for one that
        is over, or of another database, and StoreError: the caller rolls back.
        """
        ...

    async def begin(self, worker: int, *, is_sync: bool = False) -> OwnTransaction:
        """A transaction for a task of this worker, on a connection of its own.

        `is_sync`: its connection is used in a thread without an event loop.
        """
        ...
