"""The interfaces of the two stores of a move: the one that jobs leave, and their target.

Every step can be repeated after a crash at any point. The source has a mark that says where
its jobs go and how far the move is. The target has a mark with the same id that says what
has arrived, written in the same transaction as the jobs.

Records, logs and entries arrive under names of the move, where nothing reads them: a leader
of the target would handle failures, or delete plans, before their jobs are there. They get
their own names when all has arrived and was compared.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from durio.model.errors import OperatingError

# draining: accepts no new workers; frozen: nothing can change; moved: final.
ExportStage = Literal["draining", "frozen", "moved"]
# arriving: its queues are closed; opening: all is there, and rows get their own names;
# open: its jobs run; leaving: the move is undone. shut: only if an earlier version undid an
# open move and was interrupted.
ImportStage = Literal["arriving", "opening", "open", "shut", "leaving"]
# What is copied row by row, beside jobs and keys, in this order.
MovedTable = Literal["record", "log", "entry"]
MOVED_TABLES: tuple[MovedTable, ...] = ("record", "log", "entry")

Counts = Mapping[str, Mapping[int, int]]  # by namespace, then by state
KeyRow = tuple[bytes, bytes, int, bytes, float | None]  # key, id, mode, digest, until
RowKey = tuple[Any, ...]  # the first columns of a row, by which its table is ordered
FIRST_KEYS: Mapping[MovedTable, RowKey] = {  # before the first row
    "record": ("", ""),
    "log": ("",),
    "entry": ("", -1),
}


class MoveMark(NamedTuple):
    """The mark of a move in the store that its jobs leave."""

    id: str
    to: str  # the target's URL, without its password
    stage: ExportStage


class ImportProgress(NamedTuple):
    """How far a move is, in the store where its jobs arrive."""

    stage: ImportStage
    seq: int  # jobs up to here have arrived
    key: bytes  # keys up to here have arrived
    deaths: int  # added to the sequence number of every death
    tables: Mapping[MovedTable, RowKey] = FIRST_KEYS  # rows up to here have arrived


class ActiveWorkers(NamedTuple):
    """Workers and running jobs that keep a store from being frozen."""

    workers: int
    running: int


class JobRow(NamedTuple):
    """A job that is not running, with all its columns."""

    seq: int
    id: bytes
    lane: str
    rank: int
    state: int
    task: str
    payload: bytes
    retried: int
    losses: int
    lost: int
    snoozed: int
    claim_no: int
    run_at: float | None
    parked_at: float | None
    started_at: float | None
    ukey: bytes | None
    umode: int | None
    opts: bytes | None
    errors: bytes | None  # a JSON list
    progress: bytes | None
    created_at: float
    finished_at: float | None
    gone_at: float | None
    result: bytes | None
    result_until: float | None
    reason: str | None
    bucket: str | None
    keep_count: int | None
    died_no: int | None
    ties: str | None  # see model/ties.py
    wait_delay: float | None  # of a blocked job: seconds to wait after its wait


class JobDigest(NamedTuple):
    """The fields of a job that must be equal in both stores."""

    id: bytes
    state: int
    claim_no: int
    payload: bytes
    lane: str
    rank: int
    task: str
    run_at: float | None
    created_at: float
    result: bytes | None
    ties: str | None
    wait_delay: float | None


class QueueSettingsRow(NamedTuple):
    """The state of a queue when its store was frozen."""

    lane: str
    paused: bool
    closed: bool
    maxsize: int | None
    is_default: bool
    manual_maxsize: int | None


class RecordRow(NamedTuple):
    """A record as it was in the source; the target gives it a version of its own."""

    kind: str
    name: str
    body: bytes
    due_at: float | None
    expires_at: float | None


class LogHeadRow(NamedTuple):
    """A log without its entries, of which the first ones may be trimmed."""

    name: str
    length: int
    expires_at: float | None


class LogEntryRow(NamedTuple):
    """An entry of a log."""

    log: str
    offset: int
    at: float
    tag: int
    state: int | None
    job: bytes | None
    uid: str | None
    body: bytes | None
    expires_at: float | None  # of its log


MovedRow = RecordRow | LogHeadRow | LogEntryRow


def row_key(table: MovedTable, row: MovedRow) -> RowKey:
    return row[: len(FIRST_KEYS[table])]


class StoreMetadata(NamedTuple):
    """The small tables."""

    queues: Sequence[QueueSettingsRow]
    tallies: Sequence[tuple[str, str, str, int]]  # lane, task, type of error, dead
    deaths: int  # sequence number of the last death
    # at, namespace, who, verb, target, jobs, details; oldest first
    audit: Sequence[tuple[float, str, str, str, str, int, str]]
    protocols: Sequence[tuple[str, int]]  # namespace, what its workers must know


def move_ended() -> OperatingError:
    """Return the error for two operators who run conflicting steps of one move."""
    return OperatingError(
        "another process has ended this move",
        cure="See `durio audit ls`, then start the move again.",
    )


class ExportJobs(Protocol):
    """The store that jobs leave."""

    @property
    def name(self) -> str:
        """The location, for people."""
        ...

    async def mark(self) -> MoveMark | None:
        """Return the mark of the current move; None if there is none."""
        ...

    async def counts(self) -> Counts:
        """Return all jobs, by namespace and state."""
        ...

    async def active_workers(self) -> ActiveWorkers:
        """Return the numbers of workers and running jobs."""
        ...

    async def drain(self, mark: MoveMark, *, by: str) -> MoveMark:
        """Accept no new workers and make the present ones end; jobs are still accepted.

        Returns the mark in force, which may be that of an older move.
        """
        ...

    async def freeze(self, move: str) -> ActiveWorkers | None:
        """Make the store read-only, unless a worker or a running job is left.

        Returns None if it is frozen. Later writes fail with StoreMoved and write nothing.
        """
        ...

    async def jobs(self, move: str, after: int, limit: int) -> list[JobRow]:
        """Return the next jobs by arrival, while this move is in force."""
        ...

    async def keys(self, move: str, after: bytes, limit: int) -> list[KeyRow]:
        """Return the next keys, in order."""
        ...

    async def rows(
        self, move: str, table: MovedTable, after: RowKey, limit: int
    ) -> list[MovedRow]:
        """Return the next rows of a table, in order."""
        ...

    async def metadata(self) -> StoreMetadata:
        """Return queues, death counts, the audit log and what workers must know."""
        ...

    async def set_stage(self, move: str, stage: ExportStage) -> None:
        """Record how far the move is."""
        ...

    async def unfreeze(self, move: str, *, by: str) -> None:
        """End the move: the store works as before."""
        ...


class ImportJobs(Protocol):
    """The store that jobs move to."""

    async def progress(self, move: str) -> ImportProgress | None:
        """Return how far this move is; None if nothing of it has arrived."""
        ...

    async def counts(self, namespaces: Sequence[str]) -> Counts:
        """Return the jobs of these namespaces, by state."""
        ...

    async def begin(self, move: str, origin: str, metadata: StoreMetadata) -> None:
        """Create the queues, closed: no job runs or is enqueued until all have arrived.

        May be called again when more is known: queues that were added meanwhile are closed
        too. Raises WorkersTooOld if there are workers here that do not know enough.
        """
        ...

    async def take_rows(
        self, move: str, table: MovedTable, after: RowKey, rows: Sequence[MovedRow]
    ) -> None:
        """Store rows under names of the move, and progress, in one transaction.

        A repeat changes nothing.
        """
        ...

    async def take_jobs(
        self, move: str, after: int, job_rows: Sequence[JobRow]
    ) -> None:
        """Store jobs and progress in one transaction; a repeat changes nothing."""
        ...

    async def take_keys(self, move: str, after: bytes, keys: Sequence[KeyRow]) -> None:
        """Store keys and progress in one transaction; a repeat changes nothing."""
        ...

    async def digests(self, ids: Sequence[bytes]) -> list[JobDigest]:
        """Return the digests of these jobs; one for each table that holds the job."""
        ...

    async def held_keys(self, keys: Sequence[bytes]) -> list[KeyRow]:
        """Return the holders of these keys here."""
        ...

    async def taken_rows(
        self, move: str, table: MovedTable, first: RowKey, last: RowKey
    ) -> list[MovedRow]:
        """Return the rows that have arrived, from one to another."""
        ...

    async def now(self) -> float:
        """Return the target's time, by which retention ends."""
        ...

    async def place_rows(self, move: str, last_logs: Sequence[str]) -> int:
        """Give some rows their own names, but none of the last logs; return how many.

        Called until none are left, when all has arrived. From the first call on, the move
        cannot be undone.
        """
        ...

    async def open(self, move: str, metadata: StoreMetadata) -> None:
        """Place the last logs; restore queue settings, death counts and the audit log."""
        ...

    async def abort(self, move: str, origin: str) -> bool:
        """Accept nothing more of this move; refused once it is open.

        Returns False if nothing of it has ever arrived. The abort itself stays recorded.
        """
        ...

    async def remove(self, move: str, ids: Sequence[bytes]) -> None:
        """Delete these jobs."""
        ...

    async def release(self, move: str, keys: Sequence[KeyRow]) -> None:
        """Delete these keys if the same jobs hold them."""
        ...

    async def remove_rows(self, move: str) -> None:
        """Delete all rows that have arrived under names of the move."""
        ...

    async def remove_metadata(self, move: str, metadata: StoreMetadata) -> None:
        """Restore the queues' settings."""
        ...
