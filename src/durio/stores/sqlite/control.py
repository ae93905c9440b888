"""Operators' hands on jobs and queues: cancel, retry, pause."""

from collections.abc import Sequence

from durio.model.job import CANCELLED, DONE, READY, RUNNING
from durio.ports.control import Acted, Verb
from durio.stores.sqlite.desk import AtDesk
from durio.stores.sqlite.keys import free_for_good
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.transaction import Transaction

FIND_STANDING = statement("find_standing")
CANCEL_WAITING = statement("cancel_waiting")
CANCEL_RUNNING = statement("cancel_running")
RETRY_JOB = statement("retry_job")
PAUSE_QUEUE = statement("pause_queue")


class SqliteControl(AtDesk):
    """Acting on jobs by id."""

    async def act(self, ids: Sequence[bytes], verb: Verb) -> list[Acted]:
        """Do it, or leave a job as it is where its state does not allow it."""
        return await self.desk.writer.write(
            lambda tx: [act(tx, job_id, verb) for job_id in ids], rows=len(ids)
        )

    async def pause(self, lane: str, *, paused: bool) -> None:
        """Stop or resume claims from a lane."""

        def work(tx: Transaction) -> None:
            tx.db.rows(PAUSE_QUEUE, (lane, paused))
            tx.new_lanes.add(lane)
            if not paused:
                tx.ring(lane)

        await self.desk.writer.write(work)


def act(tx: Transaction, job_id: bytes, verb: Verb) -> Acted:
    """One job, by its state."""
    rows = tx.db.rows(FIND_STANDING, (job_id,))
    if not rows:
        return Acted(job_id, None, None)
    state = rows[0][0]
    if verb == "cancel":
        return Acted(job_id, state, cancel(tx, job_id, state))
    return Acted(job_id, state, retry(tx, job_id, state))


def cancel(tx: Transaction, job_id: bytes, state: int) -> int:
    """A waiting job ends here; a running one is marked and its worker told."""
    if state >= DONE:
        return state
    if state == RUNNING:
        for (worker,) in tx.db.rows(CANCEL_RUNNING, (job_id,)):
            tx.rung_workers.add(worker)
        return RUNNING
    gone_at = tx.now + tx.retention.done_seconds
    rows = tx.db.rows(CANCEL_WAITING, (job_id, tx.now, gone_at))
    if rows[0][0] is not None:
        free_for_good(tx, job_id, rows[0][0])
    return CANCELLED


def retry(tx: Transaction, job_id: bytes, state: int) -> int:
    """Dead and cancelled jobs begin anew; others stay as they are."""
    rows = tx.db.rows(RETRY_JOB, (job_id,))
    for (lane,) in rows:
        tx.ring(lane)
    return READY if rows else state
