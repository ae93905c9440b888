"""What the author of a store gives to have it judged."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from durio.ports.clock import Clock
from durio.ports.store import Store


class Opener(Protocol):
    """Opens a store, and closes it afterwards."""

    def __call__(self, clock: Clock) -> AbstractAsyncContextManager[Store]:
        """Open one that takes its time from this clock."""
        ...


class StatementFault(Protocol):
    """Makes one chosen statement fail, as a full disk or a lost connection would."""

    def arm(self, nth: int) -> None:
        """The nth statement (from 1) of the next write fails, its commit included."""
        ...

    def disarm(self) -> bool:
        """Let everything work again; whether the fault was met."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A store to be judged: how to open it, and what else its author can offer.

    A promise that needs what is not offered cannot be judged: say so in the report of
    the tests, by name, and never count it as kept.
    """

    open_store: Opener  # empty at the first call
    # A second object on the same data, as another process would have it. Without one,
    # promises about two processes are told with one object where that has a meaning.
    open_second: Opener | None = None
    fault: Callable[[Store], StatementFault] | None = None
    # Makes a worker's row vanish while its jobs are running: how orphans are made.
    forget_worker: Callable[[Store, int], Awaitable[None]] | None = None
    # A worker whose store is closed without a leave is seen to be dead on this host.
    sees_deaths_here: bool = False
    # Leases count on one machine's monotonic clock, and end with its boot.
    leases_end_with_boot: bool = False
    # A second connection sees the same data: tasks may have transactions of their own.
    has_transactions: bool = False
