"""Read and change the records of plans: cancel and retry."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from durio.client.plan_key import other_holder
from durio.model.effects import Effects, Put
from durio.model.errors import PlanNotFound, WrongState
from durio.model.ids import id_bytes, id_text
from durio.model.job import CANCELLED, DEAD, RUNNING
from durio.model.plan_failure import dependents, fails_plan, followers
from durio.model.plan_payload import plan_place_of
from durio.model.plan_record import (
    PlanHolder,
    PlanState,
    plan_key_kind,
    plan_kind,
)
from durio.ports.clock import Clock
from durio.ports.conflicts import EffectsRefused
from durio.ports.control import AuditNote, RetryJobs
from durio.ports.plan_reader import StoredPlan, find_plan, find_whole_plan
from durio.ports.plan_sweep import (
    RESUMED_LOOK_SECONDS,
    STEP_JOBS,
    cancel_plans,
    current_state,
    failed_nodes,
    nodes_with,
    overtaken,
    states_of,
    steps,
)
from durio.ports.records import store_time
from durio.ports.store import Store

# How long a retry waits for the leader, which handles a failure.
FAILING_SECONDS_MAX, FAILING_LOOK_SECONDS = 10.0, 0.1


async def stored_plan(store: Store, namespace: str, plan_id: bytes) -> StoredPlan:
    """Return a plan; raises PlanNotFound."""
    plan = await find_whole_plan(store, namespace, plan_id)
    if plan is None:
        error = plan_not_found(plan_id)
        for job in await store.get([plan_id]):
            place = plan_place_of(job.opts)
            error.cure = "A job has that id: app.job(id). It is of " + (
                "no plan." if place is None else f"plan {place.plan}."
            )
        raise error
    return plan


def plan_not_found(plan_id: bytes) -> PlanNotFound:
    return PlanNotFound(
        f"there is no plan {id_text(plan_id)}",
        cure="It was never stored here, its transaction is not committed yet, or "
        "retention has removed it.",
        id=id_text(plan_id),
    )


def missing_nodes(
    plan: StoredPlan, states: Mapping[int, int], retried: Collection[int]
) -> set[int]:
    """Return nodes that would follow these, and that retention has deleted."""
    needed = {*followers(plan.layout, retried), len(plan.layout.nodes) - 1}
    return {number for number in needed if number not in states}


async def cancel_plan(
    store: Store, namespace: str, plan_id: bytes, by: str, details: str = ""
) -> PlanState:
    """Cancel all nodes that have not ended; return the state of the plan after it.

    Raises WrongState for a plan whose value another plan waits for.
    """
    replaces = (await stored_plan(store, namespace, plan_id)).record.replaces
    if replaces is not None and replaces.plan is not None:
        outer = await find_plan(store, namespace, id_bytes(replaces.plan))
        if outer is not None and not (await current_state(store, outer)).is_final:
            raise WrongState(
                f"plan {id_text(plan_id)} cannot be cancelled alone: it is in the place "
                f"of a job of plan {replaces.plan}, which waits for its value",
                cure=f"Cancel plan {replaces.plan}, or single jobs of this one: then both "
                "plans fail.",
                state=outer.record.state,
            )
    target = f"plan {id_text(plan_id)}"
    note = AuditNote(namespace, by, "cancel", target, details=details)
    state = await cancel_plans(store, namespace, plan_id, note)
    if state is None:
        raise plan_not_found(plan_id)
    return state


async def resume_after(
    store: Store,
    plan: StoredPlan,
    retried: Collection[int],
    by: str,
    retrying: Collection[bytes] = (),
) -> int:
    """Resume a failed plan from these failed nodes, and the plan around it.

    What was cancelled because of them waits again, unless another failed node is before
    it. The nodes are not retried here. Return how many other failed nodes there are that
    keep the plan failed; jobs that the caller is `retrying` are none. A plan that runs was
    resumed before, and not to the end.
    """
    states = await states_of(store, plan)
    failed = await failed_nodes(store, plan, states)
    failed |= {n for n, _ in await replacements(store, plan, RETRIED)}
    failed |= await ending_nodes(store, plan, states)
    failed.difference_update(retried)
    others = {n for n in failed if plan.ids([n])[0] not in retrying}
    lost = {n for other in others for n in dependents(plan.layout, other)}
    meant = {n for node in retried for n in dependents(plan.layout, node)} - lost
    ids = plan.ids(sorted(n for n in meant if states.get(n) == CANCELLED))[::-1]
    left = sum(fails_plan(plan.layout, other) for other in others)
    is_resumed = plan.record.state is PlanState.FAILED and not left
    if is_resumed:
        await resume_around(store, plan, by, retrying)
    await resume(store, plan, ids, by, is_resumed=is_resumed)
    return left


async def resume_around(
    store: Store,
    plan: StoredPlan,
    by: str,
    retrying: Collection[bytes] = (),
) -> None:
    """Resume the plan of the job whose place this plan has taken, if it has failed."""
    replaces = plan.record.replaces
    if replaces is None or replaces.plan is None:
        return
    outer = await find_whole_plan(store, plan.namespace, id_bytes(replaces.plan))
    if outer is not None and outer.record.state is PlanState.FAILED:
        await resume_after(store, outer, [replaces.node], by, retrying)


async def replacements(
    store: Store, plan: StoredPlan, states: Collection[PlanState]
) -> list[tuple[int, StoredPlan]]:
    """Return the plans in places of nodes that are in these states, by number."""
    found: list[tuple[int, StoredPlan]] = []
    for number, inner_id in plan.replacing.items():
        inner = await find_whole_plan(store, plan.namespace, inner_id)
        if inner is not None and inner.record.state in states:
            found.append((number, inner))
    return found


async def ending_nodes(
    store: Store, plan: StoredPlan, states: Mapping[int, int]
) -> set[int]:
    """Return the nodes that are being cancelled: they would end in a resumed plan."""
    running = [n for n, state in states.items() if state == RUNNING]
    asked = await nodes_with(store, plan, running, lambda job: job.cancel_asked)
    return asked | {n for n, _ in await replacements(store, plan, ENDING)}


RETRIED = (PlanState.FAILED, PlanState.CANCELLED)
ENDING = (PlanState.FAILING, PlanState.CANCELLING)
RESUMED: dict[str, Any] = {
    "state": PlanState.RUNNING,
    "failure": None,
    "ended_at": None,
}


async def retry_plan(
    store: Store,
    namespace: str,
    plan_id: bytes,
    clock: Clock,
    by: str,
    details: str = "",
) -> int:
    """Resume a failed or cancelled plan; return how many nodes run again.

    While the leader cancels what depends on a failed node, wait for it. Raises WrongState
    after that, and for a plan in another state.
    """
    deadline = clock.monotonic() + FAILING_SECONDS_MAX
    while True:
        try:
            return await retry_now(store, namespace, plan_id, by, details)
        except WrongState as error:
            is_late = clock.monotonic() >= deadline
            if error.values.get("state") is not PlanState.FAILING or is_late:
                raise
        await clock.sleep(FAILING_LOOK_SECONDS)


async def retry_now(
    store: Store, namespace: str, plan_id: bytes, by: str, details: str = ""
) -> int:
    """Resume a failed or cancelled plan; return how many nodes run again.

    What was cancelled because of a failed node waits again first, then the failed nodes
    become ready. After a crash in between the leader marks it as failed again. Plans in
    places of nodes are resumed first, so that this one stays failed until all of them are. A
    failure that a group has collected stays: its entry is in the log of the group.
    """
    plan = await stored_plan(store, namespace, plan_id)
    if not plan.record.is_whole:
        raise plan_not_found(plan_id)  # it is being deleted
    state, states = await current_state(store, plan), await states_of(store, plan)
    if await is_about_to_fail(store, plan, state, states):
        state = PlanState.FAILING
    if state not in RETRIED:
        raise WrongState(
            f"plan {id_text(plan_id)} is {state.value} and cannot be retried",
            cure="Try again when its running jobs have ended."
            if state is PlanState.CANCELLING
            else "Only failed and cancelled plans can be retried.",
            state=state,
        )
    failure = plan.record.failure
    if failure is not None and failure.job is None:
        (failed,) = plan.ids([failure.node])
        # A dead letter that was imported again has no place in its plan.
        if not any(plan_place_of(job.opts) for job in await store.get([failed])):
            raise WrongState(
                f"plan {id_text(plan_id)} cannot go on: job {id_text(failed)}, which "
                "failed, was deleted",
                cure="Enqueue the plan again.",
                state=state,
            )
    if missing_nodes(plan, states, await retried_nodes(store, plan, states)):
        raise WrongState(
            f"plan {id_text(plan_id)} cannot go on: retention has deleted jobs of it",
            cure="Enqueue it again, and keep jobs longer: retention.done_seconds.",
            state=state,
        )
    plans = await plans_to_resume(store, plan)
    await retaken_key(store, plan)  # raises before anything is changed
    await resume_around(store, plan, by)
    jobs = 0
    for each in reversed(plans):
        ids = each.ids(await retried_nodes(store, each, await states_of(store, each)))
        await resume(store, each, ids, by, details=details)
        jobs += len(ids)
    return jobs


async def is_about_to_fail(
    store: Store, plan: StoredPlan, state: PlanState, states: Mapping[int, int]
) -> bool:
    """Whether a job has failed, and the leader has not handled it yet.

    `state` may be that of the plan in the place of the last job.
    """
    if plan.record.state is not PlanState.RUNNING or state is PlanState.DONE:
        return False
    if state is not PlanState.RUNNING:
        return True
    failed = await failed_nodes(store, plan, states)
    return any(fails_plan(plan.layout, number) for number in failed)


async def plans_to_resume(store: Store, plan: StoredPlan) -> list[StoredPlan]:
    """Return the plan, and those in places of its nodes that have ended badly, too.

    A plan comes before those inside it. Raises WrongState while jobs are being cancelled.
    """
    found = [plan]
    for each in found:
        if await ending_nodes(store, each, await states_of(store, each)):
            raise WrongState(
                f"jobs of plan {id_text(plan.id)} are being cancelled",
                cure="Try again when they have ended.",
                state=PlanState.FAILING,
            )
        found += [inner for _, inner in await replacements(store, each, RETRIED)]
    return found


async def retried_nodes(
    store: Store, plan: StoredPlan, states: Mapping[int, int]
) -> list[int]:
    """Return the nodes that run again with their plan, the cancelled ones first."""
    dead = [n for n, state in states.items() if state == DEAD]
    cancelled = [n for n, state in states.items() if state == CANCELLED]
    failed = await failed_nodes(store, plan, states)
    collected = {n for n in failed if not fails_plan(plan.layout, n)}
    collected |= {n for each in collected for n in dependents(plan.layout, each)}
    return [n for n in [*cancelled[::-1], *dead] if n not in collected]


async def resume(
    store: Store,
    plan: StoredPlan,
    ids: Sequence[bytes],
    by: str,
    *,
    is_resumed: bool = True,
    details: str = "",
) -> None:
    """Retry these nodes of a plan, which runs again if `is_resumed`.

    If a node cannot be retried, the plan is put back as it was; raises WrongState.
    """
    action, refused = RetryJobs(), list[bytes]()
    target = f"plan {id_text(plan.id)}"
    note = AuditNote(plan.namespace, by, "retry", target, details=details)
    effects: Effects | None = None
    if is_resumed:
        put = plan.put(**RESUMED, resumed=plan.record.resumed + 1)
        now = await store_time(store, plan_kind(plan.namespace))
        seconds = RESUMED_LOOK_SECONDS + len(ids) / STEP_JOBS  # a step takes under 1 s
        put = put._replace(due_at=now + seconds)
        effects = Effects(puts=[put, *await retaken_key(store, plan)])
    for some in list(steps(ids)) or ([[]] if is_resumed else []):
        try:
            acted = await store.act(some, action, note=note, effects=effects)
        except EffectsRefused:
            raise overtaken(plan.id) from None
        effects = None
        refused += [a.id for a in acted if not a.is_changed_by(action)]
    if refused:
        found = await find_whole_plan(store, plan.namespace, plan.id)
        if found is not None and is_resumed:
            before = plan.record
            put = found.put(
                state=before.state, failure=before.failure, ended_at=before.ended_at
            )
            await store.commit(Effects(puts=[put._replace(due_at=plan.due_at)]))
        raise WrongState(
            f"plan {id_text(plan.id)} cannot go on: job {id_text(refused[0])} was not "
            "retried, because another job has its key, or a transaction holds it",
            cure="Wait until that job has ended, or cancel it; then retry the plan again.",
            state=plan.record.state,
        )


async def retaken_key(store: Store, plan: StoredPlan) -> list[Put]:
    """Return the write by which a plan takes its key again; raises WrongState.

    A plan with `while_active` may have lost it when it ended. The end of a window does not
    depend on the plan.
    """
    record, own = plan.record, PlanHolder(id_text(plan.id), "")
    if record.key is None or record.key_until > record.created_at:
        return []
    kind, version = plan_key_kind(plan.namespace), 0
    for found in await store.records(kind, [record.key]):
        version = found.version
        holder = msgspec.json.decode(found.body, type=PlanHolder)
        own = holder if holder.plan == own.plan else own
    if (other := await other_holder(store, plan)) is not None:
        raise WrongState(
            f"plan {own.plan} cannot go on: plan {other} has its key",
            cure="Wait until that plan has ended, or cancel it; then retry again.",
            state=record.state,
        )
    return [Put(kind, record.key, msgspec.json.encode(own), if_version=version)]
