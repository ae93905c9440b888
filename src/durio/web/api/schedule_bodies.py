"""What the API takes to create, change and preview a schedule."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, cast

from pydantic import Field

from durio.client.link_places import places_of_link
from durio.client.schedule_link import edited_link, task_link
from durio.client.task_by_name import published_tasks
from durio.model.errors import InvalidArguments, InvalidSchedule, UsageError
from durio.model.options import NO_OPTIONS
from durio.model.plan import AnyLink, PlanValue
from durio.model.schedule import ScheduleRecord
from durio.model.schedule_checks import aware
from durio.web.api.schedule_items import may_see
from durio.web.api.shapes import Body
from durio.web.call import WebCall
from durio.web.problems import Refusal
from durio.web.strict_json import parse_json

RULES = ("cron", "every", "at")
PLAIN = ("cron", "every", "tz", "exclude", "overlap", "catchup", "catchup_window")
COUNTS = ("catchup_max", "jitter", "max_runs", "pause_on_failure", "fixed_delay")
TIMES = ("at", "start", "end")
OF_JOBS = ("queue", "priority")
LINKED = ("task", "args_json", "kwargs_json", *OF_JOBS)


class RuleBody(Body):
    cron: str | None = None
    every: str | float | None = None  # such as `5m`, or seconds
    at: str | None = None  # once, at this time
    tz: str | None = None
    start: str | None = None
    end: str | None = None
    exclude: list[str] | None = None  # dates without ticks
    fixed_delay: bool | None = None


class ScheduleChoices(RuleBody):
    task: str | None = None
    args_json: str | None = None  # a JSON array
    kwargs_json: str | None = None  # a JSON object
    plan_json: str | None = None  # in place of a task: as `plan.to_dict()` gives it
    queue: str | None = None
    priority: int | None = None
    overlap: str | None = None
    catchup: str | None = None
    catchup_window: str | float | None = None
    catchup_max: int | None = None
    jitter: str | float | None = None
    max_runs: int | None = None
    pause_on_failure: bool | None = None


class NewSchedule(ScheduleChoices):
    name: str


class ChangedSchedule(ScheduleChoices):
    version: int = Field(description="the version that was read")


def choices_of(body: RuleBody) -> dict[str, Any]:
    """Return the choices that a body gives, as `app.schedules.create` takes them."""
    given = body.model_dump(include=body.model_fields_set)
    chosen = {name: given[name] for name in (*PLAIN, *COUNTS) if name in given}
    chosen |= {name: moment_of(name, given[name]) for name in TIMES if name in given}
    # Null takes a bound away; of another choice it means that nothing is said.
    bounds = {"start", "end", "max_runs"}
    return {k: v for k, v in chosen.items() if v is not None or k in bounds}


def moment_of(name: str, text: str | None) -> datetime | None:
    """Return an ISO time with a zone."""
    moment: datetime | None = None
    if text is None:
        return None
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
    if moment is None or moment.tzinfo is None:
        why = "cannot be read" if moment is None else "has no time zone"
        raise UsageError(
            f"{name}: {text!r:.60} {why}",
            cure="Write 2030-01-31T09:00:00Z, or +01:00 in place of Z.",
        )
    aware(name, moment)  # refuses years that no schedule has
    return moment


def parsed(text: str, name: str, kind: type[Any]) -> Any:
    value = parse_json(text, name)
    if not isinstance(value, kind):
        wanted = "an array" if kind is list else "an object"
        raise InvalidArguments(f"{name} is not {wanted}", cure="Send such JSON.")
    return value


def new_link(call: WebCall, body: ScheduleChoices) -> AnyLink:
    """Return what a new schedule runs."""
    if (body.task is None) == (body.plan_json is None):
        both = body.task is not None
        raise InvalidSchedule(
            "task and plan_json are both given" if both else "no task is given",
            cure='Give one: {"task": "clean_up"}, or a plan as JSON.',
        )
    if body.plan_json is not None:
        return plan_link(body, body.plan_json)
    options = NO_OPTIONS.with_changes(options_of(body))
    return task_link(call.app, body.task or "", *arguments_of(body), options)


def changed_link(
    call: WebCall, body: ScheduleChoices, stored: ScheduleRecord
) -> AnyLink | None:
    """Return what a changed schedule runs; None: the same."""
    if body.plan_json is not None:
        return plan_link(body, body.plan_json)
    if not any(name in body.model_fields_set for name in LINKED):
        return None
    has_arguments = body.args_json is not None or body.kwargs_json is not None
    given = arguments_of(body) if has_arguments else None
    return edited_link(call.app, stored, body.task, given, options_of(body))


def plan_link(body: ScheduleChoices, text: str) -> PlanValue:
    given = [name for name in LINKED if getattr(body, name) is not None]
    if given:
        raise InvalidSchedule(
            f"plan_json and {given[0]} are both given",
            cure="A plan has its own tasks, arguments and options: write them in it.",
        )
    return PlanValue.from_dict(parsed(text, "plan_json", dict))


def arguments_of(body: ScheduleChoices) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = parsed(body.args_json or "[]", "args_json", list)
    kwargs: dict[str, Any] = parsed(body.kwargs_json or "{}", "kwargs_json", dict)
    return args, kwargs


def options_of(body: ScheduleChoices) -> dict[str, Any]:
    given = {name: getattr(body, name) for name in OF_JOBS}
    return {name: value for name, value in given.items() if value is not None}


async def check_places(call: WebCall, link: AnyLink | None) -> None:
    """Refuse tasks and queues that the user may not use."""
    if link is None or call.sees_all:
        return
    document = cast("Mapping[str, Any]", link.to_dict())
    published = await published_tasks(await call.store(), call.app.name) or {}
    if not may_see(call, places_of_link(document, published)):
        raise Refusal(
            403,
            "not_yours",
            "the schedule would make jobs in a queue or of a task that you may not use",
            "Ask an admin of all queues.",
        )
