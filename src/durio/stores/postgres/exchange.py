"""Record outcomes and claim jobs in one transaction.

A worker has one such call in flight at a time.

If all outcomes are done and no job is due, the call is one statement and one round trip:
`exchange` in exchange.sql, or `claim_idle` when an idle worker is woken. Otherwise it is
several statements in one transaction, in this order: record the outcomes, promote due jobs
in these lanes, claim lane by lane, append to logs. The *split* form always uses several
statements, for servers on which the one statement does not work.

A job whose wait ends in an exchange is not claimed by it: `more` says that it can be.

A worker whose lease has expired still records outcomes, fenced, but claims nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf

from durio.model.job import Claim
from durio.model.outcome import Outcome
from durio.ports.exchange import Exchanged, Lane, Rejected
from durio.stores.postgres.admission import StaleRead
from durio.stores.postgres.claims import (
    ClaimRequest,
    ClaimResult,
    in_lane_order,
    parse_claims,
)
from durio.stores.postgres.context import PostgresCapability, PostgresContext
from durio.stores.postgres.effects import lock_for_effects
from durio.stores.postgres.ended_waits import NOTHING_ENDED, WaitsEnded
from durio.stores.postgres.enqueue_locked import TRIES, ChangedConcurrently
from durio.stores.postgres.exit import (
    are_done,
    are_plain,
    by_fence,
    done_columns,
    id_of,
    lock_bounded,
)
from durio.stores.postgres.finish import (
    PostgresRecordedOutcomes,
    classify_refused,
    record_outcomes,
)
from durio.stores.postgres.gates import enter_gates, start_jobs
from durio.stores.postgres.keys import free_at_end
from durio.stores.postgres.logs import after_ended_waits, write_entries
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction
from durio.stores.postgres.watermarks import ONE_LANE_RANGES, ClaimRanges

EXCHANGE = statement("exchange")
CLAIM_IDLE = statement("claim_idle")
CLAIM = statement("claim_jobs")
PROMOTE_LANES = statement("promote_lane")
READ_HELD_CLAIMS = statement("read_held_claims")

PROMOTED_MAX = 1000  # per lane and call
BOUNDED_SECONDS = 60.0  # for which a queue with a bound is remembered
HELD_SECONDS = 0.2  # until the next scan for a due job that is locked

NO_OUTCOMES = PostgresRecordedOutcomes([], [], [])


class PostgresExchange(PostgresCapability):
    async def exchange(
        self,
        worker: int,
        outcomes: Sequence[Outcome],
        lanes: Sequence[Lane],
        want: int,
        *,
        known: Sequence[str] | None = None,
        resync: bool = False,
    ) -> Exchanged:
        context = self.context
        if not outcomes and not lanes and not resync:
            return Exchanged([], [], [], more=False, next_due_seconds=None)
        useful = [lane for lane in lanes if lane.limit > 0] if want > 0 else []
        asked = ClaimRequest(
            worker,
            useful,
            max(want, 0),
            None if known is None else list(known),
        )
        names = list(dict.fromkeys(lane.name for lane in lanes))
        ages = dict(zip(names, context.process.due_watermarks.ages(names), strict=True))
        answered: Exchanged | None = None
        if not resync and not context.process.is_split and are_plain(outcomes):
            now = context.clock.monotonic()
            held = context.process.held_lanes
            due = [name for name in names if held.get(name, now) <= now]
            ages_due = [ages[name] for name in due]
            answered = await exchange_fast(context, outcomes, asked, due, ages_due)
            if answered is not None and len(due) < len(names):
                next_due = min(answered.next_due_seconds or HELD_SECONDS, HELD_SECONDS)
                answered = answered._replace(next_due_seconds=next_due)
        if answered is None:
            answered = await exchange_with_retries(
                context, outcomes, asked, ages, resync=resync
            )
        if answered.claims:
            context.wakeups.on_claims(worker)
        return answered


async def exchange_fast(
    context: PostgresContext,
    outcomes: Sequence[Outcome],
    asked: ClaimRequest,
    due: Sequence[str],
    ages: Sequence[float],
) -> Exchanged | None:
    """Use one statement; return None if a job is due in `due`, and nothing was written."""
    done = by_fence(outcomes)
    look = context.process.watermarks.next_ranges(asked.lanes)
    began = context.clock.monotonic()
    answer: ClaimResult | None = None
    if not done and is_idle_claim(context, asked, look, due, ages):
        answer = await claim_idle(context, asked)
    if answer is None:
        rows = await context.connections.write_one(
            EXCHANGE,
            *done_columns(done),
            asked.worker,
            context.retention.done_seconds,
            context.connections.now,
            *asked.columns,
            context.process.lease_time.now(),
            *look.columns,
            due,
            ages,
        )
        answer = parse_claims(rows)
    context.process.due_watermarks.record_scan(ages, answer.due_scan_seconds or 0.0)
    if not answer.has_done:
        return None
    update_watermarks(context, asked, look, answer)
    context.process.due_watermarks.record_empty(due, began)
    if answer.ended.places:
        after_ended_waits(context, answer.ended, asked.worker, asked.names)
    refused = [done[place - 1] for place in answer.refused]
    rejected: list[Rejected] = []
    if refused:
        read = context.connections.read
        rejected = await classify_refused(read, asked.worker, refused, outcomes)
    return exchange_result(
        answer, asked, PostgresRecordedOutcomes(rejected, [], []), []
    )


def is_idle_claim(
    context: PostgresContext,
    asked: ClaimRequest,
    look: ClaimRanges,
    due: Sequence[str],
    ages: Sequence[float],
) -> bool:
    """Whether one lane is scanned as a whole, for ready jobs and for due ones."""
    if look is not ONE_LANE_RANGES or asked.known is not None:
        return False
    (lane,) = asked.lanes
    bounded_until = context.process.bounded_lanes.get(lane.name, -inf)
    return (
        list(due) == [lane.name]
        and list(ages) == [inf]
        and bounded_until <= context.clock.monotonic()
    )


async def claim_idle(
    context: PostgresContext, asked: ClaimRequest
) -> ClaimResult | None:
    """Claim from one lane by the short statement; None if the queue has a bound."""
    (lane,) = asked.lanes
    rows = await context.connections.write_one(
        CLAIM_IDLE,
        asked.worker,
        lane.name,
        min(lane.limit, asked.want),
        context.connections.now,
        context.process.lease_time.now(),
    )
    answer = parse_claims(rows)
    if answer.has_done is None:
        until = context.clock.monotonic() + BOUNDED_SECONDS
        context.process.bounded_lanes[lane.name] = until
        return None
    return answer


async def exchange_with_retries(
    context: PostgresContext,
    outcomes: Sequence[Outcome],
    asked: ClaimRequest,
    since: Mapping[str, float],
    *,
    resync: bool,
) -> Exchanged:
    """Use several statements; start again if another transaction changed what was read."""
    for _ in range(TRIES):
        try:
            return await context.connections.write(
                lambda tx: exchange_by_statements(
                    tx, context, outcomes, asked, since, resync=resync
                )
            )
        except StaleRead:
            continue
    raise ChangedConcurrently(
        f"an exchange failed {TRIES} times: other transactions changed the same jobs, "
        "keys or records each time",
        cure="Try again.",
    )


async def lock_queues(
    tx: PostgresTransaction, outcomes: Sequence[Outcome], lanes: Sequence[str]
) -> None:
    """Lock the queues that these outcomes, their effects or claims may change."""
    effects = [outcome.effects for outcome in outcomes if outcome.effects is not None]
    ids = [] if are_done(outcomes) else list(map(id_of, outcomes))
    if effects:
        await lock_for_effects(tx, effects, ids, lanes)
    else:
        await lock_bounded(tx, ids, lanes)


async def exchange_by_statements(
    tx: PostgresTransaction,
    context: PostgresContext,
    outcomes: Sequence[Outcome],
    asked: ClaimRequest,
    since: Mapping[str, float],
    *,
    resync: bool,
) -> Exchanged:
    """Run each step as a statement of its own, with a newer snapshot than the step before.

    `since` gives for each lane how many seconds ago a job to promote may have become due.
    """
    names, ages = list(since), list(since.values())
    await lock_queues(tx, outcomes, names)
    recorded = NO_OUTCOMES
    if outcomes:
        recorded = await record_outcomes(tx, context, asked.worker, outcomes)
    for place in recorded.ready_again:
        lower_watermark(tx, context, *place)
    before = await claimed_before(tx, asked.worker) if resync else []
    if not names:
        ended = await write_entries(tx, context)
        return Exchanged(
            before,
            recorded.rejected,
            recorded.cancelled,
            more=False,
            next_due_seconds=None,
            settle_in_seconds=ended.settle_in_seconds,
        )
    began = context.clock.monotonic()
    full = await promote_lanes(tx, context, names, ages, asked.worker)
    await enter_gates(tx)
    look = context.process.watermarks.next_ranges(asked.lanes)
    rows = await tx.rows(
        CLAIM,
        asked.worker,
        *asked.columns,
        tx.injected,
        context.process.lease_time.now(),
        *look.columns,
        names,
        ages,
    )
    answer, (keys, holders, starting, left) = parse_claims(rows), rows[0][-4:]
    tx.after_commit.append(lambda: update_watermarks(context, asked, look, answer))
    # Due jobs that are left are locked by other transactions, perhaps for some time.
    held = set(left) - full
    if held and not full:
        answer = answer._replace(next_due_seconds=HELD_SECONDS)
    swept = set(names) - full - held
    tx.after_commit.append(lambda: record_due_scan(context, held, swept, began))
    free_at_end(tx, list(zip(keys, holders, strict=True)))
    await start_jobs(tx, starting)
    ended = await write_entries(tx, context, worker=asked.worker, lanes=asked.names)
    return exchange_result(answer._replace(ended=ended), asked, recorded, before)


def update_watermarks(
    context: PostgresContext,
    asked: ClaimRequest,
    look: ClaimRanges,
    answer: ClaimResult,
) -> None:
    """Remember how far this scan came, for the next one."""
    seconds = answer.claim_scan_seconds or 0.0
    watermarks = context.process.watermarks
    claims = answer.by_place() if watermarks.by_lane else answer.claims
    watermarks.learn(look, asked.lanes, asked.want, claims, seconds)


def record_due_scan(
    context: PostgresContext, held: set[str], swept: set[str], began: float
) -> None:
    """Remember lanes in which a due job is locked, and lanes without due jobs."""
    now = context.clock.monotonic()
    lanes = context.process.held_lanes
    if held or lanes:
        still = {lane: until for lane, until in lanes.items() if until > now}
        context.process.held_lanes = still | dict.fromkeys(held, now + HELD_SECONDS)
    context.process.due_watermarks.record_empty(swept, began)


async def claimed_before(tx: PostgresTransaction, worker: int) -> list[Claim]:
    """Return all jobs that run under this worker; the reply that contained them was lost."""
    return [Claim(*row) for row in await tx.rows(READ_HELD_CLAIMS, worker)]


async def promote_lanes(
    tx: PostgresTransaction,
    context: PostgresContext,
    names: Sequence[str],
    ages: Sequence[float],
    worker: int,
) -> set[str]:
    """Make due jobs ready and wake other workers; return lanes that may have more."""
    if not names:
        return set()
    jobs: Counter[str] = Counter()
    rows = await tx.rows(
        PROMOTE_LANES, list(names), tx.injected, PROMOTED_MAX, list(ages)
    )
    for lane, rank, lowest, count, entering in rows:
        tx.gates.entering += entering or ()
        tx.wake(lane, except_worker=worker)
        lower_watermark(tx, context, lane, rank, lowest)
        jobs[lane] += count
    return {lane for lane, count in jobs.items() if count >= PROMOTED_MAX}


def lower_watermark(
    tx: PostgresTransaction,
    context: PostgresContext,
    lane: str,
    rank: int,
    job_id: bytes,
) -> None:
    """Lower the watermark now, and again when other transactions see the job."""
    lower = partial(context.process.watermarks.lower, lane, rank, job_id)
    lower()
    tx.after_commit.append(lower)


# --- results


def exchange_result(
    answer: ClaimResult,
    asked: ClaimRequest,
    recorded: PostgresRecordedOutcomes,
    before: list[Claim],
) -> Exchanged:
    """Put claims in lane order, and report whether a lane may have more."""
    claims, more = in_lane_order(answer.claims, asked.lanes, asked.want)
    ended = answer.ended
    return Exchanged(
        [*before, *claims] if before else claims,
        recorded.rejected,
        recorded.cancelled,
        more or has_freed_jobs(ended, asked),
        answer.next_due_seconds,
        None if ended is NOTHING_ENDED else ended.settle_in_seconds,
    )


def has_freed_jobs(ended: WaitsEnded, asked: ClaimRequest) -> bool:
    """Whether this call has ended waits of jobs in the lanes that it claims from."""
    return any(place.lane in asked.names for place in ended.places)
