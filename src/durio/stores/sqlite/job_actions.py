"""What a hand does to one job: cancel, retry, discard, restore.

A key is let go at a job's end; an operator who sends the job back gives it its key again,
unless another job has it now: then two would run that must be one, and the job stays as it
is. A window that is over is over.

One verb for many jobs: counted first, then done in steps, each job at most once.

A mark says how far a count looked: the newest arrival, the moment, and how many jobs had
ever died. Waiting and running jobs are beyond it when they arrived later, dead ones when
they died later, so that a job that is sent back and dies again is not met twice. (One that
only comes back to a waiting state had arrived before: it is meant.)

Steps look for jobs beside the writer and judge each again in the transaction that acts.
Where a bulk act has come to is remembered by this process; it saves going over what did
not fit, and nothing is wrong without it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from durio.model.errors import InvalidOption
from durio.model.ids import format_ids
from durio.model.job import (
    BLOCKED,
    CANCELLED,
    DEAD,
    DONE,
    READY,
    RUNNING,
    SCHEDULED,
    StoredJob,
)
from durio.model.keys import WINDOW, payload_digest
from durio.model.names import namespace_of
from durio.model.options import row_options
from durio.model.outcome import Keep
from durio.ports.browse import Query
from durio.ports.control import Acted, Counted, Verb
from durio.stores.sqlite.audit import write_audit_line
from durio.stores.sqlite.bounds import (
    add_to_depth,
    clear_soft_mark,
    subtract_from_depth,
)
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.death_counts import next_death
from durio.stores.sqlite.exit import keeps_nothing
from durio.stores.sqlite.filters import conditions, states_of, walk_of
from durio.stores.sqlite.keys import free_for_good
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

FIND_STATE_AND_LANE = statement("find_state_and_lane")
CANCEL_WAITING = statement("cancel_waiting")
CANCEL_RUNNING = statement("cancel_running")
SET_RETENTION = statement("set_retention")
DELETE_JOB = statement("delete_job")
FIND_KEY_OF_FINAL_JOB = statement("find_key_of_final_job")
TAKE_KEY = statement("take_key")
RETRY_JOB = statement("retry_job")
DISCARD_JOB = statement("discard_job")
RESTORE_JOB = statement("restore_job")
INSERT_QUEUE = statement("insert_queue")


def act_on_ids(
    tx: SqliteTransaction,
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
        after = None if state is None else act_on_job(tx, job_id, state, verb, payload)
        acted.append(Acted(job_id, state, after))
        if rows:
            of_apps.setdefault(namespace_of(lane), []).append(acted[-1])
    if by is not None:
        word = verb if payload is None else "retry_edited"
        for namespace, some in of_apps.items():
            changed = sum(is_changed(one, verb) for one in some)
            target = format_ids([one.id for one in some])
            write_audit_line(tx, namespace, by, word, target, changed)
    return acted


def is_changed(acted: Acted, verb: Verb) -> bool:
    """Whether anything was done to it; a running job is only asked to stop."""
    is_asked = verb == "cancel" and acted.before == RUNNING
    return is_asked or acted.before != acted.after


def act_on_job(
    tx: SqliteTransaction,
    job_id: bytes,
    state: int,
    verb: Verb,
    payload: bytes | None = None,
) -> int | None:
    """One job, by its state; the state after."""
    if verb == "cancel":
        return cancel_job(tx, job_id, state)
    if verb == "discard":
        return discard_job(tx, job_id, state)
    return retry_job(tx, job_id, state, payload)


def cancel_job(tx: SqliteTransaction, job_id: bytes, state: int) -> int:
    """A waiting job ends here; a running one is marked and its worker told."""
    if state >= DONE:
        return state
    if state == RUNNING:
        for (worker,) in tx.db.rows(CANCEL_RUNNING, (job_id,)):
            tx.woken_workers.add(worker)
        return RUNNING
    gone_at = tx.now + tx.retention.done_seconds
    key, opts, lane = tx.db.rows(CANCEL_WAITING, (job_id, tx.now, gone_at))[0]
    subtract_from_depth(tx, lane)
    if key is not None:
        free_for_good(tx, job_id, key)
    if opts is not None:
        apply_retention(tx, job_id, opts)
    return CANCELLED


def apply_retention(tx: SqliteTransaction, job_id: bytes, opts: bytes) -> None:
    """The job's own word on how long it stays."""
    try:
        kept = row_options(opts).keep
    except InvalidOption:
        return  # damaged: as long as any other
    if kept is None:
        return
    keep = Keep(*kept)
    if keeps_nothing(keep):
        tx.db.rows(DELETE_JOB, (job_id,))
        return
    bucket = None if keep.count is None else keep.bucket
    tx.db.rows(SET_RETENTION, (job_id, tx.now + keep.seconds, bucket, keep.count))


