"""Accepting jobs: one transaction for all of them, keys judged one by one.

Jobs without a key, by far the most, go in with one statement run many times. A job whose
id is already stored is a repeat after an unknown outcome: it is answered as it stands.
"""

from collections.abc import Sequence
from typing import Any

from durio.model.job import READY, SCHEDULED, KeyClaim, NewJob
from durio.model.keys import Answer, answer
from durio.ports.enqueue import Enqueued
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

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store all of them in one transaction, and wake whoever serves their lanes."""
        if not jobs:
            return []
        return await self.desk.writer.write(
            lambda tx: enqueue_jobs(tx, jobs), rows=len(jobs)
        )


def enqueue_jobs(tx: Transaction, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Insert, answer in order, ring."""
    note_lanes(tx, {job.lane for job in jobs})
    if all(job.key is None for job in jobs):
        return insert_plain(tx, jobs)
    return [
        insert_plain(tx, (job,))[0]
        if job.key is None
        else enqueue_keyed(tx, job, job.key)
        for job in jobs
    ]


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
    tx.db.rows(REWRITE_JOB, new)
    take_key(tx, held.id, key)
    return Enqueued(held.id, False, state, held.holder.same_args, replaced=True)
