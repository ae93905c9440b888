"""A store in three hundred lines: the specification that real stores are compared with.

Plain dicts, no batching, no concurrency. The pure rules alone decide what may happen:
`model.transitions.way_out` for every end and `model.keys.key_answer` for every key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from durio.model.effects import Effects, Put
from durio.model.job import (
    BLOCKED,
    CANCELLED,
    CODE_BY_STATE,
    DEAD,
    DONE,
    READY,
    RUNNING,
    SCHEDULED,
    STATE_BY_CODE,
    KeyClaim,
    NewJob,
)
from durio.model.keys import WAITING, WINDOW, KeyAnswer, KeyHolder, key_answer
from durio.model.logs import OnEnd, Wait
from durio.model.outcome import OutcomeKind
from durio.model.ties import entry_body
from durio.model.transitions import way_out
from durio.stores.job_rules import lost_outcome
from tests.conformance.model_logs import ModelEntry, ModelLogs, new_entries

DAY = 86400.0
DONE_SECONDS = 7 * DAY
DEAD_SECONDS = 30 * DAY
RESULT = b"7"  # of every job that is done


@dataclass
class Row:
    """A job."""

    id: bytes
    place: int  # position in the queue
    rank: int
    state: int
    payload: bytes
    run_at: float | None
    created_at: float
    key: KeyClaim | None
    retried: int = 0
    losses: int = 0
    lost: int = 0
    snoozed: int = 0
    claim_no: int = 0
    worker: int | None = None
    cancel: bool = False
    is_quiet: bool = False  # the cancel
    alone: bool = False
    finished_at: float = 0.0
    gone_at: float = 0.0
    wait: Wait | None = None
    wait_delay: float = 0.0  # from the end of the wait
    is_unseen: bool = False  # the store has not compared its wait with the log yet
    ends: tuple[OnEnd, ...] = ()

    def shown(self) -> tuple[object, ...]:
        """Return the fields that both stores must agree on."""
        due = self.run_at if self.state == SCHEDULED else None
        counters = (self.retried, self.losses, self.lost, self.snoozed)
        return (self.state, self.claim_no, self.worker, self.payload, due, *counters)


@dataclass
class HeldKey:
    """The holder of a key."""

    id: bytes
    mode: int
    digest: bytes
    until: float | None


@dataclass
class ModelRecord:
    """A record; the store gives the version."""

    version: int
    body: bytes
    expires_at: float | None


@dataclass
class ModelStore:
    """Jobs, keys, logs and workers; `now` is set from outside."""

    now: float
    rows: dict[bytes, Row] = field(default_factory=dict)
    keys: dict[bytes, HeldKey] = field(default_factory=dict)
    places: int = 0
    records: dict[str, ModelRecord] = field(default_factory=dict)
    logs: ModelLogs = field(default_factory=ModelLogs)
    bound: int | None = None
    claims_by_id: bool = False  # jobs of one rank, else in the order of arrival

    # --- enqueue

    def enqueue(self, job: NewJob) -> tuple[bytes, str, int]:
        """Return the id of the stored job, the kind of result, and its state."""
        if job.id in self.rows:
            return job.id, "existing", self.rows[job.id].state
        held = None if job.key is None else self.keys.get(job.key.key)
        if job.key is None or held is None:
            return self.enter(job)
        row = self.rows.get(held.id)
        holder = KeyHolder(
            state=None if row is None else STATE_BY_CODE[row.state],
            in_window=held.until is not None and held.until > self.now,
            same_args=held.digest == job.key.digest,
        )
        word = key_answer(job.key.mode, holder)
        if row is None or word is KeyAnswer.NEW:
            return self.enter(job)
        if word is KeyAnswer.REWRITE:
            self.rewrite(row, job)
        return row.id, word.value, row.state

    def depth(self) -> int:
        """Return how many jobs wait."""
        return sum(row.state < RUNNING for row in self.rows.values())

    def enter(self, job: NewJob) -> tuple[bytes, str, int]:
        """Store a new job, if there is room for it."""
        is_full = self.bound is not None and self.depth() >= self.bound
        if is_full and job.wait is None:
            return job.id, "full", READY
        return self.insert(job)

    def insert(self, job: NewJob) -> tuple[bytes, str, int]:
        self.places += 1
        row = Row(
            job.id, self.places, 0, READY, b"", None, created_at=self.now, key=None
        )
        self.rows[job.id] = row
        self.rewrite(row, job)
        row.wait, row.ends = job.wait, job.on_end
        if self.must_wait(job.wait):
            row.state, row.wait_delay = BLOCKED, job.delay_seconds
        return job.id, "new", row.state

    def insert_unseen(self, job: NewJob) -> None:
        """Store a job that a caller's transaction has brought, whatever the bound is."""
        self.insert(job)
        row = self.rows[job.id]
        if row.wait is not None:
            row.state, row.wait_delay = BLOCKED, job.delay_seconds
            row.is_unseen = True

    def rewrite(self, row: Row, job: NewJob) -> None:
        key = job.key
        due = self.now + job.delay_seconds
        if key is not None and key.delay_seconds:
            due = self.now + key.delay_seconds
            if key.ttl_seconds:
                due = min(due, row.created_at + key.ttl_seconds)
        row.rank, row.payload, row.key = job.rank, job.payload, key
        row.state = SCHEDULED if due > self.now else READY
        row.run_at = due
        if key is not None:
            until = self.now + key.ttl_seconds if key.mode == WINDOW else None
            self.keys[key.key] = HeldKey(row.id, key.mode, key.digest, until)

    # --- logs

    def must_wait(self, wait: Wait | None) -> bool:
        return wait is not None and self.logs.length(wait.log) <= wait.above

    def follow(self, log: str, found: Sequence[ModelEntry]) -> None:
        """Append what the store has appended, if it may; then let jobs go."""
        self.logs.follow(log, found)
        for row in self.rows_to_let_go():
            if not row.is_unseen:
                self.let_go(row)

    def rows_to_let_go(self) -> list[Row]:
        """Return blocked jobs whose wait is over; the store has not looked at them yet."""
        blocked = (row for row in self.rows.values() if row.state == BLOCKED)
        return [row for row in blocked if not self.must_wait(row.wait)]

    def let_go(self, row: Row) -> None:
        row.is_unseen = False
        row.run_at = self.now + row.wait_delay
        row.state = SCHEDULED if row.wait_delay > 0 else READY

    def append_ends(
        self, row: Row, body: bytes | None, effects: Effects | None = None
    ) -> None:
        """Append what a job has for its final state; one for `done` goes only once.

        Entries of its effects come after its own.
        """
        bit = {DONE: 1, DEAD: 2, CANCELLED: 4}[row.state]
        due = [end for end in row.ends if end.when & bit]
        row.ends = tuple(e for e in row.ends if e not in due or not e.when & 1)
        own: list[tuple[str, ModelEntry]] = []
        for end in due:
            uid = f"m{end.tag}" if end.once else None
            own.append((end.log, ModelEntry(end.tag, row.state, row.id, uid, body)))
        self.logs.write(
            [*own, *new_entries(() if effects is None else effects.appends)]
        )

    # --- records

    def record(self, name: str) -> ModelRecord | None:
        """Return a record that has not expired."""
        found = self.records.get(name)
        if found is None or (found.expires_at or self.now + 1) <= self.now:
            return None
        return found

    def commit(self, job: NewJob | None, put: Put) -> str | None:
        """Return the kind of the conflict; None if the job is stored."""
        standing = self.record(put.name)
        version = 0 if standing is None else standing.version
        if put.if_version not in {None, version}:
            return "record"
        if job is None:
            return None
        _, word, _ = self.enqueue(job)
        return "key" if word == "conflict" else word if word == "full" else None

    def put(self, put: Put, version: int) -> None:
        self.records.pop(put.name, None)
        if put.body is not None:
            ttl = put.ttl_seconds
            until = None if ttl is None else self.now + ttl
            self.records[put.name] = ModelRecord(version, put.body, until)

    # --- claim and end

    def claim(self, worker: int, want: int) -> list[tuple[bytes, int]]:
        self.promote()
        ready = [row for row in self.rows.values() if row.state == READY]
        ready.sort(
            key=lambda row: (row.rank, row.id if self.claims_by_id else row.place)
        )
        for row in ready[:want]:
            row.state, row.worker, row.alone = RUNNING, worker, False
            row.claim_no += 1
            if row.key is not None and row.key.mode == WAITING:
                self.free(row)
        return [(row.id, row.claim_no) for row in ready[:want]]

    def promote(self) -> int:
        due = [
            row
            for row in self.rows.values()
            if row.state == SCHEDULED and (row.run_at or 0) <= self.now
        ]
        for row in due:
            row.state = READY
        return len(due)

    def end(
        self,
        worker: int,
        job_id: bytes,
        claim_no: int,
        kind: OutcomeKind,
        delay: float = 0.0,
        effects: Effects | None = None,
    ) -> bool:
        """Whether the outcome was accepted; its effects are written with it."""
        row = self.rows.get(job_id)
        if row is None or (row.state, row.worker, row.claim_no) != (
            RUNNING,
            worker,
            claim_no,
        ):
            return False
        for put in () if effects is None else effects.puts:
            standing = self.record(put.name)
            if put.if_version not in {
                None,
                0 if standing is None else standing.version,
            }:
                return False
        if kind is OutcomeKind.ALONE:
            row.alone = True
        else:
            killed = kind is OutcomeKind.LOST
            self.leave(row, kind, delay=delay, killed_process=killed, effects=effects)
        return True

    def leave(
        self,
        row: Row,
        kind: OutcomeKind,
        *,
        delay: float = 0.0,
        killed_process: bool = False,
        effects: Effects | None = None,
        error: bytes | None = None,
    ) -> None:
        way = way_out(
            kind,
            lost=row.lost,
            delayed=delay > 0,
            cancel_asked=row.cancel,
            alone=row.alone,
            killed_process=killed_process,
        )
        row.retried += way.retried
        row.snoozed += way.snoozed
        row.losses += way.losses
        row.lost = way.lost
        row.worker, row.alone, row.cancel = None, False, False
        row.state = CODE_BY_STATE[way.state]
        is_quiet = row.is_quiet and row.state == CANCELLED
        row.is_quiet = False
        if row.state == SCHEDULED:
            row.run_at = self.now + delay
        if way.state.is_final:
            self.settle(row)
            if not is_quiet:
                self.append_ends(row, entry_body(row.state, RESULT, error), effects)

    def settle(self, row: Row) -> None:
        """Apply a final state: free the key by its mode, and set how long the job is kept."""
        row.finished_at = self.now
        row.gone_at = self.now + (DEAD_SECONDS if row.state == DEAD else DONE_SECONDS)
        if row.key is not None and (row.key.mode != WINDOW or row.state == CANCELLED):
            self.free(row)
        elif row.key is not None and row.state == DONE and self.holds(row):
            row.gone_at = max(row.gone_at, self.keys[row.key.key].until or 0.0)

    def holds(self, row: Row) -> bool:
        held = None if row.key is None else self.keys.get(row.key.key)
        return held is not None and held.id == row.id

    def free(self, row: Row) -> None:
        if row.key is not None and self.holds(row):
            del self.keys[row.key.key]

    # --- upkeep and operators

    def rescue(self, worker: int) -> None:
        for row in list(self.rows.values()):
            if row.worker == worker:
                lost = lost_outcome(row.id, row.claim_no, worker, 0, self.now)
                self.leave(row, OutcomeKind.LOST, error=lost.error)

    def cancel(self, job_id: bytes, *, is_quiet: bool = False) -> None:
        row = self.rows[job_id]
        if row.state == RUNNING:
            row.cancel = True
            row.is_quiet |= is_quiet
        elif row.state < RUNNING:
            row.state = CANCELLED
            self.settle(row)
            if not is_quiet:
                self.append_ends(row, None)

    def retry(self, job_id: bytes) -> None:
        row = self.rows[job_id]
        if row.state in {DEAD, CANCELLED} and self.may_hold(row):
            if row.key is not None and row.key.mode != WINDOW:
                held = HeldKey(row.id, row.key.mode, row.key.digest, None)
                self.keys[row.key.key] = held
            row.is_unseen = row.wait is not None and row.wait.log in self.logs.locked
            must_wait = row.is_unseen or self.must_wait(row.wait)
            row.state = BLOCKED if must_wait else READY
            row.wait_delay = 0.0
            row.retried = row.losses = row.lost = row.snoozed = 0

    def may_hold(self, row: Row) -> bool:
        """Whether no other job holds the key of this job."""
        held = None if row.key is None else self.keys.get(row.key.key)
        if held is None or held.id == row.id:
            return True
        holder = self.rows.get(held.id)
        in_window = held.until is not None and held.until > self.now
        return holder is None or not (holder.state < DONE or in_window)

    def discard(self, job_id: bytes) -> None:
        if self.rows[job_id].state == DEAD:
            self.free(self.rows[job_id])
            del self.rows[job_id]

    def prune(self, dead_count: int) -> None:
        dead = [row for row in self.rows.values() if row.state == DEAD]
        dead.sort(key=lambda row: -row.finished_at)
        spared = {row.id for row in dead[:dead_count]}
        for row in list(self.rows.values()):
            over = row.state >= DONE and row.gone_at <= self.now
            if over and row.id not in spared:
                del self.rows[row.id]