def retry_job(
    tx: SqliteTransaction, job_id: bytes, state: int, payload: bytes | None
) -> int:
    """Dead and cancelled jobs begin anew; others stay as they are."""
    if state not in (DEAD, CANCELLED) or not retake_key(tx, job_id, payload):
        return state
    for (lane,) in tx.db.rows(RETRY_JOB, (job_id, payload, tx.now)):
        add_to_depth(tx, lane)
        tx.wake(lane)
    return READY


def retake_key(tx: SqliteTransaction, job_id: bytes, payload: bytes | None) -> bool:
    """The key that a job came with, if it came with one; False: another job has it."""
    for key, mode, stored, taken in tx.db.rows(FIND_KEY_OF_FINAL_JOB, (job_id, tx.now)):
        if taken:
            return False
        if mode != WINDOW:
            digest = payload_digest(stored if payload is None else payload)
            tx.db.rows(TAKE_KEY, (key, job_id, mode, digest, None))
    return True


def discard_job(tx: SqliteTransaction, job_id: bytes, state: int) -> int | None:
    """The record of a dead job goes, and whatever key it still held."""
    if state != DEAD:
        return state
    for (key,) in tx.db.rows(DISCARD_JOB, (job_id,)):
        if key is not None:
            free_for_good(tx, job_id, key)
    return None


def restore_jobs(tx: SqliteTransaction, jobs: Sequence[StoredJob], by: str) -> int:
    """Dead letters as they were, without a key; they stay as long as those of today."""
    gone_at = tx.now + tx.retention.dead_seconds
    of_apps: dict[str, list[bytes]] = {}
    for lane in {record.lane for record in jobs}:
        tx.db.rows(INSERT_QUEUE, (lane,))
        tx.new_lanes.add(lane)
    for r in jobs:
        errors = None if r.errors is None else r.errors.decode("utf-8", "replace")
        counters = (r.retried, r.losses, r.lost, r.snoozed, r.claim_no)
        ended = tx.now if r.finished_at is None else r.finished_at
        times = (r.created_at, r.started_at, ended, gone_at)
        what = (r.id, r.lane, r.rank, r.task, r.payload)
        values = (*what, *counters, r.opts, errors, *times, r.reason, next_death(tx))
        if tx.db.rows(RESTORE_JOB, values):
            of_apps.setdefault(namespace_of(r.lane), []).append(r.id)
    for namespace, ids in of_apps.items():
        write_audit_line(tx, namespace, by, "restore", format_ids(ids), len(ids))
    return sum(map(len, of_apps.values()))


READ_BULK_MARK = statement("read_bulk_mark")

BULK_JOBS_MAX = 1000
REMEMBERED_MAX = 64
# The states in which a verb does something, in the order in which they are walked: the way
# that jobs go, so that none slips through to a state that was walked before.
CHANGEABLE: dict[Verb, tuple[int, ...]] = {
    "cancel": (SCHEDULED, READY, RUNNING),
    "retry": (DEAD, CANCELLED),
    "discard": (DEAD,),
}

WalkKey = tuple[Any, ...]


class SqliteBulkMark(NamedTuple):
    """How far a count looked."""

    seq: int
    at: float
    deaths: int

    def __str__(self) -> str:
        return f"{self.seq}:{self.at!r}:{self.deaths}"


class SqliteBulkPosition(NamedTuple):
    """Where a walk through several states has come to."""

    state_index: int = 0  # of the states
    after: tuple[Any, ...] = ()  # the last job met; none: at the beginning


class SqliteBulkBatch(NamedTuple):
    """Jobs to act on, and where the next look begins; None: there is no more."""

    found: list[tuple[bytes, int]]  # id, state
    next_position: SqliteBulkPosition | None


class SqliteBulkProgress(NamedTuple):
    """A bulk act in steps: where it is, and its line in the audit."""

    position: SqliteBulkPosition
    audit_line: int | None


class SqliteBulkActions:
    """The bulk acts that this process has begun and not ended."""

    def __init__(self) -> None:
        self._in_progress: dict[WalkKey, SqliteBulkProgress] = {}

    def get(self, key: WalkKey) -> SqliteBulkProgress:
        """Where this one is."""
        return self._in_progress.get(key) or SqliteBulkProgress(
            SqliteBulkPosition(), None
        )

    def put(self, key: WalkKey, progress: SqliteBulkProgress | None) -> None:
        """Remember a step that is committed; None: that was the last."""
        self._in_progress.pop(key, None)
        if progress is not None:
            self._in_progress[key] = progress
        while len(self._in_progress) > REMEMBERED_MAX:
            self._in_progress.pop(next(iter(self._in_progress)))


def bulk_mark_from_text(text: str) -> SqliteBulkMark:
    """The mark that a count gave; text that we did not write is refused."""
    try:
        seq, at, deaths = text.split(":")
        return SqliteBulkMark(int(seq), float(at), int(deaths))
    except ValueError:
        raise InvalidOption(
            f"{text[:40]!r} is no mark", cure="Pass back what `count` gave."
        ) from None


