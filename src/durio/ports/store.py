"""A store: the durable truth, as the sum of its capabilities."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from durio.ports.browse import Browse
from durio.ports.commit import Commit
from durio.ports.control import OperatorControl
from durio.ports.enqueue import Enqueue
from durio.ports.exchange import Exchange
from durio.ports.lease import Lease
from durio.ports.live import Live
from durio.ports.records import Records
from durio.ports.transactions import Transactions
from durio.ports.upkeep import Upkeep


class Wake(NamedTuple):
    """Why a wait ended."""

    woken: bool  # False: the time was over
    lanes: frozenset[str]  # lanes with new work, as far as the ring said
    control: bool  # somebody acted on our jobs: renew now


class Stall(NamedTuple):
    """A process holds the lock that our writes wait for."""

    pid: int
    seconds: float


class Health(NamedTuple):
    """How a store is for this process."""

    stalled_by: Stall | None  # what keeps our writes waiting
    is_contested: bool  # whether another process may have written meanwhile


class Store(
    Enqueue,
    Exchange,
    Lease,
    Upkeep,
    OperatorControl,
    Browse,
    Records,
    Commit,
    Live,
    Transactions,
    Protocol,
):
    """Every method may be awaited from any event loop of the process."""

    # Told of what works, but not as well as it could; set before the first open.
    warn: Callable[[str], None]

    async def open(self) -> None:
        """Open, check and, where the store does that by itself, upgrade the schema."""
        ...

    async def close(self) -> None:
        """Answer what waits, then close."""
        ...

    async def wait(self, worker: int, timeout_seconds: float) -> Wake:
        """Until somebody rings this worker, or the time is over. A hint, no more."""
        ...

    async def health(self, worker: int | None = None) -> Health:
        """How the store is, without waiting for the writer; also while it opens.

        Without a worker this never suspends: `stalled_by` is known in this process.

        `is_contested`: whether another process may have written since this worker last
        renewed its lease, or asked. A worker that cannot renew because nothing can write
        (a full disk, a stopped writer) need not give up its jobs. True where the store
        cannot tell, or no worker is named.
        """
        ...
