"""What a schedule of the command line runs: a task with options of its jobs, or a plan."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import click

from durio.cli.apps import with_options as with_click_options
from durio.cli.enqueue import flag_options, parse_flag, parse_json
from durio.client.schedule_link import NOT_SCHEDULED
from durio.model.errors import InvalidPlan, UsageError
from durio.model.options import FLAGS, CallOptions
from durio.model.plan import PlanValue

JOB_FLAGS = {name: flag for name, flag in FLAGS.items() if name not in NOT_SCHEDULED}
PLAN_CURE = "Give a file with JSON, as json.dumps(plan.to_dict()) writes it."

job_options = with_click_options(*flag_options(JOB_FLAGS))
plan_option = click.option(
    "--plan",
    metavar="FILE",
    help="Run the plan of this JSON file; - is standard input.",
)


def take_options(given: dict[str, Any]) -> dict[str, Any]:
    """Take the options of jobs out of what was given, and return those that are set."""
    taken = {name: given.pop(name) for name in JOB_FLAGS}
    changes = {
        name: parse_flag(name, JOB_FLAGS[name].kind, value)
        for name, value in taken.items()
        if value is not None
    }
    CallOptions().with_changes(changes)  # refuse wrong values before anything is read
    return changes


def read_plan(path: str, others: Mapping[str, Any]) -> PlanValue:
    """Return the plan in a file; the other flags are about the job of a task."""
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise UsageError(
            f"--plan and --{given[0].replace('_', '-')} are both given",
            cure="A plan has its own tasks, arguments and options: write them in the plan.",
        )
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"--plan: {path!r} cannot be read: {reason}", cure=PLAN_CURE
        ) from None
    document = parse_json(text, "--plan: its contents", PLAN_CURE)
    if not isinstance(document, dict):
        raise UsageError("--plan: its contents are not an object", cure=PLAN_CURE)
    try:
        return PlanValue.from_dict(cast("dict[str, Any]", document))
    except InvalidPlan as error:
        error.cure = PLAN_CURE
        raise
