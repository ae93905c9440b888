"""Dead letters from elsewhere: as they were, without a key, and dead.

What a hand does to jobs: cancel, retry, discard.

Others act at the same time, so whoever gets hold of a job's row is the one who acts: the
lane row of a waiting job, the run row of a running one, the kept row of one that is over.
A row that somebody else took first is looked for again where the job is then. `judge` has
the last word on jobs that are held, for bulk acts.

Nobody waits for such a row, nor for a key: whoever holds it may be a transaction that lasts,
of a caller or of the task itself, and one such job must not keep all the others from what is
asked for them. It counts as moved.

A key is let go at a job's end; an operator who sends the job back gives it its key again,
unless another job has it now: then two would run that must be one, and the job stays as it
is. A window that is over is over.
"""

from collections import Counter
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from typing import NamedTuple

import msgspec

from durio.model.errors import InvalidOption, StoreError
from durio.model.ids import format_ids
from durio.model.job import CANCELLED, DEAD, READY, RUNNING, SCHEDULED, StoredJob
from durio.model.names import namespace_of
from durio.model.options import row_options
from durio.model.outcome import Keep
from durio.ports.control import Acted, Verb
from durio.stores.postgres.audit import storable, write_audit_line
from durio.stores.postgres.bounds import PostgresGuard, change_depths, lock_guards
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.death_counts import NUMBER_DEATHS, next_deaths
from durio.stores.postgres.filters import ID_BYTES
from durio.stores.postgres.keys import free_at_end, retake_keys
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

MAKE_LANES = statement("insert_queue")
RESTORE_JOB = statement("restore_job")

INT2_MAX, INT4_MAX = 2**15 - 1, 2**31 - 1

_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


async def restore_jobs(
    tx: PostgresTransaction, jobs: Sequence[StoredJob], by: str
) -> int:
    """Insert those that are not stored; they stay as long as the dead of today."""
    now = await tx.now()
    await tx.rows(MAKE_LANES, sorted({record.lane for record in jobs}))
    of_apps: dict[str, list[bytes]] = {}
    for r in sorted(jobs, key=lambda record: record.id):
        ended = now if r.finished_at is None else r.finished_at
        if await tx.rows(
            RESTORE_JOB,
            *(r.id, r.lane, r.rank, r.task, r.payload),
            *(clamp(n, INT4_MAX) for n in (r.retried, r.losses, r.snoozed, r.claim_no)),
            clamp(r.lost, INT2_MAX),
            *(r.opts, error_list(r.errors)),
            *(r.created_at, r.started_at, ended, now + tx.retention.dead_seconds),
            None if r.reason is None else storable(r.reason),
        ):
            of_apps.setdefault(namespace_of(r.lane), []).append(r.id)
    ids = [job_id for some in of_apps.values() for job_id in some]
    if ids:
        first = await next_deaths(tx, len(ids))
        await tx.rows(NUMBER_DEATHS, ids, list(range(first, first + len(ids))))
    for namespace, some in sorted(of_apps.items()):
        await write_audit_line(
            tx, namespace, by, "restore", format_ids(some), len(some)
        )
    return len(ids)


def clamp(number: int, most: int) -> int:
    """A counter that its column can hold."""
    return max(0, min(number, most))


def error_list(stored: bytes | None) -> list[bytes] | None:
    """A JSON list, element by element; what is none is kept as one damaged error."""
    if stored is None:
        return None
    try:
        return [bytes(error) for error in _list_decoder.decode(stored)] or None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [stored]


READ_STATES = statement("read_states")
LOCK_READY = statement("lock_ready_jobs")
LOCK_SCHEDULED = statement("lock_scheduled_jobs")
DELETE_READY = statement("delete_ready")
DELETE_SCHEDULED = statement("delete_scheduled")
LOCK_JOBS = statement("lock_jobs")
CANCEL_WAITING = statement("cancel_waiting")
LOCK_RUNNING = statement("lock_running_jobs")
CANCEL_RUNNING = statement("cancel_running")
LOCK_FINAL = statement("lock_final_jobs")
RETRY_JOBS = statement("retry_job")
DISCARD_JOBS = statement("discard_job")

