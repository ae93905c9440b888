"""Accept jobs: one transaction for all of them, keys decided one by one.

Most jobs have no key: one prepared statement inserts them all. A job whose id is already
stored is a repeat after an unknown outcome, and the result is its current state.

If a lane has a guard (bounds.py), either all jobs of a call enter or none, in the order of
the callers. A job that returns an already stored job needs no room.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from durio.model.errors import InvariantBroken
from durio.model.job import BLOCKED, READY, SCHEDULED, KeyClaim, NewJob
from durio.model.keys import KeyAnswer, key_answer
from durio.model.ties import encode_ties, load_ties
from durio.model.tx import Joinable
from durio.ports.enqueue import Enqueued
from durio.stores.job_rules import expiry_puts
from durio.stores.sqlite.bounds import (
    SqliteNoRoom,
    changed_bounds,
    clear_refusals,
    declare_bounds,
    enter_lane,
    enter_lane_blocked,
    guard_of,
    refusal_for_jobs,
    subtract_from_depth,
    undo_if_full,
)
from durio.stores.sqlite.caller_transaction import write_joined
from durio.stores.sqlite.context import SqliteCapability, SqliteContext
from durio.stores.sqlite.gates import enter_gates, enter_new, leave_gates
from durio.stores.sqlite.keys import HeldKey, find_holder, take_key
from durio.stores.sqlite.logs import read_lengths
from durio.stores.sqlite.records import write_puts
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

INSERT_JOB = statement("insert_job")
INSERT_TIED_JOB = statement("insert_tied_job")
INSERT_WAIT = statement("insert_wait")
REWRITE_JOB = statement("rewrite_job")
REWRITE_TIED_JOB = statement("rewrite_tied_job")
INSERT_QUEUE = statement("insert_queue")
READ_CLAIM_STATE = statement("read_claim_state")

KEY = NewJob._fields.index("key")
PLAIN_END = (None, None, (), (), None)  # the fields from `key` on, of a plain job
STATE, RUN_AT = 3, 6  # places in the values of `insert_job`


class SqliteEnqueue(SqliteCapability):
    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        calls: Sequence[int] | None = None,
        again: bool = False,  # noqa: ARG002 - every enqueue finds what is stored
        tx: Joinable | None = None,
        apart: bool = False,  # noqa: ARG002 - only SQLite's writer locks anything
    ) -> list[Enqueued]:
        """Store all jobs in one transaction, and wake the workers of their lanes."""
        if not jobs:
            return []
        if tx is not None:
            return await enqueue_joined(self.context, tx, jobs)
        return await self.context.writer.write(
            lambda tx: enqueue_jobs(tx, jobs, calls), rows=len(jobs)
        )

    async def declare(
        self, maxsizes: Mapping[str, int | None], *, is_default: bool = False
    ) -> None:
        """Store the bounds of lanes from the code; write only what changed."""
        news = await self.context.reader.read(
            lambda db: changed_bounds(db, maxsizes, is_default=is_default)
        )
        if news:
            await self.context.writer.write(
                lambda tx: declare_bounds(tx, news, is_default=is_default)
            )


async def enqueue_joined(
    context: SqliteContext, tx: Joinable, jobs: Sequence[NewJob]
) -> list[Enqueued]:
    """Insert these jobs in the transaction of `tx`."""
    try:
        return await write_joined(context, tx, lambda tx: insert_into_full(tx, jobs))
    except SqliteNoRoom as no_room:
        return [Enqueued(job.id, False, READY, full=no_room.full) for job in jobs]


def enqueue_jobs(
    tx: SqliteTransaction, jobs: Sequence[NewJob], calls: Sequence[int] | None = None
) -> list[Enqueued]:
    """Insert the jobs, return results in order, wake workers."""
    lanes = {job.lane for job in jobs}
    if not any(guard_of(tx, lane) for lane in lanes):
        return insert_all(tx, jobs, lanes)
    return enqueue_guarded(tx, jobs, calls or (len(jobs),))


def insert_all(
    tx: SqliteTransaction, jobs: Sequence[NewJob], lanes: set[str]
) -> list[Enqueued]:
    ensure_lanes(tx, lanes)
    if all(job[KEY:] == PLAIN_END for job in jobs):
        return insert_plain(tx, jobs)
    if all(job.key is None for job in jobs):
        answers = insert_without_keys(tx, jobs)
    else:
        answers = [
            insert_without_keys(tx, (job,))[0]
            if job.key is None
            else enqueue_keyed(tx, job, job.key)
            for job in jobs
        ]
    write_puts(tx, expiry_puts(jobs, answers))
    return answers


def insert_into_full(tx: SqliteTransaction, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Insert all jobs, even into full queues; the results say which queues are full.

    A closed queue raises SqliteNoRoom. In a caller's transaction an exact refusal of a full
    queue would hold the queue's row until the caller commits.
    """
    lanes = {job.lane for job in jobs}
    for lane in lanes:
        guard_of(tx, lane)  # plain inserts check only guards that were read
    tx.enters_full = True
    try:
        answers = insert_all(tx, jobs, lanes)
        full = {each.lane: each for each in tx.full_queues}
    finally:
        tx.enters_full = False
        tx.full_queues.clear()
    return [
        answer._replace(full=full.get(job.lane)) if answer.created else answer
        for job, answer in zip(jobs, answers, strict=True)
    ]


