"""A plan as data for `--json`, and as text for people: rows of a list, and a tree."""

from collections.abc import Iterator
from typing import NamedTuple

import click

from durio.cli.job_output import value_lines
from durio.cli.output import STATE_COLOURS, has_colour, safe, show_text
from durio.model.job import State
from durio.model.plan_record import PlanState
from durio.model.plan_tree import PlanTree
from durio.model.quantities import counted
from durio.plans import PlanStatus

STATE_WIDTH = max(len(state.value) for state in State)
PLAN_COLOURS = {
    PlanState.RUNNING: "yellow",
    PlanState.FAILING: "red",
    PlanState.FAILED: "red",
    PlanState.CANCELLING: "bright_black",
    PlanState.CANCELLED: "bright_black",
    PlanState.DONE: "green",
}


# --- one plan


def show_plan(
    status: PlanStatus,
    namespace: str,
    tree: PlanTree,
    replaces: dict[str, str | None] | None,
    *,
    flags: str,
) -> None:
    """Print a plan for people."""
    state = painted(status.state.value, PLAN_COLOURS[status.state])
    click.echo(f"plan {status.id}  {state}", color=has_colour())
    fields = {
        "app": namespace,
        "place": replaces and place_text(**replaces),
        "jobs": jobs_text(status.nodes, status.counts),
        "created_at": status.created_at,
        "ended_at": status.ended_at,
        "resumed": status.resumed or None,
    }
    show_text("\n".join(value_lines(fields, fields)))
    click.echo()
    for line in tree_lines(tree):
        shown = painted(f"{line.state:<{STATE_WIDTH}}", STATE_COLOURS.get(line.state))
        text = f"{line.branch}{shown}  " if line.state else line.branch
        click.echo(f"{text}{safe(line.text, is_line=True)}", color=has_colour())
    for text in (failure_text(status), next_text(status, flags)):
        if text:
            show_text(f"\n{text}")


def place_text(job: str | None, plan: str | None) -> str:
    return f"in the place of job {job}" + (f" of plan {plan}" if plan else "")


def painted(text: str, colour: str | None) -> str:
    return click.style(text, fg=colour) if has_colour() else text


class TreeLine(NamedTuple):
    """One line of a tree."""

    branch: str
    state: str  # of a job; empty for a chain or a group
    text: str


def tree_lines(
    tree: PlanTree, branch: str = "", indent: str = ""
) -> Iterator[TreeLine]:
    """Yield the lines of a tree; a large group is one line."""
    if tree.kind == "job":
        state = "gone" if tree.state is None else tree.state.value
        plan = "" if tree.plan is None else f"  -> plan {tree.plan}"
        yield TreeLine(branch, state, f"{tree.task}  {tree.id}{plan}")
        return
    head = f"{tree.kind} of {counted(len(tree.members) + tree.hidden, 'member')}"
    if tree.hidden:
        join = " (one joins the results)" if tree.id is not None else ""
        head = f"{head}: {jobs_text(tree.jobs, tree.counts, join)}"
    yield TreeLine(branch, "", head)
    last = len(tree.members) - 1
    for n, member in enumerate(tree.members):
        is_last = n == last
        corner, below = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        yield from tree_lines(member, f"{indent}{corner}", f"{indent}{below}")


def jobs_text(jobs: int, counts: dict[State, int], note: str = "") -> str:
    """Return text such as `5 jobs: 3 done, 2 dead`; those without a record are gone."""
    texts = [f"{number} {state.value}" for state, number in counts.items()]
    if gone := jobs - sum(counts.values()):
        texts.append(f"{gone} gone")
    return f"{counted(jobs, 'job')}{note}: {', '.join(texts)}" if texts else "no jobs"


def failure_text(status: PlanStatus) -> str:
    if status.failed_node is None:
        return ""
    return f"failed: job {status.failed_node}\n  {status.error}"


def next_text(status: PlanStatus, flags: str) -> str:
    """Return the commands with which a person goes on."""
    retry = f"durio plans retry {status.id}{flags}"
    match status.state:
        case PlanState.FAILED:
            why = f"durio jobs show {status.failed_node}{flags}"
            return f"See why:        {why}\nThen resume it: {retry}"
        case PlanState.CANCELLED:
            return f"Resume it: {retry}"
        case PlanState.FAILING | PlanState.CANCELLING:
            return "Jobs that have not started are being cancelled."
        case _:
            return ""
