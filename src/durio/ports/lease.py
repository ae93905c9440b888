"""Leases: a worker's time-limited right to its jobs, and the election of a leader."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from durio.model.effects import Put
from durio.model.worker_commands import COMMAND_TTL_SECONDS, commands_kind
from durio.ports.records import Record

TASKS_MAX = 1000  # of a worker, as others can read them


class WorkerInfo(NamedTuple):
    """The identity of a worker, for people and for wakeups."""

    namespace: str
    name: str  # host/pid
    host: str
    pid: int
    queues: tuple[str, ...] | None  # names and globs; None: every queue
    concurrency: int
    version: str
    # By queue, as given on the command line or declared, for people.
    slots: Mapping[str, int] = {}
    weights: Mapping[str, int] = {}
    prefetch: Mapping[str, int] = {}
    strict: bool = False
    schedules: tuple[str, ...] = ()  # names of schedules that its code declares
    # Names of its tasks, also former ones. None: more than TASKS_MAX, or not known.
    tasks: tuple[str, ...] | None = None
    code_version: str | None = None  # of the user's code: App(version=)
    python: str | None = None  # its version


class Vitals(NamedTuple):
    """The condition of a worker process and its children, sent with each heartbeat."""

    cpu_seconds: float
    rss_bytes: int
    ended: int  # attempts since the process started
    children: int
    draining: bool = False  # it ends its jobs and claims no more
    loop_lag_seconds: float | None = None  # None: not measured yet


class Command(NamedTuple):
    """A request to a worker, sent through the store."""

    id: str
    verb: str  # stack, report, drain
    version: int  # version of its record: the answer deletes exactly this one


class Renewed(NamedTuple):
    """The result of a heartbeat."""

    alive: bool  # False: rescued; drop everything and register again
    cancels: list[tuple[bytes, int]]  # running jobs (id, claim_no) to cancel
    commands: Sequence[Command] = ()  # not answered yet
    paused: frozenset[str] = frozenset()  # lanes of its namespace that are paused


class Lease(Protocol):
    """Registers workers, renews and ends leases, elects leaders."""

    async def register(
        self, info: WorkerInfo, lease_seconds: float, puts: Sequence[Put] = ()
    ) -> int:
        """Register a worker under a new id, never used before; its lease starts now.

        `puts` are written in the same transaction, whatever their `if_version` says: the
        records that the worker publishes about its tasks.
        """
        ...

    async def renew(
        self, worker: int, lease_seconds: float, vitals: Vitals | None = None
    ) -> Renewed:
        """Extend the lease; a rescued worker is not registered again.

        The result contains the worker's open commands, the oldest first.
        """
        ...

    async def require_protocol(
        self, namespace: str, protocol: int, *, only_look: bool = False
    ) -> list[str]:
        """Let only workers with at least this protocol run the jobs of a namespace.

        From then on no other worker can register or renew. If such workers are alive,
        nothing is changed, and their names are returned. Workers of this code have
        protocol 2: 1 is the ties of jobs to logs, 2 is gates. With `only_look` nothing is written.
        """
        ...

    async def leave(self, worker: int) -> None:
        """End the lease; the worker's jobs go back to their queues without counting a loss."""
        ...

    async def lead(self, name: str, worker: int, seconds: float) -> int | None:
        """Become or stay leader of `name`; return an increasing token, or None."""
        ...


def command_put(worker: int, command: str, verb: str) -> Put:
    """Return a command to a worker as a record."""
    return Put(
        commands_kind(worker), command, verb.encode(), ttl_seconds=COMMAND_TTL_SECONDS
    )


def command_of(record: Record) -> Command:
    return Command(record.name, record.body.decode("utf-8", "replace"), record.version)
