"""Cancel a plan in steps that may be repeated: the client begins, the leader goes on.

A plan is `cancelling` until all its jobs have ended, because a running job may still put a
plan in its place, and until such plans have ended, because a retry resumes them too. Its
record is due meanwhile, so the leader looks at it again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from durio.model.effects import Effects
from durio.model.errors import WrongState
from durio.model.ids import id_text
from durio.model.job import CANCELLED, DEAD, DONE, StoredJob
from durio.model.plan_change import replacing_plan
from durio.model.plan_failure import has_failed
from durio.model.plan_record import KEPT_SECONDS, PlanState, plan_kind
from durio.ports.control import AuditNote, CancelJobs
from durio.ports.plan_reader import StoredPlan, find_whole_plan
from durio.ports.records import store_time
from durio.ports.store import Store

STEP_JOBS = 1000  # in one transaction
STATES_MAX = 500  # jobs whose states one read returns
TRIES_MAX = 20  # of a change that another one has overtaken
LOOK_SECONDS = 1.0  # until the leader looks again at a plan that is being cancelled
RESUMED_LOOK_SECONDS = 30.0  # until it looks whether a resumed plan goes on
READ_JOBS_MAX = 200


async def states_of(store: Store, plan: StoredPlan) -> dict[int, int]:
    """Return the state of each node by number, without those whose job is deleted."""
    numbers = plan.numbers
    ids = plan.ids(numbers)
    found: dict[bytes, int] = {}
    for some in steps(ids, STATES_MAX):
        found |= await store.states(some)
    pairs = zip(numbers, ids, strict=True)
    return {number: found[job_id] for number, job_id in pairs if job_id in found}


def steps(ids: Sequence[bytes], size: int = STEP_JOBS) -> Iterator[Sequence[bytes]]:
    for at in range(0, len(ids), size):
        yield ids[at : at + size]


async def failed_nodes(
    store: Store, plan: StoredPlan, states: Mapping[int, int]
) -> set[int]:
    """Return the nodes that are dead, or were cancelled for themselves."""
    dead = {n for n, state in states.items() if state == DEAD}
    cancelled = [n for n, state in states.items() if state == CANCELLED]
    return dead | await nodes_with(store, plan, cancelled, has_failed)


async def nodes_with(
    store: Store,
    plan: StoredPlan,
    numbers: Sequence[int],
    is_meant: Callable[[StoredJob], bool],
) -> set[int]:
    """Return those of these nodes for whose jobs something holds."""
    number_of = dict(zip(plan.ids(numbers), numbers, strict=True))
    found: set[int] = set()
    for some in steps(list(number_of), READ_JOBS_MAX):
        jobs = await store.get(some)
        found |= {number_of[job.id] for job in jobs if is_meant(job)}
    return found


async def current_state(store: Store, plan: StoredPlan) -> PlanState:
    """Return the state; the leader marks a plan as done a moment after its end."""
    state = plan.record.state
    if state is not PlanState.RUNNING:
        return state
    last = await store.states([plan.last_id])
    if last.get(plan.last_id) != DONE:
        return state
    jobs = await store.get([plan.last_id])
    inner_id = replacing_plan(jobs[0].result) if jobs else None
    if inner_id is None:
        return PlanState.DONE
    inner = await find_whole_plan(store, plan.namespace, inner_id)
    return state if inner is None else await current_state(store, inner)


async def cancel_plans(
    store: Store,
    namespace: str,
    plan_id: bytes,
    note: AuditNote | None = None,
) -> PlanState | None:
    """Cancel a plan, and plans that took places of its nodes; return its state after it.

    None: there is no such plan. Plans that have ended keep their state.
    """
    now = await store_time(store, plan_kind(namespace))
    states: dict[bytes, PlanState | None] = {}  # after it, by plan
    begun: list[StoredPlan] = []
    waiting = [plan_id]
    while waiting:
        current = waiting.pop()
        plan = await _begin(store, namespace, current, now)
        if isinstance(plan, StoredPlan):
            begun.append(await _cancel_nodes(store, plan, note))
            waiting += begun[-1].replacing.values()
        else:
            states[current] = plan
    # Plans in places of nodes come later, and end first.
    for plan in reversed(begun):
        states[plan.id] = await _end(store, plan, states, now)
    return states[plan_id]


async def _begin(
    store: Store, namespace: str, plan_id: bytes, now: float
) -> StoredPlan | PlanState | None:
    """Mark the plan as `cancelling` and return it, or its state if it has ended.

    A failed plan is returned as it is: other members of its groups may still run.
    """
    for _ in range(TRIES_MAX):
        plan = await find_whole_plan(store, namespace, plan_id)
        if plan is None:
            return None
        state = await current_state(store, plan)
        if state is PlanState.FAILED:
            return plan  # it stays failed; members that go on are cancelled
        if state.is_final:
            return state
        put = plan.put(state=PlanState.CANCELLING)
        due = put._replace(due_at=now + LOOK_SECONDS)
        answer = await store.commit(Effects(puts=[due]))
        if answer.conflict is None:
            return plan.in_state(PlanState.CANCELLING)._replace(
                version=answer.versions[0]
            )
    raise overtaken(plan_id)


def overtaken(plan_id: bytes) -> WrongState:
    return WrongState(
        f"plan {id_text(plan_id)} was changed at the same time",
        cure="Look at its state, and try again.",
        state=None,
    )


async def _cancel_nodes(
    store: Store, plan: StoredPlan, note: AuditNote | None
) -> StoredPlan:
    """Cancel all nodes that have not ended; return the plan as it is then."""
    # The last nodes first, so that none of them starts meanwhile.
    ids = plan.ids(plan.numbers)[::-1]
    action = CancelJobs("plan_cancelled", is_quiet=True)
    for some in steps(ids):
        await store.act(some, action, note=note)
    return await find_whole_plan(store, plan.namespace, plan.id) or plan


async def _end(
    store: Store,
    plan: StoredPlan,
    inner: Mapping[bytes, PlanState | None],
    now: float,
) -> PlanState:
    """End the plan if all its nodes have, and all plans in places of nodes (`inner`)."""
    nodes = await states_of(store, plan)
    if any(state < DONE for state in nodes.values()):
        return plan.record.state
    # No node runs any more: these are all plans in places of nodes.
    again = await find_whole_plan(store, plan.namespace, plan.id) or plan
    state = again.record.state
    if state is not PlanState.CANCELLING or again.numbers != plan.numbers:
        return state
    ends = [inner.get(each, state) for each in again.replacing.values()]
    if any(end is not None and not end.is_final for end in ends):
        return state
    last = len(again.layout.nodes) - 1
    is_done = nodes.get(last) == DONE
    if last in again.replacing:
        is_done = inner[again.replacing[last]] is PlanState.DONE
    # A plan that ran to its end in spite of the cancel has its value.
    state = PlanState.DONE if is_done else PlanState.CANCELLED
    put = again.put(state=state, ended_at=now)
    due_at = plan.record.kept_until(now + KEPT_SECONDS)
    await store.commit(Effects(puts=[put._replace(due_at=due_at)]))
    return state
