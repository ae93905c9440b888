"""List plans, newest first, and find them by the beginning of an id.

Records are listed in the order of their names. The name of a plan is its id, which begins
with the time: so plans are read in spans of time, from the newest to the oldest.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import NamedTuple

from durio.model.errors import InvalidPlan
from durio.model.ids import DIGITS, id_bytes, id_made_at, id_text, uuid7
from durio.model.job import DONE
from durio.model.plan_change import replacing_plan
from durio.model.plan_names import node_id
from durio.model.plan_record import PlanRecord, PlanState, load_record, plan_kind
from durio.ports.records import BEYOND_ALL_NAMES, Record
from durio.ports.store import Store

PAGE_RECORDS = 200
FIRST_SPAN_SECONDS = 10.0
SPAN_FACTOR = 4  # each span is so much longer than the newer one
SPAN_SECONDS_MIN = 0.01  # a shorter span is not divided
LOOKED_AT_MAX = 5_000  # records, for one page


class ListedPlan(NamedTuple):
    """A plan in a list."""

    id: str
    namespace: str
    state: PlanState | None  # None: its record is damaged
    record: PlanRecord | None

    @property
    def is_inner(self) -> bool:
        """Whether it is in the place of a job of another plan, and moves with that one."""
        replaces = None if self.record is None else self.record.replaces
        return replaces is not None and replaces.plan is not None


async def list_plans(
    store: Store,
    namespace: str,
    *,
    states: Collection[PlanState] = (),
    with_inner: bool = False,
    before: str = BEYOND_ALL_NAMES,
    limit: int,
    now: float,
) -> list[ListedPlan]:
    """Return plans, newest first; `before`: only those with a lower id.

    A plan in the place of a job of another plan is left out, unless `with_inner`.
    """
    found: list[ListedPlan] = []
    async for records in newest_first(store, plan_kind(namespace), before, now):
        plans = await with_states(store, namespace, records)
        found += [
            plan
            for plan in plans
            if (not states or plan.state in states)
            and (with_inner or not plan.is_inner)
        ]
        if len(found) >= limit:
            break
    return found[:limit]


class PlanPage(NamedTuple):
    """Some plans, newest first."""

    plans: list[ListedPlan]
    before: str | None  # the next page has plans with lower ids; None: this is the last
    is_partial: bool = False  # the look ended before the page was full


async def page_of_plans(
    store: Store,
    namespace: str,
    *,
    states: Collection[PlanState] = (),
    before: str = BEYOND_ALL_NAMES,
    limit: int,
    now: float,
) -> PlanPage:
    """Return a page of plans that stand alone, after a bounded number of records."""
    found: list[ListedPlan] = []
    looked_at = 0
    async for records in newest_first(store, plan_kind(namespace), before, now):
        found += [
            plan
            for plan in await with_states(store, namespace, records)
            if (not states or plan.state in states) and not plan.is_inner
        ]
        if len(found) > limit:
            return PlanPage(found[:limit], found[limit - 1].id)
        looked_at += len(records)
        if records and looked_at >= LOOKED_AT_MAX:
            return PlanPage(found, records[-1].name, is_partial=True)
    return PlanPage(found, None)


async def newest_first(
    store: Store, kind: str, before: str, now: float
) -> AsyncIterator[list[Record]]:
    """Yield the records of spans of time, each in descending order.

    A span with more than a page of records is divided, so that a caller who needs few does
    not read many.
    """
    span = FIRST_SPAN_SECONDS
    newest = now if before == BEYOND_ALL_NAMES else id_made_at(id_bytes(before))
    while before:
        since = newest - span
        after = "" if since <= 0 else id_text(uuid7(int(since * 1000), 0, 0))
        page = await store.list_records(kind, after=after, limit=PAGE_RECORDS)
        is_full = len(page) == PAGE_RECORDS and page[-1].name < before
        if is_full and span > SPAN_SECONDS_MIN and since > 0:
            span /= SPAN_FACTOR**2
            continue
        if is_full:
            yield await records_between(store, kind, after, before)
        else:
            yield [record for record in page if record.name < before][::-1]
        before, newest = after, since
        span *= SPAN_FACTOR


async def records_between(
    store: Store, kind: str, after: str, before: str
) -> list[Record]:
    found: list[Record] = []
    while True:
        page = await store.list_records(kind, after=after, limit=PAGE_RECORDS)
        found += [record for record in page if record.name < before]
        if len(page) < PAGE_RECORDS or page[-1].name >= before:
            return found[::-1]
        after = page[-1].name


async def with_states(
    store: Store, namespace: str, records: Sequence[Record]
) -> list[ListedPlan]:
    """Return plans with their states; the leader marks a plan as done after its end."""
    plans = [listed_plan(record, namespace) for record in records]
    last = {
        plan.id: node_id(id_bytes(plan.id), plan.record.nodes - 1)
        for plan in plans
        if plan.record is not None and plan.state is PlanState.RUNNING
    }
    ids, codes = list(last.values()), dict[bytes, int]()
    for at in range(0, len(ids), PAGE_RECORDS):
        codes |= await store.states(ids[at : at + PAGE_RECORDS])
    ended = [job_id for job_id in ids if codes.get(job_id) == DONE]
    replaced: set[bytes] = set()  # by a plan, which may still run
    for at in range(0, len(ended), PAGE_RECORDS):
        jobs = await store.get(ended[at : at + PAGE_RECORDS])
        replaced |= {job.id for job in jobs if replacing_plan(job.result) is not None}
    values = {*ended} - replaced
    done = {plan_id for plan_id, job_id in last.items() if job_id in values}
    return [
        plan._replace(state=PlanState.DONE) if plan.id in done else plan
        for plan in plans
    ]


def listed_plan(record: Record, namespace: str) -> ListedPlan:
    """Return a plan; a damaged record must not hide the others."""
    try:
        body = load_record(record.body)
    except InvalidPlan:
        return ListedPlan(record.name, namespace, None, None)
    return ListedPlan(record.name, namespace, body.state, body)


async def plans_that_begin(
    store: Store, namespace: str, digits: str, limit: int
) -> list[str]:
    """Return the ids of plans that begin with these hex digits."""
    whole = id_text(bytes.fromhex(digits.ljust(DIGITS, "0")))
    dashes = sum(len(digits) > place for place in (8, 12, 16, 20))
    prefix = whole[: len(digits) + dashes]
    found = await store.list_records(plan_kind(namespace), prefix=prefix, limit=limit)
    return [record.name for record in found]
