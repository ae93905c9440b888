"""A store: the durable source of truth, with all its capabilities."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from durio.ports.browse import Browse
from durio.ports.commit import Commit
from durio.ports.control import OperatorControl
from durio.ports.enqueue import Enqueue
from durio.ports.exchange import Exchange
from durio.ports.lease import Lease
from durio.ports.live import Live
from durio.ports.logs import Logs
from durio.ports.records import Records
from durio.ports.transactions import Transactions
from durio.ports.upkeep import Upkeep


class Wake(NamedTuple):
    """Why a wait ended."""

    woken: bool  # False: timeout
    lanes: frozenset[str]  # lanes with new work, if the wakeup named them
    control: bool  # an operator acted on our jobs: renew now


class Stall(NamedTuple):
    """A process holds the lock that our writes wait for."""

    pid: int
    seconds: float


class Health(NamedTuple):
    """The state of a store as this process sees it."""

    stalled_by: Stall | None  # the process that keeps our writes waiting
    # By how much the newest renewal of another worker is later than that of this worker.
    behind_seconds: float


class Store(
    Enqueue,
    Exchange,
    Lease,
    Upkeep,
    OperatorControl,
    Browse,
    Records,
    Commit,
    Logs,
    Live,
    Transactions,
    Protocol,
):
    """A store; every method may be awaited from any event loop of the process."""

    # Called with messages about limitations that do no harm; set before the first open.
    warn: Callable[[str], None]

    async def open(self) -> None:
        """Open the store and check its schema; some stores also upgrade it."""
        ...

    async def close(self) -> None:
        """Complete the calls that wait, then close."""
        ...

    async def wait(self, worker: int, timeout_seconds: float) -> Wake:
        """Wait until this worker is woken, or until the timeout; a wakeup is only a hint."""
        ...

    async def health(self, worker: int | None = None) -> Health:
        """Report the health without waiting for the writer; works while the store opens.

        Without a worker this never suspends, because `stalled_by` is known in this process.

        `behind_seconds` compares the leases of the workers of one namespace, as if all had
        the same length; it is negative if this worker renewed last. A worker that cannot
        renew because no worker can (a full disk, a stopped writer) need not give up its
        jobs. It is infinite if the store cannot tell, if the worker's lease was taken, or
        if no worker is named.
        """
        ...
