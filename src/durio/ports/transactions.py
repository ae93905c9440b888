"""Transactions for tasks: what a task wrote and its end are stored together, or neither is."""

from typing import Any, Protocol

from durio.model.outcome import Outcome


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
    """Transactions for tasks."""

    async def transaction(
        self, worker: int, *, is_sync: bool = False
    ) -> OwnTransaction:
        """A transaction for a task of this worker, on a connection of its own.

        `is_sync`: its connection is used in a thread without an event loop.
        """
        ...
