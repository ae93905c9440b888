"""`durio plans`: list, show, cancel and retry plans."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, ListSelection, list_options, selection_options
from durio.cli.filters import page_options
from durio.cli.main import error_fields, keep_lines
from durio.cli.output import age, show_json, show_table, show_text
from durio.cli.plan_ids import InvalidPlanId, plan_by_id
from durio.cli.plan_output import show_plan
from durio.cli.prompts import BY_OPTION, operator
from durio.cli.table import Column
from durio.client.namespaces import apps_in
from durio.client.plan_actions import cancel_plan, retry_plan
from durio.client.plan_list import ListedPlan, list_plans
from durio.client.plan_rows import plan_row, replaced_fields
from durio.client.plan_view import check_not_over, plan_status, plan_tree
from durio.model.errors import (
    DurioError,
    InvalidPlan,
    JobNotFound,
    PlanNotFound,
    WrongState,
)
from durio.model.ids import id_bytes, id_text
from durio.model.plan_record import PlanState
from durio.model.quantities import counted
from durio.ports.plan_reader import StoredPlan
from durio.ports.plan_sweep import current_state
from durio.ports.records import BEYOND_ALL_NAMES

COLUMNS = (
    Column("id"),
    Column("state"),
    Column("plan", least=20),
    Column("jobs", 2),
    Column("age", 1),
    Column("error", 3, least=20),
)
REFUSALS = (PlanNotFound, WrongState, InvalidPlan)
# Changes one plan; returns the fields of its answer.
Change = Callable[[App, StoredPlan], Awaitable[dict[str, Any]]]


@click.group("plans", short_help="List, show, cancel and retry plans.")
@keep_lines
def command() -> None:
    r"""List, show, cancel and retry plans: chains, groups and chords of jobs.

    A prefix of an id is enough if it has at least 8 digits and is unique. Changes are
    recorded: `durio audit ls`.

    \b
    Exit codes:
      0  done
      1  no such plan, or some plans could not be changed: each is listed with the reason
      2  usage
      3, 4, 5  store, import of the App, schema
    """


@command.command("ls")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in PlanState]),
    help="Only plans in this state; may be repeated.",
)
@click.option(
    "--all",
    "with_inner",
    is_flag=True,
    help="Also plans in the place of a job of another plan.",
)
@page_options
@list_options
@keep_lines
def list_all(
    *,
    selection: ListSelection,
    states: Sequence[str],
    with_inner: bool,
    limit: int,
    cursor: str | None,
) -> None:
    r"""List plans, newest first.

    Lists plans of one App: --app, --name, DURIO_APP, DURIO_NAME, or the only App in the
    store. --all-apps lists those of every App. Plans are kept for 7 days after their
    end, failed ones as long as dead jobs. A plan that a job of another plan has put in
    its place is listed with --all only: a cancel or retry of the other plan reaches it.

    \b
    Examples:
      durio plans ls --state failed
      durio plans ls --state failed --json | jq -r '.plans[].id' | xargs durio plans retry

    With --json: {"plans": [...], "cursor"}. A plan has {"id", "namespace", "state",
    "plan", "jobs", "created_at", "ended_at", "resumed", "failed_node", "error_type",
    "error", "replaces"}. "cursor" is null on the last page; "plan" is null for a very
    large plan; "replaces" is {"job", "plan"} if it is in the place of a job.
    """
    before = BEYOND_ALL_NAMES if cursor is None else checked_cursor(cursor)

    async def ask(app: App, scope: str | None) -> tuple[list[ListedPlan], float]:
        store, found = await app.store(), list[ListedPlan]()
        for namespace in await apps_in(store) if scope is None else [scope]:
            found += await list_plans(
                store,
                namespace,
                states=[PlanState(state) for state in states],
                with_inner=with_inner,
                before=before,
                limit=limit + 1,
                now=app.now(),
            )
        return sorted(found, reverse=True, key=lambda plan: plan.id), app.now()

    plans, now = selection.run_list(ask)
    rows = [plan_row(plan) for plan in plans[:limit]]
    following = rows[-1]["id"] if len(plans) > limit else None
    if selection.is_json:
        show_json({"plans": rows, "cursor": following})
        return
    whose = f" with state {' or '.join(states)}" if states else ""
    show_table(COLUMNS, [cells(row, now) for row in rows], f"no plans{whose}")
    if following is not None:
        show_text(f"more: --cursor {following}")


def checked_cursor(cursor: str) -> str:
    try:
        return id_text(id_bytes(cursor))
    except JobNotFound:
        raise InvalidPlanId(
            f"{cursor[:60]!r} is not a cursor", cure="Give the one that was printed."
        ) from None


def cells(row: dict[str, Any], now: float) -> list[Any]:
    full = ": ".join(text for text in (row["error_type"], row["error"]) if text)
    return [
        row["id"],
        row["state"],
        row["plan"],
        row["jobs"],
        age(row["created_at"], now),
        full.partition("\n")[0],
    ]


@command.command("show")
@click.argument("plan_id", metavar="ID")
@selection_options
@keep_lines
def show_one(*, selection: AppSelection, plan_id: str) -> None:
    r"""Show a plan as a tree, with the state of each job.

    A group of more than 20 members is shown by its counts. Of a failed plan the first
    failure is shown, and how to resume it.

    \b
    Example:
      durio plans show 0198c2f4

    With --json: {"id", "namespace", "state", "nodes", "counts", "created_at", "ended_at",
    "resumed", "failed_node", "error", "parents", "replaces", "tree"}. The tree and each
    of its members have {"kind", "jobs", "counts", "id", "task", "state", "plan",
    "members", "hidden", "hidden_task"}; "kind" is job, chain or group, "plan" the id of a
    plan that has taken the place of the job. "replaces" is {"job", "plan"} if this plan has done so.
    """

    async def ask(app: App) -> tuple[Any, Any, StoredPlan]:
        plan, store = await plan_by_id(app, plan_id, selection), await app.store()
        tree = await plan_tree(store, plan)
        return await plan_status(store, plan), tree, plan

    status, tree, plan = selection.run_unscoped(ask)
    replaces = replaced_fields(plan.record)
    if selection.is_json:
        more = {"namespace": plan.namespace, "replaces": replaces}
        show_json({**status.to_dict(), **more, "tree": tree.to_dict()})
    else:
        show_plan(status, plan.namespace, tree, replaces, flags=selection.flags())


@command.command("cancel")
@click.argument("plan_ids", metavar="ID...", nargs=-1, required=True)
@BY_OPTION
@selection_options
@keep_lines
def cancel_all(
    *, selection: AppSelection, plan_ids: Sequence[str], by: str | None
) -> int:
    r"""Cancel all jobs of plans that have not ended.

    Jobs that wait are cancelled at once, running ones are asked to stop; until they do,
    the state is `cancelling`. A failed plan stays failed, and its members that go on are
    cancelled. No error handler runs. `durio plans retry` resumes a cancelled plan.

    \b
    Example:
      durio plans cancel 0198c2f4

    With --json: {"plans": [{"id", "ok", "before", "state", "error"}]}.

    Exit code 1 when all jobs of some plans have ended already; the rest were cancelled.
    """
    who = operator(by)

    async def change(app: App, plan: StoredPlan) -> dict[str, Any]:
        store = await app.store()
        before = await check_not_over(store, plan)
        state = await cancel_plan(store, plan.namespace, plan.id, who)
        return {"before": before.value, "state": state.value}

    return change_plans(selection, plan_ids, change)


@command.command("retry")
@click.argument("plan_ids", metavar="ID...", nargs=-1, required=True)
@BY_OPTION
@selection_options
@keep_lines
def retry_all(
    *, selection: AppSelection, plan_ids: Sequence[str], by: str | None
) -> int:
    r"""Resume failed or cancelled plans.

    Dead and cancelled jobs run again, with all their attempts; jobs that are done do
    not. For a plan that is `failing` it waits up to 10 s until that is over. `durio jobs
    retry` of a dead job resumes its plan, too.

    \b
    Examples:
      durio plans retry 0198c2f4
      durio plans ls --state failed --json | jq -r '.plans[].id' | xargs durio plans retry

    With --json: {"plans": [{"id", "ok", "before", "state", "error", "jobs"}]}; "jobs" is
    the number of jobs that run again.

    Exit code 1 when some plans could not be resumed; the rest were.
    """
    who = operator(by)

    async def change(app: App, plan: StoredPlan) -> dict[str, Any]:
        store = await app.store()
        before = await current_state(store, plan)
        jobs = await retry_plan(store, plan.namespace, plan.id, app.clock, who)
        state = PlanState.RUNNING.value
        return {"before": before.value, "state": state, "jobs": jobs}

    return change_plans(selection, plan_ids, change)


def change_plans(
    selection: AppSelection, plan_ids: Sequence[str], change: Change
) -> int:
    """Change each plan and print each result; return 1 if one of them failed."""

    async def ask(app: App) -> list[dict[str, Any]]:
        # All ids are read before the first change: after it, an error would hide it.
        plans: dict[str, StoredPlan | DurioError] = {}
        for text in plan_ids:
            try:
                plan = await plan_by_id(app, text, selection)
                plans.setdefault(id_text(plan.id), plan)
            except REFUSALS as error:
                plans[text] = error
        return [await changed(app, *each, change) for each in plans.items()]

    rows = selection.run_unscoped(ask)
    if selection.is_json:
        show_json({"plans": rows})
    else:
        for row in rows:
            show_text(change_text(row))
    return 0 if all(row["ok"] for row in rows) else 1


async def changed(
    app: App, plan_id: str, plan: StoredPlan | DurioError, change: Change
) -> dict[str, Any]:
    """Change one plan, unless it was not found; return the fields of its answer."""
    row: dict[str, Any] = {"id": plan_id, "ok": False, "before": None, "state": None}
    try:
        if isinstance(plan, DurioError):
            raise plan
        return {**row, **await change(app, plan), "ok": True, "error": None}
    except REFUSALS as error:
        return {**row, "error": error_fields(error)}


def change_text(row: dict[str, Any]) -> str:
    if not row["ok"]:
        error = row["error"]
        return f"{row['id']}  unchanged: {error['what']} [{error['code']}]"
    jobs = f"  ({counted(row['jobs'], 'job')} run again)" if "jobs" in row else ""
    return f"{row['id']}  {row['before']} -> {row['state']}{jobs}"
