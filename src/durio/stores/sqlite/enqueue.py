"""Accepting jobs: one transaction for all of them, keys judged one by one.

Jobs without a key, by far the most, go in with one statement run many times. A job whose
id is already stored is a repeat after an unknown outcome: it is answered as it stands.

Where a lane has a guard (bounds.py) each caller's run of jobs enters whole or not at all,
in the order of the callers. What is answered by a stored job needs no room.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from durio.model.errors import InvariantBroken
from durio.model.job import READY, SCHEDULED, KeyClaim, NewJob
from durio.model.keys import Answer, answer
from durio.ports.enqueue import Enqueued, Full
from durio.stores.sqlite.bounds import (
    NoRoom,
    admit_again,
    all_or_nothing,
    declare_bounds,
    enter,
    guard_of,
    missing_room,
    news_of,
    note_left,
)
from durio.stores.sqlite.desk import AtDesk
from durio.stores.sqlite.keys import HeldKey, find_holder, take_key
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.transaction import Transaction

INSERT_JOB = statement("insert_job")
REWRITE_JOB = statement("rewrite_job")
INSERT_QUEUE = statement("insert_queue")
FIND_STANDING = statement("find_standing")


class SqliteEnqueue(AtDesk):
    """Accepting jobs."""

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        calls: Sequence[int] | None = None,
        again: bool = False,  # noqa: ARG002 - every enqueue finds what is stored
    ) -> list[Enqueued]:
        """Store all of them in one transaction, and wake whoever serves their lanes."""
        if not jobs:
            return []
        return await self.desk.writer.write(
            lambda tx: enqueue_jobs(tx, jobs, calls), rows=len(jobs)
        )

    async def declare(
        self, maxsizes: Mapping[str, int | None], *, is_default: bool = False
    ) -> None:
        """Bounds of lanes as the code says; nothing is written where nothing is new."""
        news = await self.desk.reader.read(
            lambda db: news_of(db, maxsizes, is_default=is_default)
        )
        if news:
            await self.desk.writer.write(
                lambda tx: declare_bounds(tx, news, is_default=is_default)
            )


def enqueue_jobs(
    tx: Transaction, jobs: Sequence[NewJob], calls: Sequence[int] | None = None
) -> list[Enqueued]:
    """Insert, answer in order, ring."""
    lanes = {job.lane for job in jobs}
    if not any(guard_of(tx, lane) for lane in lanes):
        return insert_all(tx, jobs, lanes)
    return enqueue_guarded(tx, jobs, calls or (len(jobs),))


def insert_all(
    tx: Transaction, jobs: Sequence[NewJob], lanes: set[str]
) -> list[Enqueued]:
    """All of them, whatever key they have."""
    note_lanes(tx, lanes)
    if all(job.key is None for job in jobs):
        return insert_plain(tx, jobs)
    return [
        insert_plain(tx, (job,))[0]
        if job.key is None
        else enqueue_keyed(tx, job, job.key)
        for job in jobs
    ]


# --- into lanes with a guard


def enqueue_guarded(
    tx: Transaction, jobs: Sequence[NewJob], calls: Sequence[int]
) -> list[Enqueued]:
    """All at once where there is room for all, else caller by caller."""
    if sum(calls) != len(jobs):
        raise InvariantBroken(f"calls of {sum(calls)} jobs, but {len(jobs)} jobs")
    if missing(tx, jobs) is None:
        return insert_all(tx, jobs, {job.lane for job in jobs})
    answers: list[Enqueued] = []
    for size in calls:
        run = jobs[len(answers) : len(answers) + size]
        answers += enqueue_run(tx, run)
    admit_again(tx)
    return answers


def enqueue_run(tx: Transaction, run: Sequence[NewJob]) -> list[Enqueued]:
    """The jobs of one caller: all of them, or none because one finds no room."""
    try:
        with all_or_nothing(tx):
            check_plain(tx, run)
            return insert_all(tx, run, {job.lane for job in run})
    except NoRoom as no_room:
        return [Enqueued(job.id, False, READY, full=no_room.full) for job in run]


def check_plain(tx: Transaction, run: Sequence[NewJob]) -> None:
    """Before anything is written: a full queue is asked again and again.

    With keys only the writing shows which jobs need room.
    """
    if any(job.key is not None for job in run) or missing(tx, run) is None:
        return
    new = {job.id: job for job in run if not tx.db.rows(FIND_STANDING, (job.id,))}
    full = missing(tx, new.values())
    if full is not None:
        raise NoRoom(full)


def missing(tx: Transaction, jobs: Iterable[NewJob]) -> Full | None:
    """Why these jobs may not enter, if all of them are new; None: they may."""
    for lane, count in Counter(job.lane for job in jobs).items():
        full = missing_room(tx, lane, count)
        if full is not None:
            return full
    return None


# --- one by one


def note_lanes(tx: Transaction, lanes: set[str]) -> None:
    """Every lane that ever got a job has a row; this process remembers which it made."""
    for lane in lanes - tx.known_lanes:
        tx.db.rows(INSERT_QUEUE, (lane,))
        tx.new_lanes.add(lane)
    for lane in lanes:
        tx.ring(lane)


def insert_plain(tx: Transaction, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Jobs without a key; those already stored are answered as they stand."""
    rows = [row_of(tx, job, due_at(tx, job)) for job in jobs]
    tx.db.rows("savepoint inserting")
    inserted = tx.db.changed_by_many(INSERT_JOB, rows)
    if inserted < len(rows):
        # Some are repeats: once more, one by one, to see which.
        tx.db.rows("rollback to inserting")
        answers = [insert_or_find(tx, row) for row in rows]
    else:
        answers = [Enqueued(row[0], True, row[3]) for row in rows]
    tx.db.rows("release inserting")
    if tx.has_guards:
        for lane, count in Counter(
            job.lane for job, told in zip(jobs, answers, strict=True) if told.created
        ).items():
            enter(tx, lane, count)
    return answers


