"""`admin/plans`: lists of plans, and one plan as a tree and a picture."""

from typing import Annotated

from fastapi import APIRouter, Query

from durio.client.plan_actions import (
    cancel_plan,
    plan_not_found,
    retry_plan,
    stored_plan,
)
from durio.client.plan_list import page_of_plans
from durio.client.plan_view import check_not_over
from durio.model.errors import JobNotFound, PlanNotFound
from durio.model.ids import id_bytes
from durio.model.plan_record import PlanState
from durio.ports.plan_reader import StoredPlan
from durio.ports.records import BEYOND_ALL_NAMES
from durio.web.api.cursors import continued, cursor_of
from durio.web.api.plan_items import (
    PlanItem,
    PlanView,
    plan_items,
    plan_view,
    sees_all_jobs,
)
from durio.web.api.shapes import (
    LIMIT_DEFAULT,
    Answer,
    Cursor,
    Items,
    Limit,
    NoChoices,
)
from durio.web.call import WebCall
from durio.web.problems import Refusal
from durio.web.roles import Viewer, may

router = APIRouter(tags=["plans"])


class PlanAnswer(Answer):
    status: str
    state: PlanState
    jobs: int | None  # that run again


@router.get("/plans")
async def list_plans(
    call: Viewer,
    state: Annotated[
        str | None, Query(max_length=100, description="such as failed,failing")
    ] = None,
    limit: Limit = LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Items[PlanItem]:
    """Return plans, newest first, without those in the place of a job of another plan."""
    states, named = wanted_states(state), f"plans state={state}"
    page = await page_of_plans(
        await call.store(),
        call.app.name,
        states=states,
        before=continued(named, cursor) or BEYOND_ALL_NAMES,
        limit=limit,
        now=call.app.now(),
    )
    items = await plan_items(call, page.plans)
    return Items(
        items=items, cursor=cursor_of(named, page.before), partial=page.is_partial
    )


@router.get("/plans/{plan_id}")
async def show_plan(call: Viewer, plan_id: str) -> PlanView:
    """Return one plan with its tree, and where its jobs stand in a picture."""
    return await plan_view(call, await known_plan(call, plan_id))


@router.post("/plans/{plan_id}/cancel")
async def cancel_one(
    call: Annotated[WebCall, may("cancel_plan")], plan_id: str, body: NoChoices
) -> PlanAnswer:
    """Cancel the jobs that have not ended; running ones are asked to stop."""
    _ = body
    plan, store = await known_plan(call, plan_id), await call.store()
    before = await check_not_over(store, plan)
    details = call.note(before={"state": before.value}).details
    state = await cancel_plan(store, plan.namespace, plan.id, call.by, details)
    is_ending = state is PlanState.CANCELLING
    return PlanAnswer(
        status="cancelling" if is_ending else "cancelled", state=state, jobs=None
    )


@router.post("/plans/{plan_id}/retry")
async def retry_one(
    call: Annotated[WebCall, may("retry_plan")], plan_id: str, body: NoChoices
) -> PlanAnswer:
    """Run the dead and cancelled jobs again; those that are done are not."""
    _ = body
    plan, store = await known_plan(call, plan_id), await call.store()
    details = call.note(before={"state": plan.record.state.value}).details
    jobs = await retry_plan(
        store, plan.namespace, plan.id, call.app.clock, call.by, details
    )
    return PlanAnswer(status="retrying", state=PlanState.RUNNING, jobs=jobs)


def wanted_states(text: str | None) -> list[PlanState]:
    try:
        return [PlanState(each) for each in text.split(",")] if text else []
    except ValueError:
        known = ", ".join(state.value for state in PlanState)
        raise Refusal(
            400, "unknown_state", f"no plan is {text!r:.100}", f"States: {known}."
        ) from None


async def known_plan(call: WebCall, plan_id: str) -> StoredPlan:
    """Return a plan that the user may see; raises PlanNotFound."""
    try:
        raw = id_bytes(plan_id)
    except JobNotFound:
        raise PlanNotFound(
            f"there is no plan {plan_id!r:.60}",
            cure="Give a whole id.",
            id=plan_id[:60],
        ) from None
    plan = await stored_plan(await call.store(), call.app.name, raw)
    if not await sees_all_jobs(call, plan):
        raise plan_not_found(raw)
    return plan
