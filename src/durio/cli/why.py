"""`durio why`: why a job does not run now, or how it ended."""

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, selection_options
from durio.cli.job_ids import job_by_id
from durio.cli.main import keep_lines
from durio.cli.output import cell, show_json, show_text
from durio.client.explain import explain_job
from durio.model.explanation import AttemptStory, JobExplanation
from durio.model.quantities import format_duration


@click.command("why", short_help="Say why a job does not run, or how it ended.")
@click.argument("job_id", metavar="ID")
@selection_options
@keep_lines
def command(*, selection: AppSelection, job_id: str) -> None:
    r"""Say why a job does not run now, what would unblock it, or how it ended.

    Every reason comes with what would change it and, where one exists, with the command
    that does so, for this store. For a job of a plan it names the job that it waits for
    and the reasons of that one. For a job that has ended it tells how, and the story of
    its attempts. It only reads the store, and takes a prefix of the id.

    \b
    Examples:
      durio why 0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55
      durio why 0198c2f4 --json | jq -r '.reasons[].code'

    With --json: {"id", "task", "queue", "state", "at", "reasons", "attempts"}. A reason
    has {"code", "text", "unblock", "command", "is_blocking"}; "command" may be null, and
    "is_blocking" is false for a fact that does not hold the job back. An attempt has
    {"number", "outcome", "at", "seconds", "worker", "error"}.

    \b
    Exit codes:
      0  done, whatever the state of the job
      1  there is no such job
      2  usage
      3, 4, 5  store, import of the App, schema
    """

    async def ask(app: App) -> JobExplanation:
        return await explain_job(app, await job_by_id(app, job_id))

    found = selection.run_unscoped(ask)
    if selection.is_json:
        show_json(found.to_dict())
    else:
        show_text("\n".join(explanation_lines(found)))


def explanation_lines(found: JobExplanation) -> list[str]:
    lines = [f"job {found.id} ({found.task}) is {found.state.value}"]
    if not found.blocking and not found.state.is_final:
        lines.append("  nothing keeps it from running")
    for reason in found.reasons:
        lines.append(f"{'- ' if reason.is_blocking else '  '}{reason.text}")
        lines += [f"    {text}" for text in (reason.unblock, reason.command) if text]
    if found.attempts:
        lines.append("attempts")
        lines += [f"  {attempt_line(attempt)}" for attempt in found.attempts]
    return lines


def attempt_line(attempt: AttemptStory) -> str:
    """Return text such as `#2 failed 2026-11-18 09:12:03Z by host/71: ValueError: no`."""
    parts = f"#{attempt.number} {attempt.outcome} {cell(attempt.at)}"
    if attempt.seconds is not None:
        parts += f" after {format_duration(attempt.seconds)}"
    parts += f" by {attempt.worker}" if attempt.worker else ""
    return parts + (f": {attempt.error}" if attempt.error else "")
