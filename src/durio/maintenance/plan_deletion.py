"""Delete plans past their retention, and give records of nodes their own retention."""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from durio.maintenance.plan_resumed import FailPlans, look_at_resumed
from durio.model.effects import Effects, Put
from durio.model.errors import InvalidPlan
from durio.model.ids import id_bytes, id_text
from durio.model.plan_kept import kept_log, retentions
from durio.model.plan_record import (
    PlanHolder,
    PlanState,
    load_record,
    plan_key_kind,
    plan_kind,
)
from durio.ports.control import CancelJobs, DiscardJobs
from durio.ports.plan_reader import StoredPlan, change_records, find_plan
from durio.ports.plan_sweep import cancel_plans, steps
from durio.ports.store import Store

STEP_LOGS, STEP_RECORDS = 1000, 1000  # in one transaction
ENTRIES_MAX = 1000  # per read
PLANS_MAX = 200  # deleted by one call
NEEDED_LOOK_SECONDS = 86400.0  # until the next look at a plan inside one that runs


async def handle_due_plans(store: Store, namespace: str, fail: FailPlans) -> bool:
    """Delete plans past their retention; return whether there may be more.

    A plan that is being cancelled goes on, and one that never became whole is deleted
    with its jobs.
    One that was resumed and not retried fails again, by `fail`.
    """
    kind = plan_kind(namespace)
    due, _, now = await store.due_records(kind, limit=PLANS_MAX)
    plans: list[StoredPlan] = []
    for record in due:
        try:
            plan = await find_plan(store, namespace, id_bytes(record.name))
        except InvalidPlan:  # its logs are deleted already, or it is damaged
            gone = Put(kind, record.name, None, if_version=record.version)
            await store.commit(Effects(puts=[gone]))
            continue
        if plan is None or plan.version != record.version:
            continue  # the cancel of a plan around it has reached it
        if plan.record.state is PlanState.CANCELLING:
            await cancel_plans(store, namespace, plan.id)
            continue
        if plan.record.state is PlanState.RUNNING and plan.record.is_whole:
            await look_at_resumed(store, plan, fail)
            continue
        if plan.record.state is PlanState.RUNNING:
            plans += await without_jobs(store, plan)
        else:
            plans.append(plan)
    await delete_plans(store, namespace, await without_needed(store, plans, now))
    return len(due) == PLANS_MAX


async def without_jobs(store: Store, plan: StoredPlan) -> list[StoredPlan]:
    """Delete the jobs of a plan that was not stored completely; none of them has started.

    The mark comes first: the commit that would let the plan start is refused after it.
    Return the plan, or nothing if a job or the record was changed meanwhile.
    """
    found = await marked(store, [plan])
    ids = plan.ids(range(plan.record.nodes)) if found else []
    left = 0
    for some in steps(ids):
        await store.act(some, CancelJobs("plan_not_whole", is_quiet=True))
        acted = await store.act(some, DiscardJobs(with_cancelled=True))
        left += sum(job.after is not None for job in acted)
    return [] if left else found  # locked by another transaction: it is still due


async def without_needed(
    store: Store, plans: Sequence[StoredPlan], now: float
) -> list[StoredPlan]:
    """Return the plans that no plan around them needs; the others are due later.

    A long result of a plan in the place of a job is read by what follows that job, also
    after a retry. So it is kept as long as the plan around it.
    """
    found: list[StoredPlan] = []
    for plan in plans:
        until = await needed_until(store, plan, now)
        if until <= now:
            found.append(plan)
        else:
            await store.commit(Effects(puts=[plan.put()._replace(due_at=until)]))
    return found


async def needed_until(store: Store, plan: StoredPlan, now: float) -> float:
    """Return until when the plan is kept for the plan around it."""
    replaces = plan.record.replaces
    if replaces is None or replaces.plan is None or not plan.record.is_whole:
        return now
    for record in await store.records(plan_kind(plan.namespace), [replaces.plan]):
        with suppress(InvalidPlan):  # damaged: nothing can need it
            if not load_record(record.body).state.is_final:
                return now + NEEDED_LOOK_SECONDS
            return record.due_at or now
    return now


async def delete_plans(
    store: Store, namespace: str, plans: Sequence[StoredPlan]
) -> None:
    plans = await marked(store, plans)
    await release_kept(store, namespace, [plan.id for plan in plans])
    logs = [log for plan in plans for log in plan.logs()]
    for at in range(0, len(logs), STEP_LOGS):
        await store.drop_logs(logs[at : at + STEP_LOGS])
    changes = [await change_records(store, namespace, plan.id) for plan in plans]
    records = [record for some in changes for record in some]
    for at in range(0, len(records), STEP_RECORDS):
        some = records[at : at + STEP_RECORDS]
        puts = [Put(each.kind, each.name, None) for each in some]
        await store.commit(Effects(puts=puts))
    await delete_keys(store, namespace, plans)
    kind = plan_kind(namespace)
    gone = [Put(kind, id_text(p.id), None, if_version=p.version) for p in plans]
    if gone and (await store.commit(Effects(puts=gone))).conflict is not None:
        for put in gone:  # one of them was retried meanwhile
            await store.commit(Effects(puts=[put]))


async def marked(store: Store, plans: Sequence[StoredPlan]) -> list[StoredPlan]:
    """Mark plans as not whole, so that nobody retries them; return those.

    After a crash they are still due, and deleted then.
    """
    puts = [plan.put(is_whole=False)._replace(due_at=plan.due_at) for plan in plans]
    if not puts:
        return []
    answer = await store.commit(Effects(puts=puts))
    if answer.conflict is None:
        pairs = zip(plans, answer.versions, strict=True)
        return [plan._replace(version=version) for plan, version in pairs]
    if len(plans) == 1:
        return []  # it was retried meanwhile
    return [each for plan in plans for each in await marked(store, [plan])]


async def delete_keys(
    store: Store, namespace: str, plans: Sequence[StoredPlan]
) -> None:
    """Delete the keys that these plans have."""
    kind, keys = plan_key_kind(namespace), [p.record.key for p in plans if p.record.key]
    if not keys:
        return
    ids = {id_text(plan.id) for plan in plans}
    for record in await store.records(kind, keys):
        if msgspec.json.decode(record.body, type=PlanHolder).plan in ids:
            put = Put(kind, record.name, None, if_version=record.version)
            await store.commit(Effects(puts=[put]))


async def release_kept(store: Store, namespace: str, plans: Sequence[bytes]) -> None:
    """Give records that these plans needed the retention of their tasks."""
    logs = [kept_log(namespace, plan) for plan in plans]
    for log, length in (await store.log_lengths(logs)).items():
        for start in range(0, length, ENTRIES_MAX):
            entries = await store.read_log(log, start, limit=ENTRIES_MAX)
            found = retentions((entry.uid, entry.body) for entry in entries)
            for keep, ids in found.items():
                await store.keep_done(ids, keep)
