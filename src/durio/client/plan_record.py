"""Read and change the records of plans: cancel and retry."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from durio.model.effects import Effects
from durio.model.errors import PlanNotFound, WrongState
from durio.model.ids import id_text
from durio.model.job import CANCELLED, DEAD, DONE
from durio.model.plan_failure import dependents
from durio.model.plan_record import PlanState
from durio.ports.conflicts import EffectsRefused
from durio.ports.control import AuditNote, CancelJobs, RetryJobs
from durio.ports.plan_reader import StoredPlan, find_plan
from durio.ports.store import Store

STEP_JOBS = 1000  # in one transaction
STATES_MAX = 500  # jobs whose states one read returns
TRIES_MAX = 20  # of a change that another one has overtaken


async def stored_plan(store: Store, namespace: str, plan_id: bytes) -> StoredPlan:
    """Return a plan; raises PlanNotFound."""
    plan = await find_plan(store, namespace, plan_id)
    if plan is None:
        raise PlanNotFound(
            f"there is no plan {id_text(plan_id)}",
            cure="It was never stored here, or retention has removed it.",
            id=id_text(plan_id),
        )
    return plan


async def current_state(store: Store, plan: StoredPlan) -> PlanState:
    """Return the state; the leader marks a plan as done a moment after its end."""
    state = plan.record.state
    if state is not PlanState.RUNNING:
        return state
    last = await store.states([plan.last_id])
    return PlanState.DONE if last.get(plan.last_id) == DONE else state


async def states_of(store: Store, plan: StoredPlan) -> list[int | None]:
    """Return the state of each node, by number; None: its record is gone."""
    ids = plan.ids(range(len(plan.layout.nodes)))
    found: dict[bytes, int] = {}
    for at in range(0, len(ids), STATES_MAX):
        found |= await store.states(ids[at : at + STATES_MAX])
    return [found.get(job_id) for job_id in ids]


def steps(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for at in range(0, len(ids), STEP_JOBS):
        yield ids[at : at + STEP_JOBS]


async def cancel_plan(
    store: Store, namespace: str, plan_id: bytes, now: Callable[[], float], by: str
) -> PlanState:
    """Cancel all nodes that have not ended; return the state of the plan after it."""
    for _ in range(TRIES_MAX):
        plan = await stored_plan(store, namespace, plan_id)
        state = await current_state(store, plan)
        if state.is_final:
            return state
        begins = Effects(puts=[plan.put(state=PlanState.CANCELLING)])
        if (await store.commit(begins)).conflict is None:
            break
    else:
        raise overtaken(plan_id)
    # The last nodes first, so that none of them starts meanwhile.
    ids = plan.ids(range(len(plan.layout.nodes)))[::-1]
    note = AuditNote(namespace, by, "cancel", f"plan {id_text(plan_id)}")
    action = CancelJobs("plan_cancelled", is_quiet=True)
    for some in steps(ids):
        await store.act(some, action, note=note)
    plan = await stored_plan(store, namespace, plan_id)
    if plan.record.state is PlanState.CANCELLING:
        ends = plan.put(state=PlanState.CANCELLED, ended_at=now())
        await store.commit(Effects(puts=[ends]))
    return PlanState.CANCELLED


async def retry_node(
    store: Store, namespace: str, plan_id: bytes, job_id: bytes, by: str
) -> bool:
    """Resume a failed plan from one dead node; False if its plan is gone.

    What was cancelled because of the node waits again, unless another dead node is before
    it. The node itself is not retried here.
    """
    plan = await find_plan(store, namespace, plan_id)
    if plan is None or plan.record.state is not PlanState.FAILED:
        return False
    states = await states_of(store, plan)
    number = plan.ids(range(len(states))).index(job_id)
    others = [n for n, code in enumerate(states) if code == DEAD and n != number]
    lost = {n for other in others for n in dependents(plan.layout, other)}
    meant = [n for n in dependents(plan.layout, number) if n not in lost]
    ids = plan.ids([n for n in meant if states[n] == CANCELLED])[::-1]
    put = plan.put(**RESUMED, resumed=plan.record.resumed + 1)
    note = AuditNote(namespace, by, "retry", f"plan {id_text(plan_id)}")
    for n, some in enumerate(steps(ids) if ids else [[]]):
        effects = None if n else Effects(puts=[put])
        try:
            await store.act(some, RetryJobs(), note=note, effects=effects)
        except EffectsRefused:
            raise overtaken(plan_id) from None
    return True


RESUMED: dict[str, Any] = {
    "state": PlanState.RUNNING,
    "failure": None,
    "ended_at": None,
}


async def retry_plan(store: Store, namespace: str, plan_id: bytes, by: str) -> int:
    """Resume a failed or cancelled plan; return how many nodes run again.

    What was cancelled because of a failed node waits again first, then the failed nodes
    become ready. After a crash in between a failed node is still there: retry again.
    """
    plan = await stored_plan(store, namespace, plan_id)
    state = await current_state(store, plan)
    if state not in (PlanState.FAILED, PlanState.CANCELLED):
        raise WrongState(
            f"plan {id_text(plan_id)} is {state.value} and cannot be retried",
            cure="Only failed and cancelled plans can be retried.",
            state=state,
        )
    resumed = plan.record.resumed + 1
    puts = [plan.put(**RESUMED, resumed=resumed)]
    states = await states_of(store, plan)
    cancelled = [n for n, code in enumerate(states) if code == CANCELLED]
    dead = [n for n, code in enumerate(states) if code == DEAD]
    ids = [*plan.ids(cancelled)[::-1], *plan.ids(dead)]
    note = AuditNote(namespace, by, "retry", f"plan {id_text(plan_id)}")
    effects: Effects | None = Effects(puts=puts)
    for some in steps(ids):
        try:
            await store.act(some, RetryJobs(), note=note, effects=effects)
        except EffectsRefused:
            raise overtaken(plan_id) from None
        effects = None
    if effects is not None and (await store.commit(effects)).conflict is not None:
        raise overtaken(plan_id)
    return len(ids)


def overtaken(plan_id: bytes) -> WrongState:
    return WrongState(
        f"plan {id_text(plan_id)} was changed at the same time",
        cure="Look at its state, and try again.",
        state=None,
    )
