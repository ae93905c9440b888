"""The jobs and plans that ticks have made: which have ended, and how to cancel them."""

from collections.abc import Collection, Sequence

from durio.model.errors import InvalidPlan
from durio.model.ids import id_bytes, id_text
from durio.model.job import CANCELLED, DEAD, DONE, STATE_BY_CODE
from durio.model.plan_record import PlanState, load_record, plan_kind
from durio.model.schedule import TickRun
from durio.model.schedule_tick import Ended
from durio.ports.control import CancelJobs
from durio.ports.plan_sweep import cancel_plans
from durio.ports.store import Store

READ_MAX = 500  # jobs in one read
FINAL_STATES = (DONE, DEAD, CANCELLED)


async def ended_runs(
    store: Store, namespace: str, runs: Collection[TickRun], now: float
) -> dict[str, Ended]:
    """Return the runs that have ended, by id; one that is not stored has ended."""
    jobs = [run.id for run in runs if not run.is_plan]
    plans = [run.id for run in runs if run.is_plan]
    ended = {run.id: Ended(now) for run in runs}
    for at in range(0, len(jobs), READ_MAX):
        for job in await store.get(
            [id_bytes(text) for text in jobs[at : at + READ_MAX]]
        ):
            name = id_text(job.id)
            if job.state in FINAL_STATES:
                at_end, state = job.finished_at or now, STATE_BY_CODE[job.state]
                ended[name] = Ended(at_end, job.state == DEAD, state.value)
            else:
                del ended[name]
    for at in range(0, len(plans), READ_MAX):
        some = plans[at : at + READ_MAX]
        for record in await store.records(plan_kind(namespace), some):
            try:
                plan = load_record(record.body)
            except InvalidPlan:
                continue  # it counts as ended
            if plan.state.is_final:
                failed = plan.state is PlanState.FAILED
                at_end = plan.ended_at or now
                ended[record.name] = Ended(at_end, failed, plan.state.value)
            else:
                del ended[record.name]
    return ended


async def cancel_runs(store: Store, namespace: str, runs: Sequence[TickRun]) -> None:
    """Cancel the runs before a tick, by `overlap="cancel_previous"`."""
    jobs = [id_bytes(run.id) for run in runs if not run.is_plan]
    if jobs:
        await store.act(jobs, CancelJobs("next_tick"))
    for run in runs:
        if run.is_plan:
            await cancel_plans(store, namespace, id_bytes(run.id))
