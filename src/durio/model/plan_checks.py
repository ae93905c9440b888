"""Mistakes in plans that are found when the plan is made: each with its error."""

import inspect
from collections.abc import Coroutine, Generator
from typing import Any, cast

from durio.model.argument_errors import call_of
from durio.model.errors import InvalidArguments, InvalidOption, InvalidPlan
from durio.model.keys import REPLACE
from durio.model.option_values import check_unique
from durio.model.options import NO_OPTIONS, UNSET, CallOptions

MEMBERS_MAX = 1_000_000
NESTING_MAX = 200  # some methods call themselves once or twice for each level
HANDLERS_MAX = 16
PLAN_OPTIONS = ("key", "unique", "queue", "priority", "tx", "meta")
# They belong to the plan that is enqueued, not to its nodes or to plans in it.
OF_THE_WHOLE_PLAN = ("key", "unique", "tx")


def not_a_member(value: object) -> InvalidPlan:
    """Return the error for a value that is neither a signature nor a plan."""
    cure = "Write task.s(...) for a task, or chain(), group() or chord() for a plan."
    if inspect.iscoroutine(value):
        coroutine = cast("Coroutine[Any, Any, Any]", value)
        what = "a coroutine: the task was called"
        cure = "Write task.s(...) instead of task(...)."
        coroutine.close()  # Python would warn that it was never awaited
    elif hasattr(value, "s") and hasattr(value, "si"):
        name = str(getattr(value, "__name__", "task"))
        what = f"the task {name}, without its arguments"
        cure = f"Write {name}.s(...), or {name}.si(...) to ignore the result before it."
    else:
        what = f"{value!r:.80}, a {type(value).__name__}"
        if isinstance(value, list | tuple | set | Generator):
            cure = "Write group(...) around several members."
    return InvalidPlan(f"a member of a plan is {what}", cure=cure)


def too_many(count: int) -> InvalidPlan:
    return InvalidPlan(
        f"a plan has {count:,} members, over the bound of {MEMBERS_MAX:,}",
        cure="Use task.chunks(rows, 100) to run several rows in one job.",
    )


def check_nesting(depth: int) -> None:
    if depth > NESTING_MAX:
        raise InvalidPlan(
            f"a plan is nested deeper than {NESTING_MAX} levels, or contains itself",
            cure="Use a chain instead of plans in plans.",
        )


def two_apps(task: str, other: str) -> InvalidPlan:
    return InvalidPlan(
        f"a plan has tasks of two Apps: {task} and {other}",
        cure="All tasks of a plan belong to one App. Enqueue the other task from inside "
        "a task of the plan.",
    )


def tasks_of_another_app(task: str, app: str) -> InvalidPlan:
    return InvalidPlan(
        f"a plan of the App {app!r} has the task {task}",
        cure="All jobs of a plan run on workers of its App. Enqueue this task alone, "
        "app.enqueue(...), or make the plan on an App object with the other name.",
    )


def two_clients(task: str, other: str) -> InvalidPlan:
    return InvalidPlan(
        f"{task} and {other} belong to two App objects of the same name",
        cure="Declare all tasks of a plan on one App object.",
    )


def check_node_options(task: str, options: CallOptions) -> None:
    """Refuse the options that a node of a plan cannot have."""
    if options is NO_OPTIONS:
        return
    if options.tx is not UNSET and options.tx is not None:
        raise InvalidOption(
            f"{task} is part of a plan, so it cannot have its own tx",
            cure="Give it to the whole plan: plan.options(tx=...).enqueue().",
        )
    if options.unique is not UNSET and check_unique(options.unique).mode == REPLACE:
        raise InvalidOption(
            f"{task} is part of a plan, so it cannot have "
            f"unique={check_unique(options.unique).name}",
            cure="Use while_active, while_waiting or window() of durio.keys.",
        )


def check_nested_options(options: CallOptions) -> None:
    """Refuse options that only the whole plan may have, on a plan inside another."""
    for name in OF_THE_WHOLE_PLAN:
        if getattr(options, name) is not UNSET:
            raise InvalidOption(
                f"a plan inside another plan cannot have its own {name}",
                cure=f"Give it to the whole plan: (a | b).options({name}=...).",
            )


def check_plan_policy(options: CallOptions) -> None:
    """Refuse policies of keys that a plan cannot have."""
    if options.unique is UNSET:
        return
    policy = check_unique(options.unique).name
    if policy not in {"window", "while_active"}:
        raise InvalidOption(
            f"a plan cannot have unique={policy}",
            cure="Use window() or while_active of durio.keys.",
        )


def takes_no_result(task: str, signature: str, why: str) -> InvalidArguments:
    return InvalidArguments(
        f"{signature} follows another node, but has no place for its result: {why}",
        cure=f"Leave out the first argument of {call_of(task)}, or write .si(...) to "
        "ignore that result.",
        task=task,
    )


def takes_no_failure(task: str, signature: str, why: str) -> InvalidArguments:
    return InvalidArguments(
        f"{signature} is an on_error handler, but has no place for a PlanFailure: {why}",
        cure=f"Make `failure: PlanFailure` the first parameter of {call_of(task)}, or "
        "write .si(...) to leave it out.",
        task=task,
    )


def handler_is_a_plan() -> InvalidPlan:
    return InvalidPlan(
        "an on_error handler is a plan",
        cure="Give a signature: on_error(alert.s()). Its task may enqueue a plan.",
    )


def not_a_handler(signature: str) -> InvalidPlan:
    return InvalidPlan(
        f"{signature} cannot be an on_error handler",
        cure="Give a plain signature, without on_error of its own.",
    )


def never_fails() -> InvalidPlan:
    return InvalidPlan(
        'a group with on_error="collect" never fails: its handler would never run',
        cure="Call on_error() of its members, or of the chain around it.",
    )


def too_many_handlers() -> InvalidPlan:
    return InvalidPlan(
        f"more than {HANDLERS_MAX} on_error handlers",
        cure="Call several functions from one handler.",
    )