# --- into lanes with a guard


def enqueue_guarded(
    tx: SqliteTransaction, jobs: Sequence[NewJob], calls: Sequence[int]
) -> list[Enqueued]:
    """Enqueue all calls at once if there is room for all, else call by call."""
    if sum(calls) != len(jobs):
        raise InvariantBroken(f"calls of {sum(calls)} jobs, but {len(jobs)} jobs")
    if refusal_for_jobs(tx, jobs) is None:
        return insert_all(tx, jobs, {job.lane for job in jobs})
    answers: list[Enqueued] = []
    for size in calls:
        run = jobs[len(answers) : len(answers) + size]
        answers += enqueue_call(tx, run)
    clear_refusals(tx)
    return answers


def enqueue_call(tx: SqliteTransaction, call: Sequence[NewJob]) -> list[Enqueued]:
    """Enqueue the jobs of one caller: all, or none if one finds no room."""
    try:
        with undo_if_full(tx):
            check_room_without_keys(tx, call)
            return insert_all(tx, call, {job.lane for job in call})
    except SqliteNoRoom as no_room:
        return [Enqueued(job.id, False, READY, full=no_room.full) for job in call]


def check_room_without_keys(tx: SqliteTransaction, call: Sequence[NewJob]) -> None:
    """Check before anything is written, because a full queue is tried again and again.

    With keys only the insert shows which jobs need room.
    """
    if any(job.key is not None for job in call) or refusal_for_jobs(tx, call) is None:
        return
    new = {job.id: job for job in call if not tx.db.rows(READ_CLAIM_STATE, (job.id,))}
    full = refusal_for_jobs(tx, new.values())
    if full is not None:
        raise SqliteNoRoom(full)


# --- one by one


def ensure_lanes(tx: SqliteTransaction, lanes: set[str]) -> None:
    """Create the rows of new lanes; this process remembers those that it created."""
    for lane in lanes - tx.known_lanes:
        tx.db.rows(INSERT_QUEUE, (lane,))
        tx.new_lanes.add(lane)
    for lane in lanes:
        tx.wake(lane)