def insert_or_find(tx: Transaction, row: tuple[Any, ...]) -> Enqueued:
    """One job, new or as it stands, also when it finished meanwhile."""
    if tx.db.changed_by_many(INSERT_JOB, (row,)):
        return Enqueued(row[0], True, row[3])
    return standing(tx, row[0])


def standing(tx: Transaction, job_id: bytes) -> Enqueued:
    """A repeat after an unknown outcome."""
    return Enqueued(job_id, False, tx.db.value(FIND_STANDING, (job_id,)))


def due_at(tx: Transaction, job: NewJob) -> float | None:
    """When a job may run; None is now."""
    if job.run_at is not None:
        return job.run_at
    return tx.now + job.delay_seconds if job.delay_seconds > 0 else None


def row_of(tx: Transaction, job: NewJob, run_at: float | None) -> tuple[Any, ...]:
    """The values of an insert."""
    key = job.key
    return (
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
    )


def enqueue_keyed(tx: Transaction, job: NewJob, key: KeyClaim) -> Enqueued:
    """One job with a key: new, or whatever the key's holder answers."""
    if tx.db.rows(FIND_STANDING, (job.id,)):
        return standing(tx, job.id)
    held = find_holder(tx, key)
    told = answer(key.mode, None if held is None else held.holder)
    if held is None or told is Answer.NEW:
        return insert_holder(tx, job, key)
    if told is Answer.REWRITE:
        return rewrite_holder(tx, job, key, held)
    return Enqueued(
        id=held.id,
        created=False,
        state=held.state_code,
        same_args=held.holder.same_args,
        conflict=told is Answer.CONFLICT,
    )


def insert_holder(tx: Transaction, job: NewJob, key: KeyClaim) -> Enqueued:
    """A new job takes the key; a debounced one waits first."""
    wait = key.delay_seconds
    row = row_of(tx, job, tx.now + wait if wait > 0 else due_at(tx, job))
    enter(tx, job.lane)
    tx.db.rows(INSERT_JOB, row)
    take_key(tx, job.id, key)
    return Enqueued(job.id, True, row[3])


def rewrite_holder(
    tx: Transaction, job: NewJob, key: KeyClaim, held: HeldKey
) -> Enqueued:
    """The waiting holder gets these arguments and this due time."""
    run_at = due_at(tx, job)
    if key.delay_seconds > 0:
        run_at = tx.now + key.delay_seconds
        if key.ttl_seconds > 0:
            run_at = min(run_at, held.created_at + key.ttl_seconds)
    _, lane, rank, state, task, payload, run_at, opts, _, mode, _ = row_of(
        tx, job, run_at
    )
    new = (held.id, lane, rank, state, task, payload, run_at, opts, mode)
    if lane != held.lane:
        enter(tx, lane)
        note_left(tx, held.lane)
    tx.db.rows(REWRITE_JOB, new)
    take_key(tx, held.id, key)
    return Enqueued(held.id, False, state, held.holder.same_args, replaced=True)