BULK_JOBS_MAX = 1000
# Between two rounds in which nothing could be done; then twice as long each time.
PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 1.0
# The states in which a verb does something, in the way that jobs go.
CHANGEABLE: dict[Verb, tuple[int, ...]] = {
    "cancel": (SCHEDULED, READY, RUNNING),
    "retry": (DEAD, CANCELLED),
    "discard": (DEAD,),
}


class FoundJob(NamedTuple):
    """Where a job is, as far as a look can tell, and what leads to its lane row."""

    id: bytes
    state: int
    lane: str
    rank: int | None
    run_at: float | None


# Which of these jobs, all in one state and held by us, are meant.
Judge = Callable[[int, Collection[bytes]], Awaitable[set[bytes]]]
Changes = dict[bytes, int | None]  # the state after
Guards = Mapping[str, PostgresGuard]


# --- jobs by name


async def act_on_ids(
    context: PostgresContext,
    ids: Sequence[bytes],
    verb: Verb,
    by: str | None,
    payload: bytes | None = None,
) -> list[Acted]:
    """Jobs by name, in the order asked; `payload` are other arguments for a retry.

    Those that others hold or have moved on meanwhile are looked for again, in a transaction
    of its own: with locks in our hands we would wait for somebody who waits for us. All are
    tried, and then those that are left for as long as a call may last.
    """
    acted: dict[int, Acted] = {}
    left: list[tuple[int, bytes]] = list(enumerate(ids))
    clock, pause = context.clock, PAUSE_SECONDS
    last: float | None = None
    while left:  # a job that is named twice is met twice, one after the other
        places = {job_id: place for place, job_id in reversed(left)}
        is_last = last is not None and clock.monotonic() >= last
        for some in in_batches(sorted(places)):
            try:
                answers = await context.connections.write(
                    partial(
                        act_once,
                        ids=some,
                        verb=verb,
                        by=by,
                        payload=payload,
                        is_last=is_last,
                    )
                )
            except StoreError as error:
                error.unknown = error.unknown or bool(acted)  # some of it was done
                raise
            acted |= {places[one.id]: one for one in answers}
        tried, left = len(left), [each for each in left if each[0] not in acted]
        now = clock.monotonic()
        last = now + context.location.call_seconds if last is None else last
        if len(left) < tried:
            pause = PAUSE_SECONDS
        elif now < last:
            await clock.sleep(min(pause, last - now))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
    return [acted[place] for place in range(len(ids))]


