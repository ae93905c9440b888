"""Accepting jobs: each call is one transaction, and mostly all of them one statement.

Nearly all go in one round trip (at_once.py). The others, into queues with a guard or with a
key that is held, read what they need under locks, decide in memory (admission.py), and
write. The locks are taken in the order that all transactions keep: guarded queues, lane
rows, keys.

**Repeats.** When an answer is lost the caller asks again, and says so. The live row of a
job that is over is gone, so a repeat looks into history as well. What it stores it notes
in `repeated`: should the first try still come, long after, it finds its jobs there, though
they may have run and ended. After its insert each of the two looks once more, by a snapshot
that is younger than its rows: where the other was quicker after all, it begins anew. So a
try may stand still between its first look and its insert for as long as it likes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from durio.model.errors import InvariantBroken, StoreError, StoreUnavailable
from durio.model.job import READY, NewJob
from durio.model.names import namespace_of
from durio.ports.enqueue import Enqueued, Locked
from durio.stores.postgres.admission import Draft, Known, Plan, Stale, Stored
from durio.stores.postgres.at_once import enqueue_at_once, lower_floors
from durio.stores.postgres.bounds import (
    change_depths,
    declare_bounds,
    enter_later,
    lock_guards,
    look_at_guards,
    namespaces_with_workers,
    take_mark,
)
from durio.stores.postgres.desk import AtDesk, Desk
from durio.stores.postgres.keys import (
    Keys,
    free_keys,
    holder_lanes,
    keys_to_stay,
    lock_keys,
    take_keys,
)
from durio.stores.postgres.lines import Patience
from durio.stores.postgres.opening import BRIEF_WAIT
from durio.stores.postgres.sqlstate import LOCKED
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

FIND = statement("enqueue_find")
INSERT = statement("enqueue_insert")
REWRITE = statement("enqueue_rewrite")
DOUBT = statement("enqueue_doubt")
MARK = statement("enqueue_mark")

# How long a first try may be on its way after its repeat: longer than any network keeps
# a connection that it has lost.
REPEATED_SECONDS = 3600.0
# For a key, with a queue locked: whoever has asked for it may be a transaction that lasts.
SHORT_WAIT = f"set local lock_timeout = '{BRIEF_WAIT}'"
TRIES = 10


class PostgresEnqueue(AtDesk):
    """Accepting jobs."""

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        calls: Sequence[int] | None = None,
        again: bool = False,
    ) -> list[Enqueued]:
        """Store all of them, each call whole, and wake whoever serves their lanes."""
        if not jobs:
            return []
        if calls is not None:
            return await enqueue_calls(self.desk, jobs, calls, again=again)
        whole = (len(jobs),)
        answers = None if again else await enqueue_at_once(self.desk, jobs, whole)
        if answers is None:
            return await enqueue_with_care(self.desk, jobs, whole, again=again)
        return await complete(self.desk, jobs, answers)

    async def declare(
        self, maxsizes: Mapping[str, int | None], *, is_default: bool = False
    ) -> None:
        """Bounds of lanes as the code says; nothing is written where nothing is new."""
        await declare_bounds(self.desk, maxsizes, is_default=is_default)


async def complete(
    desk: Desk, jobs: Sequence[NewJob], answers: Sequence[Enqueued | None]
) -> list[Enqueued]:
    """Jobs that were left out, because somebody holds their key, are judged now."""
    left = left_out(jobs, answers)
    if not left:
        return filled(answers, [])
    try:
        late = await enqueue_with_care(desk, left, [1] * len(left), again=False)
    except StoreError as error:
        # The others are stored: whoever asks again finds them.
        error.unknown = error.unknown or len(left) < len(jobs)
        raise
    return filled(answers, late)


def left_out(
    jobs: Sequence[NewJob], answers: Sequence[Enqueued | None]
) -> list[NewJob]:
    """Those without an answer."""
    return [job for job, told in zip(jobs, answers, strict=True) if told is None]


def filled(
    answers: Sequence[Enqueued | None], late: Sequence[Enqueued]
) -> list[Enqueued]:
    """All answers, with those that came later in their places."""
    more = iter(late)
    return [next(more) if told is None else told for told in answers]


# --- for several callers


async def enqueue_calls(
    desk: Desk, jobs: Sequence[NewJob], calls: Sequence[int], *, again: bool
) -> list[Enqueued]:
    """None waits for what another one needs: that is answered `locked`."""
    if sum(calls) != len(jobs):
        raise InvariantBroken(f"calls of {sum(calls)} jobs, but {len(jobs)} jobs")
    patience = desk.local.locks.patience(jobs)
    try:
        answers = await enqueue_together(desk, jobs, calls, patience, again=again)
    except StoreError as error:
        if not is_locked(error):
            raise
        return await enqueue_apart(desk, jobs, calls, error, again=again)
    told = zip(jobs, answers, strict=True)
    desk.local.locks.free(job for job, answer in told if answer.locked is None)
    return answers


async def enqueue_together(
    desk: Desk,
    jobs: Sequence[NewJob],
    calls: Sequence[int],
    patience: Patience,
    *,
    again: bool,
) -> list[Enqueued]:
    """All of them; if the error is that something is locked, none is stored."""
    answers = None
    if not again:
        answers = await enqueue_at_once(desk, jobs, calls, patience)
    if answers is None:
        return await enqueue_with_care(desk, jobs, calls, patience, again=again)
    left = left_out(jobs, answers)
    if not left:
        return filled(answers, [])
    each = [1] * len(left)
    try:
        late = await enqueue_with_care(desk, left, each, patience, again=False)
    except StoreError as error:
        if not is_locked(error):
            error.unknown = error.unknown or len(left) < len(jobs)
            raise
        late = all_locked(desk, left, error)
    return filled(answers, late)


async def enqueue_apart(
    desk: Desk,
    jobs: Sequence[NewJob],
    calls: Sequence[int],
    error: StoreError,
    *,
    again: bool,
) -> list[Enqueued]:
    """Something is locked: a key, if anybody has one. The others need not wait for it."""
    is_plain: list[bool] = []
    sizes: list[int] = []
    for size in calls:
        plain = all(job.key is None for job in jobs[len(is_plain) :][:size])
        is_plain += [plain] * size
        sizes += [size] if plain else []
    plain_jobs = [job for job, plain in zip(jobs, is_plain, strict=True) if plain]
    if not plain_jobs or len(sizes) == len(calls):
        return all_locked(desk, jobs, error)
    keyed_jobs = [job for job, plain in zip(jobs, is_plain, strict=True) if not plain]
    locked = iter(all_locked(desk, keyed_jobs, error))
    stored = iter(await enqueue_calls(desk, plain_jobs, sizes, again=again))
    return [next(stored if plain else locked) for plain in is_plain]


def all_locked(desk: Desk, jobs: Sequence[NewJob], error: StoreError) -> list[Enqueued]:
    """Nothing of these is stored; they may be asked for again."""
    desk.local.locks.met(jobs)
    locked = Locked(error, desk.place.call_seconds)
    return [Enqueued(job.id, False, READY, locked=locked) for job in jobs]


def is_locked(error: StoreError) -> bool:
    """Whether others stood in the way, and nothing else."""
    return isinstance(error, Changing) or error.values.get("state") == LOCKED


class Changing(StoreUnavailable):
    """Somebody else came in between each time."""


# --- with care


async def enqueue_with_care(
    desk: Desk,
    jobs: Sequence[NewJob],
    calls: Sequence[int],
    patience: Patience = Patience.LONG,
    *,
    again: bool,
) -> list[Enqueued]:
    """Lock, read, decide, write; from the beginning when somebody came in between."""
    for _ in range(TRIES):
        try:
            return await desk.lines.write(
                lambda tx: enqueue_jobs(desk, tx, jobs, calls, again=again),
                patience=patience,
            )
        except Stale:
            continue
    raise Changing(
        f"{len(jobs)} jobs could not be stored: others changed the same jobs and keys "
        f"under each of {TRIES} tries",
        cure="Try again.",
    )


async def enqueue_jobs(
    desk: Desk,
    tx: Transaction,
    jobs: Sequence[NewJob],
    calls: Sequence[int],
    *,
    again: bool,
) -> list[Enqueued]:
    """The same inside a transaction; raises Stale where that has to begin anew."""
    stay = keys_to_stay(jobs, is_users=desk.is_users)
    lanes = {job.lane for job in jobs} | await holder_lanes(tx, stay)
    guards = await (look_at_guards if desk.is_users else lock_guards)(tx, lanes)
    desk.guarded_lanes |= guards.keys()  # no more than a hint which way is quicker
    now = await tx.now()
    if guards and not desk.is_users and any(job.key is not None for job in jobs):
        await tx.run(SHORT_WAIT)
    keys = await lock_keys(tx, jobs, stay, now)
    marked = {namespace_of(lane) for lane, guard in guards.items() if guard.soft_limit}
    led = await namespaces_with_workers(tx, marked, desk.local.lease_time.now())
    known = Known(
        now=now,
        guards=guards,
        locked_lanes=frozenset(lanes),
        led=frozenset(led),
        stored=await find(tx, jobs, keys, again=again),
        held=keys.held,
        locked_jobs=keys.locked,
    )
    plan = Plan(known, is_users=desk.is_users, is_frozen=desk.is_frozen)
    answers = plan.enqueue(jobs, calls)
    await write(desk, tx, plan, keys, again=again)
    return answers


async def find(
    tx: Transaction, jobs: Sequence[NewJob], keys: Keys, *, again: bool
) -> dict[bytes, Stored]:
    """Which of these jobs are stored already, and where the holders of their keys are."""
    deep = {job.id: again for job in jobs}
    deep |= dict.fromkeys((hold.id for hold in keys.held.values()), True)
    rows = await tx.rows(FIND, list(deep), list(deep.values()))
    return {job_id: Stored(*others) for job_id, *others in rows}


async def write(
    desk: Desk, tx: Transaction, plan: Plan, keys: Keys, *, again: bool
) -> None:
    """What was decided."""
    drafts = plan.drafts.values()
    new = [draft for draft in drafts if draft.is_new]
    old = [draft for draft in drafts if not draft.is_new]
    now = plan.known.now
    new_lanes = sorted({draft.lane for draft in drafts} - desk.known_lanes)
    if desk.is_users:
        await enter_later(tx, plan.entered)
    else:
        await change_depths(tx, plan.entered)
        await take_mark(tx, *plan.stale_marks)
    if old:
        await rewrite(tx, old, keys, now, new_lanes)
    if new:
        *columns, _made = columns_of(new)
        if await tx.value(INSERT, *columns, now, new_lanes) != len(new):
            raise Stale
        ids = [draft.id for draft in new]
        if await tx.rows(DOUBT, ids, again):
            raise Stale
        if again:
            await tx.rows(MARK, ids, now + REPEATED_SECONDS)
    await settle_keys(tx, plan, keys)
    for draft in drafts:
        tx.ring(draft.lane)
    tx.after_commit.append(lambda: desk.known_lanes.update(new_lanes))
    tx.after_commit.append(lambda: lower_floors(desk, drafts))


async def rewrite(
    tx: Transaction, old: list[Draft], keys: Keys, now: float, new_lanes: list[str]
) -> None:
    """Holders of keys, as this enqueue leaves them."""
    if not keys.locked.issuperset(draft.id for draft in old):
        raise Stale  # a key has changed hands: keys come after lane rows, not before
    *columns, _key, modes, _made = columns_of(old)
    if await tx.value(REWRITE, *columns, modes, now, new_lanes) != len(old):
        raise Stale


def columns_of(drafts: Iterable[Draft]) -> list[list[Any]]:
    """Drafts as the arrays of a statement; what only we know of them is left out."""
    _is_new, _state, *columns = zip(*drafts, strict=True)
    return [list(column) for column in columns]


async def settle_keys(tx: Transaction, plan: Plan, keys: Keys) -> None:
    """Holds as they are in the end; a key that was locked for nothing is free again."""
    news = {k: hold for k, hold in plan.holds.items() if keys.taken.get(k) != hold}
    await take_keys(tx, news)
    unused = [(k, hold.id) for k, hold in keys.taken.items() if k not in plan.holds]
    await free_keys(tx, unused)
