"""Actions on jobs that are named by id; each id gets its own result."""

from collections.abc import Sequence
from typing import Any

from durio.app.app import App
from durio.cli.apps import AppSelection
from durio.cli.job_ids import find_ids
from durio.cli.main import error_fields
from durio.cli.output import show_json, show_text
from durio.client.plan_retry import NodeRetry, resume_plans
from durio.client.refused_actions import refusal
from durio.model.errors import DurioError, UsageError
from durio.model.ids import id_text
from durio.model.job import STATE_BY_CODE
from durio.model.names import namespace_of
from durio.ports.control import ACTION_OF_VERB, Acted, AuditNote, Verb

DELETED_TEXT = "gone"


class WrongApp(UsageError):
    """A job belongs to another App than the selected one."""

    code = "wrong_app"


def act_on_jobs(
    selection: AppSelection, job_ids: Sequence[str], verb: Verb, *, by: str
) -> int:
    """Act on each job and print each result; return 1 if one of them failed."""

    async def ask(app: App) -> list[dict[str, Any]]:
        found, missing = await find_ids(app, job_ids)
        others = await wrong_app_errors(app, list(found), selection)
        ours = [job_id for job_id in found if job_id not in others]
        store = await app.store()
        nodes = (
            await resume_plans(store, ours, app.clock, by) if verb == "retry" else {}
        )
        done = await store.act(ours, ACTION_OF_VERB[verb], note=AuditNote(who=by))
        answers = {
            text: response_fields(text, None, error) for text, error in missing.items()
        }
        for job_id, error in others.items():
            answers[found[job_id]] = response_fields(id_text(job_id), None, error)
        for acted in done:
            error = refusal(acted, verb, selection.flags())
            row = response_fields(id_text(acted.id), acted, error)
            if verb == "retry":
                row["plan"] = (
                    plan_fields(nodes.get(acted.id)) if error is None else None
                )
            answers[found[acted.id]] = row
        return [answers[text] for text in dict.fromkeys(job_ids) if text in answers]

    return show_responses(selection, selection.run_unscoped(ask), verb)


async def wrong_app_errors(
    app: App, ids: Sequence[bytes], selection: AppSelection
) -> dict[bytes, DurioError]:
    """Return errors for jobs that belong to another App than the selected one."""
    if selection.scope(app) is None:
        return {}
    found: dict[bytes, DurioError] = {}
    for record in await (await app.store()).get(ids):
        namespace = namespace_of(record.lane)
        if namespace != app.name:
            found[record.id] = WrongApp(
                f"job {id_text(record.id)} is of App {namespace}, not of {app.name}",
                cure=f"Name its App: --name {namespace}",
            )
    return found


def show_responses(
    selection: AppSelection, rows: Sequence[dict[str, Any]], verb: Verb
) -> int:
    """Print each result; return the exit code."""
    if selection.is_json:
        show_json({"jobs": rows})
    else:
        for row in rows:
            show_text(response_text(row, verb))
    return 0 if all(row["ok"] for row in rows) else 1


def response_fields(
    job_id: str, acted: Acted | None, error: DurioError | None
) -> dict[str, Any]:
    return {
        "id": job_id,
        "ok": error is None,
        "before": None if acted is None else state_text(acted.before),
        "state": None if acted is None else state_text(acted.after),
        "error": None if error is None else error_fields(error),
    }


def plan_fields(node: NodeRetry | None) -> dict[str, Any] | None:
    """Return what the retry of a job means for its plan; None if it has none."""
    if node is None:
        return None
    state = None if node.state is None else node.state.value
    alone = node.why_alone is not None
    return {"id": node.plan, "state": state, "alone": alone, "text": node.text}


def state_text(code: int | None) -> str | None:
    return None if code is None else STATE_BY_CODE[code].value


def response_text(row: dict[str, Any], verb: Verb) -> str:
    if not row["ok"]:
        return (
            f"{row['id']}  unchanged: {row['error']['what']} [{row['error']['code']}]"
        )
    asked = (
        "  (asked to stop)" if verb == "cancel" and row["state"] == "running" else ""
    )
    plan = f"  ({row['plan']['text']})" if row.get("plan") else ""
    return (
        f"{row['id']}  {row['before']} -> {row['state'] or DELETED_TEXT}{asked}{plan}"
    )
