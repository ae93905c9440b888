"""What the author of a store provides to have it tested."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from durio.ports.clock import Clock
from durio.ports.store import Store


class Opener(Protocol):
    """Opens a store, and closes it afterwards."""

    def __call__(self, clock: Clock) -> AbstractAsyncContextManager[Store]:
        """Open a store that uses this clock."""
        ...


class StatementFault(Protocol):
    """Makes one chosen statement fail, as a full disk or a lost connection would."""

    def arm(self, nth: int) -> None:
        """Make the nth statement (from 1) of the next write fail, its commit included."""
        ...

    def disarm(self) -> bool:
        """Let everything work again; return whether the fault occurred."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A store to be tested: how to open it, and which features it has.

    A promise that needs a missing feature cannot be tested: report it by name, and never
    count it as kept.
    """

    open_store: Opener  # empty at the first call
    # A second object on the same data, as another process would have it. Without one,
    # promises about two processes use one object if that makes sense.
    open_second: Opener | None = None
    fault: Callable[[Store], StatementFault] | None = None
    # Deletes a worker's row while its jobs are running, to make orphans.
    forget_worker: Callable[[Store, int], Awaitable[None]] | None = None
    # A worker whose store is closed without a leave is seen as dead on this host.
    sees_deaths_here: bool = False
    # Leases use one machine's monotonic clock, and end with its boot.
    leases_end_with_boot: bool = False
    # Places that jobs hold, by gate, as the store keeps them beside `used`.
    count_places: Callable[[Store], Awaitable[dict[str, int]]] | None = None
    # A second connection sees the same data, so tasks may have transactions of their own.
    has_transactions: bool = False
