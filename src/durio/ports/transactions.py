"""Transactions for tasks: a task's writes and its end are stored together or not at all."""

from typing import Any, Protocol

from durio.model.outcome import Outcome


class OwnTransaction(Protocol):
    """A transaction for one task, on a connection of its own."""

    @property
    def connection(self) -> Any:
        """The driver's connection, on which the task writes its rows."""
        ...

    async def commit(self, outcome: Outcome) -> None:
        """Record how the attempt ended, commit everything, and release the connection.

        The last progress of the attempt is written too. Nothing that the task left behind
        on the connection is executed in between.

        Raises LeaseLost if the fence refuses, and StoreError. Then nothing is stored,
        unless the error is `unknown`.
        """
        ...

    async def roll_back(self) -> None:
        """Undo everything and release the connection. Never raises."""
        ...


class Transactions(Protocol):
    """Creates transactions for tasks."""

    async def transaction(
        self, worker: int, *, is_sync: bool = False
    ) -> OwnTransaction:
        """Return a transaction for a task of this worker, on a connection of its own.

        `is_sync`: its connection is used in a thread without an event loop.
        """
        ...