def count_jobs(db: Database, query: Query, now: float) -> Counted:
    """One statement, so that number and mark are of the same moment."""
    states = states_of(query)
    parts: list[tuple[str, list[Any]]] = []
    if states is None:
        where, values = conditions(query, dead=False)
        parts.append((f"job where true {where}", values))
    for state in sorted(set(states or ())):
        if state == BLOCKED:
            continue  # nothing is ever blocked yet
        walk = walk_of(state)
        where, values = conditions(query, dead=state == DEAD)
        parts.append((f"{walk.source} where {walk.condition} {where}", values))
    total = " + ".join(f"(select count(*) from {part})" for part, _ in parts)  # noqa: S608
    given = [value for _, values in parts for value in values]
    seq, at, deaths, jobs = db.rows(f"{READ_BULK_MARK}, {total or '0'}", given)[0]
    at = max(now, at, latest_moment(db, parts, states))
    return Counted(jobs, str(SqliteBulkMark(seq, at, deaths)))


def latest_moment(
    db: Database, parts: list[tuple[str, list[Any]]], states: tuple[int, ...] | None
) -> float:
    """The latest moment in what was counted: a clock may have been ahead of ours.

    Deaths are numbered and need none: those who only ask for them do not pay.
    """
    if states is not None and set(states) <= {DEAD}:
        return 0.0
    moments = "max(max(created_at), coalesce(max(finished_at), 0))"
    rows = [
        db.value(f"select {moments} from {part}", values)  # noqa: S608 - ours
        for part, values in parts
    ]
    return max((moment or 0.0 for moment in rows), default=0.0)


def changeable_states(query: Query, verb: Verb) -> list[int]:
    """The states asked for in which the verb does something."""
    states = states_of(query)
    return [s for s in CHANGEABLE[verb] if states is None or s in states]


def find_batch(
    db: Database,
    query: Query,
    verb: Verb,
    mark: SqliteBulkMark,
    position: SqliteBulkPosition,
    limit: int,
) -> SqliteBulkBatch:
    """The next jobs that fit, state by state."""
    states = changeable_states(query, verb)
    found: list[tuple[bytes, int]] = []
    nth, after = position
    while nth < len(states):
        state, room = states[nth], limit - len(found)
        rows = find_in_state(db, query, mark, state, after, room)
        found += [(row[0], state) for row in rows]
        if len(rows) == room:
            return SqliteBulkBatch(found, SqliteBulkPosition(nth, rows[-1][1:]))
        nth, after = nth + 1, ()
    return SqliteBulkBatch(found, None)


def find_in_state(
    db: Database,
    query: Query,
    mark: SqliteBulkMark,
    state: int,
    after: WalkKey,
    room: int,
) -> list[WalkKey]:
    """So many jobs of one state, by its index, from behind the last one met."""
    source, _, order = walk_of(state)
    where, values = matching_conditions(query, mark, state)
    columns = ", ".join(order)
    if after:
        where += f" and ({columns}) > ({', '.join('?' * len(order))})"
        values = [*values, *after]
    sql = f"select id, {columns} from {source} where {where}"  # noqa: S608 - ours
    return db.rows(f"{sql} order by {columns} limit ?", (*values, room))


def still_matches(
    db: Database, query: Query, mark: SqliteBulkMark, state: int, job_id: bytes
) -> bool:
    """Whether a job found a moment ago still is what was asked for."""
    where, values = matching_conditions(query, mark, state)
    sql = f"select 1 from job where {where} and id = ?"  # noqa: S608 - ours
    return bool(db.rows(sql, (*values, job_id)))


def matching_conditions(
    query: Query, mark: SqliteBulkMark, state: int
) -> tuple[str, list[Any]]:
    """The query for one state, and not beyond the mark."""
    where, values = conditions(query, dead=state == DEAD)
    if state == DEAD:
        beyond, limits = "coalesce(died_no, 0) <= ?", [mark.deaths]
    elif state == CANCELLED:
        beyond, limits = "seq <= ? and finished_at <= ?", [mark.seq, mark.at]
    else:
        beyond, limits = "seq <= ? and created_at <= ?", [mark.seq, mark.at]
    if state == RUNNING:
        beyond += " and not cancel"  # asked already
    return f"{walk_of(state).condition} {where} and {beyond}", [*values, *limits]


def act_on_batch(
    tx: SqliteTransaction,
    query: Query,
    verb: Verb,
    mark: SqliteBulkMark,
    found: list[tuple[bytes, int]],
    by: str,
    audit_line: int | None,
) -> tuple[int, int | None]:
    """Act on those that still fit; how many, and the line of the audit."""
    jobs = 0
    for job_id, state in found:
        if still_matches(tx.db, query, mark, state, job_id):
            after = act_on_job(tx, job_id, state, verb)
            jobs += is_changed(Acted(job_id, state, after), verb)
    if jobs:
        if verb == "cancel" and query.lane is not None:
            clear_soft_mark(tx, query.lane)
        namespace = query.namespace or namespace_of(query.lane or "")
        target = query.in_words()
        audit_line = write_audit_line(
            tx, namespace, by, verb, target, jobs, add_to_line=audit_line
        )
    return jobs, audit_line
