"""Plan ids as people type them: whole, or the first 8 digits or more."""

from collections.abc import Sequence

from durio.app.app import App
from durio.app.cures import with_flags
from durio.cli.apps import AppSelection
from durio.cli.job_ids import CANDIDATES_MAX, id_digits
from durio.client.namespaces import apps_in
from durio.client.plan_list import plans_that_begin
from durio.model.errors import PlanNotFound, UsageError
from durio.model.ids import DIGITS, id_bytes, id_text
from durio.model.names import namespace_of
from durio.model.plan_payload import plan_place_of
from durio.ports.plan_reader import StoredPlan, find_whole_plan


class InvalidPlanId(UsageError):
    """The text is neither a plan id nor the beginning of one."""

    code = "invalid_plan_id"


class AmbiguousPlanId(UsageError):
    """Several plan ids begin with the text."""

    code = "ambiguous_plan_id"


async def plan_by_id(app: App, text: str, selection: AppSelection) -> StoredPlan:
    """Return a stored plan; raise PlanNotFound, AmbiguousPlanId or InvalidPlanId."""
    digits = id_digits(text, "plan", InvalidPlanId)
    store, scope = await app.store(), selection.scope(app)
    names = await apps_in(store) if scope is None else [scope]
    found: list[tuple[str, str]] = []
    for namespace in names:
        limit = CANDIDATES_MAX + 1
        some = await plans_that_begin(store, namespace, digits, limit)
        found += [(namespace, plan_id) for plan_id in some]
    if len(found) > 1:
        raise ambiguous(text, [plan_id for _, plan_id in found])
    for namespace, plan_id in found:
        plan = await find_whole_plan(store, namespace, id_bytes(plan_id))
        if plan is not None:
            return plan
    raise await not_a_plan(app, text, digits, scope)


def ambiguous(text: str, ids: Sequence[str]) -> AmbiguousPlanId:
    number = f"{len(ids)}" if len(ids) <= CANDIDATES_MAX else "more than 5"
    shown = sorted(ids, reverse=True)[:CANDIDATES_MAX]
    return AmbiguousPlanId(
        f"{number} plan ids begin with {text!r}",
        cure="\n".join(["Give more digits:", *shown]),
        ids=shown,
    )


async def not_a_plan(
    app: App, text: str, digits: str, scope: str | None
) -> PlanNotFound:
    """Return the error for an id that no plan has; the id may be that of a job."""
    whose = "" if scope is None else f" in App {scope}"
    cure = with_flags("See: durio plans ls", app)
    cure += "\nPlans past their retention are gone."
    if len(digits) == DIGITS:
        job_id = bytes.fromhex(digits)
        for job in await (await app.store()).get([job_id]):
            place = plan_place_of(job.opts)
            what = f"Job {id_text(job_id)} of App {namespace_of(job.lane)} has that id"
            if place is not None:
                cure = f"{what}.\nIt is of plan {place.plan}."
            else:
                cure = f"{what}, and it is of no plan."
    return PlanNotFound(f"there is no plan {text}{whose}", cure=cure, id=text)
