"""What a hand does to one job: cancel, retry, discard, restore.

A key is let go at a job's end; an operator who sends the job back gives it its key again,
unless another job has it now: then two would run that must be one, and the job stays as it
is. A window that is over is over.
"""

from collections.abc import Sequence

from durio.model.errors import InvalidOption
from durio.model.ids import ids_in_words
from durio.model.job import CANCELLED, DEAD, DONE, READY, RUNNING, Record
from durio.model.keys import WINDOW, digest_of
from durio.model.names import namespace_of
from durio.model.options import row_options
from durio.model.outcome import Keep
from durio.ports.control import Acted, Verb
from durio.stores.sqlite.audit import write_down
from durio.stores.sqlite.bounds import note_entered, note_left
from durio.stores.sqlite.gate import traceless
from durio.stores.sqlite.keys import free_for_good
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.tally import next_death
from durio.stores.sqlite.transaction import Transaction

FIND_STATE_AND_LANE = statement("find_state_and_lane")
CANCEL_WAITING = statement("cancel_waiting")
CANCEL_RUNNING = statement("cancel_running")
KEEP_JOB = statement("keep_job")
DELETE_JOB = statement("delete_job")
FIND_CLAIM_ON_KEY = statement("find_claim_on_key")
TAKE_KEY = statement("take_key")
RETRY_JOB = statement("retry_job")
DISCARD_JOB = statement("discard_job")
RESTORE_JOB = statement("restore_job")
INSERT_QUEUE = statement("insert_queue")


def act_on_ids(
    tx: Transaction,
    ids: Sequence[bytes],
    verb: Verb,
    by: str | None,
    payload: bytes | None = None,
) -> list[Acted]:
    """Jobs by name, in the order asked; `payload` are other arguments for a retry."""
    acted: list[Acted] = []
    of_apps: dict[str, list[Acted]] = {}
    for job_id in ids:
        rows = tx.db.rows(FIND_STATE_AND_LANE, (job_id,))
        state, lane = rows[0] if rows else (None, "")
        after = None if state is None else act(tx, job_id, state, verb, payload)
        acted.append(Acted(job_id, state, after))
        if rows:
            of_apps.setdefault(namespace_of(lane), []).append(acted[-1])
    if by is not None:
        word = verb if payload is None else "retry_edited"
        for namespace, some in of_apps.items():
            changed = sum(is_changed(one, verb) for one in some)
            target = ids_in_words([one.id for one in some])
            write_down(tx, namespace, by, word, target, changed)
    return acted


def is_changed(acted: Acted, verb: Verb) -> bool:
    """Whether anything was done to it; a running job is only asked to stop."""
    is_asked = verb == "cancel" and acted.before == RUNNING
    return is_asked or acted.before != acted.after


def act(
    tx: Transaction,
    job_id: bytes,
    state: int,
    verb: Verb,
    payload: bytes | None = None,
) -> int | None:
    """One job, by its state; the state after."""
    if verb == "cancel":
        return cancel(tx, job_id, state)
    if verb == "discard":
        return discard(tx, job_id, state)
    return retry(tx, job_id, state, payload)


def cancel(tx: Transaction, job_id: bytes, state: int) -> int:
    """A waiting job ends here; a running one is marked and its worker told."""
    if state >= DONE:
        return state
    if state == RUNNING:
        for (worker,) in tx.db.rows(CANCEL_RUNNING, (job_id,)):
            tx.rung_workers.add(worker)
        return RUNNING
    gone_at = tx.now + tx.retention.done_seconds
    key, opts, lane = tx.db.rows(CANCEL_WAITING, (job_id, tx.now, gone_at))[0]
    note_left(tx, lane)
    if key is not None:
        free_for_good(tx, job_id, key)
    if opts is not None:
        retain(tx, job_id, opts)
    return CANCELLED


def retain(tx: Transaction, job_id: bytes, opts: bytes) -> None:
    """The job's own word on how long it stays."""
    try:
        kept = row_options(opts).keep
    except InvalidOption:
        return  # damaged: as long as any other
    if kept is None:
        return
    keep = Keep(*kept)
    if traceless(keep):
        tx.db.rows(DELETE_JOB, (job_id,))
        return
    bucket = None if keep.count is None else keep.bucket
    tx.db.rows(KEEP_JOB, (job_id, tx.now + keep.seconds, bucket, keep.count))


def retry(tx: Transaction, job_id: bytes, state: int, payload: bytes | None) -> int:
    """Dead and cancelled jobs begin anew; others stay as they are."""
    if state not in (DEAD, CANCELLED) or not take_key_again(tx, job_id, payload):
        return state
    for (lane,) in tx.db.rows(RETRY_JOB, (job_id, payload, tx.now)):
        note_entered(tx, lane)
        tx.ring(lane)
    return READY


def take_key_again(tx: Transaction, job_id: bytes, payload: bytes | None) -> bool:
    """The key that a job came with, if it came with one; False: another job has it."""
    for key, mode, stored, taken in tx.db.rows(FIND_CLAIM_ON_KEY, (job_id, tx.now)):
        if taken:
            return False
        if mode != WINDOW:
            digest = digest_of(stored if payload is None else payload)
            tx.db.rows(TAKE_KEY, (key, job_id, mode, digest, None))
    return True


def discard(tx: Transaction, job_id: bytes, state: int) -> int | None:
    """The record of a dead job goes, and whatever key it still held."""
    if state != DEAD:
        return state
    for (key,) in tx.db.rows(DISCARD_JOB, (job_id,)):
        if key is not None:
            free_for_good(tx, job_id, key)
    return None


def restore(tx: Transaction, records: Sequence[Record], by: str) -> int:
    """Dead letters as they were, without a key; they stay as long as those of today."""
    gone_at = tx.now + tx.retention.dead_seconds
    of_apps: dict[str, list[bytes]] = {}
    for lane in {record.lane for record in records}:
        tx.db.rows(INSERT_QUEUE, (lane,))
        tx.new_lanes.add(lane)
    for r in records:
        errors = None if r.errors is None else r.errors.decode("utf-8", "replace")
        counters = (r.retried, r.losses, r.lost, r.snoozed, r.claim_no)
        ended = tx.now if r.finished_at is None else r.finished_at
        times = (r.created_at, r.started_at, ended, gone_at)
        what = (r.id, r.lane, r.rank, r.task, r.payload)
        values = (*what, *counters, r.opts, errors, *times, r.reason, next_death(tx))
        if tx.db.rows(RESTORE_JOB, values):
            of_apps.setdefault(namespace_of(r.lane), []).append(r.id)
    for namespace, ids in of_apps.items():
        write_down(tx, namespace, by, "restore", ids_in_words(ids), len(ids))
    return sum(map(len, of_apps.values()))
