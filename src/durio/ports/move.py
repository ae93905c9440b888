"""What a move asks of the store that jobs leave, and of the store where they arrive.

Every step can be done again, after a crash at any point: the store that is left has a mark
that says where its jobs go and how far that is, and the other one a mark with the same
name that says what has arrived, written in the transaction that brought it.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

# draining: takes no new workers; frozen: nothing in it can change; moved: for good.
ExportStage = Literal["draining", "frozen", "moved"]
# arriving: its queues are shut; open: its jobs run; leaving: the move is being taken back.
# shut: found only where an earlier version took back an open move and was interrupted.
ImportStage = Literal["arriving", "open", "shut", "leaving"]

Counts = Mapping[str, Mapping[int, int]]  # namespace -> state -> jobs
KeyRow = tuple[bytes, bytes, int, bytes, float | None]  # key, id, mode, digest, until


class MoveMark(NamedTuple):
    """What a store says of the move that its jobs are on."""

    id: str
    to: str  # the other store's URL, without its password
    stage: ExportStage


class ImportProgress(NamedTuple):
    """How far a move is, in the store where its jobs arrive."""

    stage: ImportStage
    seq: int  # jobs up to here have arrived
    key: bytes  # and keys up to here
    deaths: int  # added to the number of every death


class ActiveWorkers(NamedTuple):
    """Who keeps a store from being frozen."""

    workers: int
    running: int


class JobRow(NamedTuple):
    """A job that does not run, whole, as a store keeps it."""

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


class JobDigest(NamedTuple):
    """What must be the same of a job on both sides."""

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


class QueueSettingsRow(NamedTuple):
    """A queue as it was left."""

    lane: str
    paused: bool
    closed: bool
    maxsize: int | None
    is_default: bool
    manual_maxsize: int | None


class StoreMetadata(NamedTuple):
    """Everything beside jobs and keys, of which there is little."""

    queues: Sequence[QueueSettingsRow]
    docs: Sequence[tuple[str, str, str]]  # kind, name, body
    tallies: Sequence[tuple[str, str, str, int]]  # lane, task, type of error, dead
    deaths: int  # the number of the last one
    # at, namespace, who, verb, target, jobs; the oldest first
    audit: Sequence[tuple[float, str, str, str, str, int]]


class ExportJobs(Protocol):
    """The store that jobs leave."""

    @property
    def name(self) -> str:
        """Where it is, for people."""
        ...

    async def mark(self) -> MoveMark | None:
        """The move that its jobs are on, if there is one."""
        ...

    async def counts(self) -> Counts:
        """All jobs, by namespace and state."""
        ...

    async def active_workers(self) -> ActiveWorkers:
        """Workers, and jobs that run."""
        ...

    async def drain(self, mark: MoveMark, *, by: str) -> MoveMark:
        """Take no new workers, and ask those that there are to end; jobs still come in.

        Answers the mark that holds: that of an older move stays.
        """
        ...

    async def freeze(self, move: str) -> ActiveWorkers | None:
        """Let nothing change any more, unless a worker or a running job is left.

        None: it is frozen. Whoever writes from here on gets StoreMoved, and has written
        nothing.
        """
        ...

    async def jobs(self, move: str, after: int, limit: int) -> list[JobRow]:
        """The next jobs by arrival, as long as this move goes on."""
        ...

    async def keys(self, move: str, after: bytes, limit: int) -> list[KeyRow]:
        """The next keys, in their order."""
        ...

    async def metadata(self) -> StoreMetadata:
        """Queues, documents, tallies and the audit."""
        ...

    async def set_stage(self, move: str, stage: ExportStage) -> None:
        """Note how far the move is."""
        ...

    async def unfreeze(self, move: str, *, by: str) -> None:
        """The move is off: everything goes on as before."""
        ...


class ImportJobs(Protocol):
    """The store where they arrive."""

    async def progress(self, move: str) -> ImportProgress | None:
        """How far this move is; None: nothing of it is here."""
        ...

    async def counts(self, namespaces: Sequence[str]) -> Counts:
        """The jobs of these namespaces, by state."""
        ...

    async def begin(self, move: str, origin: str, metadata: StoreMetadata) -> None:
        """Make the queues, shut, so that nothing runs or comes in until all is here.

        Again, when more is known: queues that came meanwhile are shut as well.
        """
        ...

    async def take_jobs(
        self, move: str, after: int, job_rows: Sequence[JobRow]
    ) -> None:
        """Store these, and that they came, together; again changes nothing."""
        ...

    async def take_keys(self, move: str, after: bytes, keys: Sequence[KeyRow]) -> None:
        """The same for keys."""
        ...

    async def digests(self, ids: Sequence[bytes]) -> list[JobDigest]:
        """What is here of these jobs: one for each place that holds one."""
        ...

    async def held_keys(self, keys: Sequence[bytes]) -> list[KeyRow]:
        """Who holds these keys here."""
        ...

    async def now(self) -> float:
        """The time that ends retention here."""
        ...

    async def open(self, move: str, metadata: StoreMetadata) -> None:
        """All is here: the queues as they were, and tallies and audit with them."""
        ...

    async def abort(self, move: str, origin: str) -> bool:
        """Take nothing of this move from here on; refused once it is open.

        False: nothing of it has ever come. That it was taken back stays on record.
        """
        ...

    async def remove(self, move: str, ids: Sequence[bytes]) -> None:
        """Take these jobs away again."""
        ...

    async def release(self, move: str, keys: Sequence[KeyRow]) -> None:
        """Take these keys away, where the same jobs hold them."""
        ...

    async def remove_metadata(self, move: str, metadata: StoreMetadata) -> None:
        """Open the queues as they were."""
        ...