def insert_plain(tx: SqliteTransaction, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Insert jobs without a key; for those already stored, return the current state."""
    rows = [row_of(tx, job, due_at(tx, job)) for job in jobs]
    tx.db.rows("savepoint inserting")
    inserted = tx.db.changed_by_many(INSERT_JOB, rows)
    if inserted < len(rows):
        # Some are repeats: insert again, one by one, to find out which.
        tx.db.rows("rollback to inserting")
        answers = [insert_or_find(tx, row) for row in rows]
    else:
        answers = [Enqueued(row[0], True, row[STATE]) for row in rows]
    tx.db.rows("release inserting")
    if tx.has_guards:
        for lane, count in Counter(
            job.lane
            for job, answer in zip(jobs, answers, strict=True)
            if answer.created
        ).items():
            enter_lane(tx, lane, count)
    return answers


def insert_without_keys(
    tx: SqliteTransaction, jobs: Sequence[NewJob]
) -> list[Enqueued]:
    """Insert jobs that may have ties; for those already stored, return their state."""
    logs = list({job.wait.log for job in jobs if job.wait is not None})
    lengths = read_lengths(tx.db, logs) if logs else {}
    rows = [tied_row(tx, job, lengths) for job in jobs]
    blocked = {row[0] for row in rows if row[STATE] == BLOCKED}
    entering = block_for_gates(jobs, rows)
    tx.db.rows("savepoint inserting")
    inserted = tx.db.changed_by_many(INSERT_TIED_JOB, rows)
    if inserted < len(rows):
        tx.db.rows("rollback to inserting")
        is_new = [bool(tx.db.changed_by_many(INSERT_TIED_JOB, (r,))) for r in rows]
    else:
        is_new = [True] * len(rows)
    tx.db.rows("release inserting")
    new = [job for job, created in zip(jobs, is_new, strict=True) if created]
    insert_waits(tx, [job for job in new if job.id in blocked])
    enter_lanes(tx, new)
    passed = set[bytes]()
    if entering:
        passed = enter_new(tx, [job for job in new if job.id in entering])
    return [
        Enqueued(job.id, True, READY if job.id in passed else row[STATE])
        if created
        else answer_from_stored(tx, job.id)
        for job, row, created in zip(jobs, rows, is_new, strict=True)
    ]


def tied_row(
    tx: SqliteTransaction, job: NewJob, lengths: Mapping[str, int]
) -> list[Any]:
    """Return the values of `insert_tied_job`, blocked if the job has to wait."""
    row = row_of(tx, job, due_at(tx, job))
    wait = job.wait
    if wait is not None and lengths.get(wait.log, 0) <= wait.above:
        # The delay counts from the end of the wait, a time is kept.
        row[STATE], row[RUN_AT] = BLOCKED, job.run_at
    row.append(encode_ties(job))
    return row


def block_for_gates(jobs: Sequence[NewJob], rows: Sequence[list[Any]]) -> set[bytes]:
    """Let jobs that are due be stored as blocked if they have gates; return their ids."""
    entering = set[bytes]()
    for job, row in zip(jobs, rows, strict=True):
        if job.gates and row[STATE] == READY:
            row[STATE] = BLOCKED
            entering.add(job.id)
    return entering


def insert_waits(tx: SqliteTransaction, blocked: Sequence[NewJob]) -> None:
    waits = (
        (job.id, *job.wait, job.delay_seconds, job.lane)
        for job in blocked
        if job.wait is not None
    )
    tx.db.changed_by_many(INSERT_WAIT, waits)


def enter_lanes(tx: SqliteTransaction, new: Sequence[NewJob]) -> None:
    """Count new jobs; no bound refuses one with a wait, also if it need not wait."""
    for lane, count in Counter(job.lane for job in new if job.wait is None).items():
        enter_lane(tx, lane, count)
    for lane, count in Counter(job.lane for job in new if job.wait is not None).items():
        enter_lane_blocked(tx, lane, count)


def insert_or_find(tx: SqliteTransaction, row: list[Any]) -> Enqueued:
    """Insert one job; if it is already stored or finished, return its current state."""
    if tx.db.changed_by_many(INSERT_JOB, (row,)):
        return Enqueued(row[0], True, row[STATE])
    return answer_from_stored(tx, row[0])


def answer_from_stored(tx: SqliteTransaction, job_id: bytes) -> Enqueued:
    return Enqueued(job_id, False, tx.db.value(READ_CLAIM_STATE, (job_id,)))


def due_at(tx: SqliteTransaction, job: NewJob) -> float | None:
    """Return when a job may run; None means now."""
    if job.run_at is not None:
        return job.run_at
    return tx.now + job.delay_seconds if job.delay_seconds > 0 else None


def row_of(tx: SqliteTransaction, job: NewJob, run_at: float | None) -> list[Any]:
    """Return the values of `insert_job`."""
    key = job.key
    return [
        job.id,
        job.lane,
        job.rank,
        SCHEDULED if run_at is not None and run_at > tx.now else READY,
        job.task,
        job.payload,
        run_at,
        job.opts,
        None if key is None else key.key,
        None if key is None else key.mode,
        tx.now,
    ]


def enqueue_keyed(tx: SqliteTransaction, job: NewJob, key: KeyClaim) -> Enqueued:
    """Enqueue one job with a key: a new job, or what the key's holder requires."""
    if tx.db.rows(READ_CLAIM_STATE, (job.id,)):
        return answer_from_stored(tx, job.id)
    held = find_holder(tx, key)
    answer = key_answer(key.mode, None if held is None else held.holder)
    if held is None or answer is KeyAnswer.NEW:
        return insert_holder(tx, job, key)
    if answer is KeyAnswer.REWRITE:
        return rewrite_holder(tx, job, key, held)
    return Enqueued(
        id=held.id,
        created=False,
        state=held.state_code,
        same_args=held.holder.same_args,
        conflict=answer is KeyAnswer.CONFLICT,
    )


def insert_holder(tx: SqliteTransaction, job: NewJob, key: KeyClaim) -> Enqueued:
    """Store a new job that takes the key; a debounced one waits first."""
    delay = key.delay_seconds
    if job.wait is not None or job.on_end or job.gates:
        if delay > 0:
            job = job._replace(run_at=None, delay_seconds=delay)
        (answer,) = insert_without_keys(tx, (job,))
        take_key(tx, job.id, key)
        return answer
    row = row_of(tx, job, tx.now + delay if delay > 0 else due_at(tx, job))
    enter_lane(tx, job.lane)
    tx.db.rows(INSERT_JOB, tuple(row))
    take_key(tx, job.id, key)
    return Enqueued(job.id, True, row[STATE])


def rewrite_holder(
    tx: SqliteTransaction, job: NewJob, key: KeyClaim, held: HeldKey
) -> Enqueued:
    """Give the waiting holder this job's arguments, due time and gates.

    A node of a plan gets the arguments only.
    """
    ties = None if held.ties is None else load_ties(held.ties)
    if ties is not None and (ties.wait is not None or ties.on_end):
        tx.db.rows(REWRITE_TIED_JOB, (held.id, job.payload))
        take_key(tx, held.id, key)
        same_args = held.holder.same_args
        return Enqueued(held.id, False, held.state_code, same_args, replaced=True)
    run_at = due_at(tx, job)
    if key.delay_seconds > 0:
        run_at = tx.now + key.delay_seconds
        if key.ttl_seconds > 0:
            run_at = min(run_at, held.created_at + key.ttl_seconds)
    _, lane, rank, state, task, payload, run_at, opts, _, mode, _ = row_of(
        tx, job, run_at
    )
    gates = encode_ties(job._replace(wait=None, on_end=()))
    new = (held.id, lane, rank, state, task, payload, run_at, opts, mode, gates)
    if lane != held.lane:
        enter_lane(tx, lane)
        subtract_from_depth(tx, held.lane)
    leave_gates(tx, ((held.seq, held.ties),))
    tx.db.rows(REWRITE_JOB, new)
    take_key(tx, held.id, key)
    if gates is not None and state == READY and enter_gates(tx, (held.seq,)):
        state = BLOCKED
    return Enqueued(held.id, False, state, held.holder.same_args, replaced=True)