def in_batches(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """As many as one transaction is for."""
    for first in range(0, len(ids), BULK_JOBS_MAX):
        yield ids[first : first + BULK_JOBS_MAX]


def by_namespace(
    acted: Sequence[Acted], seen: Mapping[bytes, FoundJob]
) -> dict[str, list[Acted]]:
    """Whose jobs they are: each App has lines of its own in the audit."""
    found: dict[str, list[Acted]] = {}
    for one in acted:
        found.setdefault(namespace_of(seen[one.id].lane), []).append(one)
    return found


def is_changed(acted: Acted, verb: Verb) -> bool:
    """Whether anything was done to it; a running job is only asked to stop."""
    is_asked = verb == "cancel" and acted.before == RUNNING and not acted.is_held
    return is_asked or acted.before != acted.after


async def act_once(
    tx: PostgresTransaction,
    ids: Sequence[bytes],
    verb: Verb,
    by: str | None,
    payload: bytes | None,
    *,
    is_last: bool,
) -> list[Acted]:
    """Each of these, where it is now; who is missing is in somebody else's hands."""
    seen = await find_jobs(tx, ids)
    able = [place for place in seen.values() if place.state in CHANGEABLE[verb]]
    changes = await act_on_jobs(tx, able, verb, payload)
    undone = {p.id for p in able if p.id not in changes}
    acted: list[Acted] = []
    for job_id in ids:
        if is_last or job_id not in undone:
            state = seen[job_id].state if job_id in seen else None
            after = changes.get(job_id, state)
            is_held = job_id in undone
            acted.append(Acted(job_id, state, after, is_held))
    if by is not None:
        word = verb if payload is None else "retry_edited"
        known = [one for one in acted if one.before is not None]
        for namespace, some in by_namespace(known, seen).items():
            changed = sum(is_changed(one, verb) for one in some)
            target = format_ids([one.id for one in some])
            await write_audit_line(tx, namespace, by, word, target, changed)
    return acted


async def find_jobs(
    tx: PostgresTransaction, ids: Sequence[bytes]
) -> dict[bytes, FoundJob]:
    """Where these are; unknown ones are missing."""
    able = [job_id for job_id in ids if len(job_id) == ID_BYTES]
    return {row[0]: FoundJob(*row) for row in await tx.rows(READ_STATES, able)}


async def act_on_jobs(
    tx: PostgresTransaction,
    seen: Sequence[FoundJob],
    verb: Verb,
    payload: bytes | None = None,
    judge: Judge | None = None,
) -> Changes:
    """The verb for jobs that were seen in a state that allows it; by id.

    The states of all that were there to be held, after it; one that is missing is held or
    was taken by somebody else, or is not meant.
    """
    if not seen:
        return {}
    if verb == "discard":
        return await discard_jobs(tx, [place.id for place in seen], judge)
    guards = await lock_guards(tx, {place.lane for place in seen})
    if verb == "retry":
        ids = [place.id for place in seen]
        return await retry_jobs(tx, guards, ids, payload, judge)
    # Waiting ones first: an exchange that holds a lane row may wait for a run row, and
    # never the other way round. (We wait for neither, but others may for those we hold.)
    changes: Changes = {}
    held: dict[bytes, int] = {}
    held |= await leave_lane(tx, seen, SCHEDULED, judge)
    held |= await leave_lane(tx, seen, READY, judge)
    changes |= dict.fromkeys(await end_jobs(tx, guards, held), CANCELLED)
    running = [place.id for place in seen if place.state == RUNNING]
    return changes | await cancel_running(tx, running, judge)


def bounded_changes(guards: Guards, changes: Mapping[str, int]) -> dict[str, int]:
    """Changes of depth in lanes that had a bound when they were locked.

    One that has got a bound since then is counted anew when we are over.
    """
    bounded = {lane for lane, guard in guards.items() if guard.limit is not None}
    return {lane: jobs for lane, jobs in changes.items() if lane in bounded}


# --- cancel


async def leave_lane(
    tx: PostgresTransaction, seen: Sequence[FoundJob], state: int, judge: Judge | None
) -> dict[bytes, int]:
    """Take waiting jobs out of their lanes: whoever gets the row has the job."""
    places = {place.id: place for place in seen if place.state == state}
    if not places:
        return {}
    is_ready = state == READY
    lock = LOCK_READY if is_ready else LOCK_SCHEDULED
    columns = lane_columns(places.values(), is_ready=is_ready)
    held: dict[bytes, int] = dict(await tx.rows(lock, *columns))
    if judge is not None and held:
        meant = await judge(state, held)
        held = {job_id: held[job_id] for job_id in held if job_id in meant}
    if held:
        leave = DELETE_READY if is_ready else DELETE_SCHEDULED
        taken = [places[job_id] for job_id in held]
        await tx.rows(leave, *lane_columns(taken, is_ready=is_ready))
    return held


def lane_columns(
    places: Iterable[FoundJob], *, is_ready: bool
) -> tuple[list[bytes], list[str], list[float | None]]:
    """What leads to lane rows: lane and rank, or lane and due time."""
    ordered = sorted(places)
    return (
        [place.id for place in ordered],
        [place.lane for place in ordered],
        [place.rank if is_ready else place.run_at for place in ordered],
    )


async def end_jobs(
    tx: PostgresTransaction, guards: Guards, held: dict[bytes, int]
) -> list[bytes]:
    """Jobs without a lane are cancelled: each stays as long as it asked."""
    if not held:
        return []
    now, default = await tx.now(), Keep(tx.retention.done_seconds)
    ids, keeps, keys = list[bytes](), list[Keep](), list[tuple[bytes, bytes]]()
    left: Counter[str] = Counter()
    for job_id, lane, opts, key in await tx.rows(LOCK_JOBS, sorted(held)):
        ids.append(job_id)
        keeps.append(retention_of(opts) or default)
        left[lane] -= 1
        if key is not None:
            keys.append((key, job_id))
    await tx.rows(
        CANCEL_WAITING,
        ids,
        [held[job_id] for job_id in ids],
        [now + keep.seconds for keep in keeps],
        [None if keep.count is None else keep.bucket for keep in keeps],
        [keep.count for keep in keeps],
        [keep.count is not None or keep.seconds > 0 for keep in keeps],
        now,
    )
    await change_depths(tx, bounded_changes(guards, left))
    free_at_end(tx, keys)
    return ids


def retention_of(opts: bytes | None) -> Keep | None:
    """The job's own word on how long it stays."""
    try:
        kept = row_options(opts).keep
    except InvalidOption:
        return None  # damaged: as long as any other
    return None if kept is None else Keep(*kept)


async def cancel_running(
    tx: PostgresTransaction, ids: Sequence[bytes], judge: Judge | None
) -> Changes:
    """Running jobs are marked and their workers told."""
    if not ids:
        return {}
    held: dict[bytes, int] = dict(await tx.rows(LOCK_RUNNING, sorted(ids)))
    if judge is not None and held:
        meant = await judge(RUNNING, held)
        held = {job_id: held[job_id] for job_id in held if job_id in meant}
    if held:
        await tx.rows(CANCEL_RUNNING, list(held))
    for worker in held.values():
        tx.wake_worker(worker)
    return dict.fromkeys(held, RUNNING)


# --- retry, discard


async def retry_jobs(
    tx: PostgresTransaction,
    guards: Guards,
    ids: Sequence[bytes],
    payload: bytes | None,
    judge: Judge | None,
) -> Changes:
    """Dead and cancelled jobs begin anew, but for those whose key another one has."""
    rows = await tx.rows(LOCK_FINAL, sorted(ids))
    held: Changes = {row[0]: row[1] for row in rows}
    if judge is not None and held:
        meant: set[bytes] = set()
        for state in CHANGEABLE["retry"]:
            some = [job_id for job_id in held if held[job_id] == state]
            meant |= await judge(state, some) if some else set()
        held = {job_id: held[job_id] for job_id in held if job_id in meant}
    keyed = [row[2:] for row in rows if row[0] in held and row[2] is not None]
    taken = await retake_keys(tx, keyed, payload)
    held = {job_id: held[job_id] for job_id in held if job_id not in taken.held}
    able = [job_id for job_id in held if job_id not in taken.refused]
    if able:
        entered: Counter[str] = Counter()
        for (lane,) in await tx.rows(RETRY_JOBS, able, payload, await tx.now()):
            entered[lane] += 1
            tx.wake(lane)
        await change_depths(tx, bounded_changes(guards, entered))
    return held | dict.fromkeys(able, READY)


async def discard_jobs(
    tx: PostgresTransaction, ids: Sequence[bytes], judge: Judge | None
) -> Changes:
    """The records of dead jobs go, and whatever keys they still held."""
    rows = await tx.rows(LOCK_FINAL, sorted(ids))
    held = {row[0] for row in rows if row[1] == DEAD}
    if judge is not None and held:
        held &= await judge(DEAD, held)
    if held:
        await tx.rows(DISCARD_JOBS, sorted(held))
        keyed = [row for row in rows if row[0] in held and row[2] is not None]
        free_at_end(tx, [(row[2], row[0]) for row in keyed])
    return dict.fromkeys(held, None)
