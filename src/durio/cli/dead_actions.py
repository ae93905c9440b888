"""Actions on many jobs: chosen by ids or filters, counted, confirmed, applied.

Also `durio dead retry --edit|--args`, which retries one job with other arguments.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import msgspec

from durio.app.app import App
from durio.app.edit_arguments import checked_payload
from durio.cli.apps import AppSelection, Decorator, grouped_options
from durio.cli.enqueue import parse_arguments, parse_json, split_arguments
from durio.cli.filters import Filters
from durio.cli.job_ids import find_ids, job_by_id
from durio.cli.main import Declined, error_fields, error_text
from durio.cli.prompts import (
    BY_OPTION,
    DRY_RUN_OPTION,
    YES_OPTION,
    act_on_counted,
    confirm,
    is_interactive,
    operator,
    show_summary,
)
from durio.cli.query_words import are_query
from durio.cli.responses import (
    act_on_jobs,
    plan_fields,
    refusal,
    response_fields,
    show_responses,
    wrong_app_errors,
)
from durio.client.bulk import CountedJobs
from durio.client.job_query import count_to_act, refuse_unknown_names
from durio.client.job_view import arguments_of, options_of
from durio.client.plan_retry import NodeRetry, resume_plans
from durio.client.refused_actions import not_dead
from durio.model.errors import InvalidArguments, UsageError
from durio.model.ids import id_text
from durio.model.job import DEAD, STATE_BY_CODE, StoredJob
from durio.ports.control import (
    ACTION_OF_VERB,
    Acted,
    AuditNote,
    RetryJobs,
    Verb,
)

# By verb: the text before and after the action.
VERB_TEXTS: dict[Verb, tuple[str, str]] = {
    "retry": ("will run again", "run again"),
    "discard": ("will be deleted for good", "deleted"),
    "cancel": ("will be cancelled", "cancelled"),
    "run_now": ("will be ready now", "made ready"),
}
SKIPPED_REASONS: dict[Verb, str] = {
    "retry": "no longer dead or cancelled, or another job has their idempotency key",
    "discard": "no longer dead",
    "cancel": "ended meanwhile",
    "run_now": "no longer scheduled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkSelection:
    """How a command line chooses jobs, and its options for confirmation."""

    job_ids: Sequence[str]
    filters: Filters
    everything: bool
    limit: int | None
    yes: bool
    dry_run: bool
    by: str | None

    def __post_init__(self) -> None:
        """Take arguments that are no ids as a query."""
        if are_query(self.job_ids):
            filters = replace(self.filters, words=tuple(self.job_ids))
            object.__setattr__(self, "filters", filters)
            object.__setattr__(self, "job_ids", ())

    def check(self) -> None:
        """Require exactly one of ids, filters and --all."""
        is_filtered = not self.filters.is_empty()
        if self.job_ids and (is_filtered or self.everything or self.limit):
            raise UsageError(
                "ids and filters are both given",
                cure="Name the jobs by id, or choose them by filters or a query.",
            )
        if self.everything and is_filtered:
            raise UsageError("--all and filters are both given", cure="Give one.")
        if not (self.job_ids or is_filtered or self.everything):
            raise UsageError(
                f"{self.filters.jobs_text(0)} are chosen",
                cure="Give ids, filters such as --task, a query such as state:dead, or "
                "--all.",
            )


def bulk_options_for(all_help: str, limit_help: str) -> Decorator:
    """Return the options of BulkSelection; those of the filters must be above them."""
    return grouped_options(
        "bulk",
        BulkSelection,
        click.argument("job_ids", metavar="[ID|QUERY]...", nargs=-1),
        click.option("--all", "everything", is_flag=True, help=all_help),
        click.option("--limit", type=click.IntRange(1), metavar="N", help=limit_help),
        YES_OPTION,
        DRY_RUN_OPTION,
        BY_OPTION,
    )


bulk_options = bulk_options_for(
    "All dead letters.", "Change at most N jobs; those that died first come first."
)
job_bulk_options = bulk_options_for(
    "All jobs in a state that this command can change.", "Change at most N jobs."
)


def act_on_selected(selection: AppSelection, bulk: BulkSelection, verb: Verb) -> int:
    """Act on the chosen jobs; return the exit code."""
    bulk.check()
    if bulk.job_ids:
        return act_on_ids(selection, bulk, verb)

    async def count(app: App) -> tuple[CountedJobs, str]:
        search, _ = await bulk.filters.search(app, app.name)
        store = await app.store()
        found = await count_to_act(store, ACTION_OF_VERB[verb], search)
        if not found.limit:
            await refuse_unknown_names(app, store, found.query)
        return found, "" if selection.scope(app) else f" in App {app.name}"

    chosen, whose = selection.run(count)
    counted = chosen.limit
    jobs = counted if bulk.limit is None else min(counted, bulk.limit)
    which = f"{bulk.filters.text()}{whose}"
    jobs_text = f"{bulk.filters.jobs_text(jobs)}{which}"
    if not jobs or bulk.dry_run:
        more = {"alone": 0} if verb == "retry" and not bulk.dry_run else {}
        return show_summary(
            selection, counted, jobs_text, dry_run=bulk.dry_run, more=more
        )
    confirm(f"{jobs_text} {VERB_TEXTS[verb][0]}", yes=bulk.yes)
    chosen = chosen._replace(limit=jobs)
    done = act_on_counted(selection, ACTION_OF_VERB[verb], chosen, verb, bulk.by)
    words = f"{bulk.filters.jobs_text(done.jobs)}{which} {VERB_TEXTS[verb][1]}"
    words += done.alone_text() + done.held_text(verb)
    if others := jobs - done.jobs - done.held:
        words += f"; {others} not: {SKIPPED_REASONS[verb]}"
    more = {"alone": done.alone} if verb == "retry" else {}
    return show_summary(selection, counted, words, done, more=more)


# --- chosen by id


def act_on_ids(selection: AppSelection, bulk: BulkSelection, verb: Verb) -> int:
    """Act on these jobs; confirm first if the action cannot be undone."""
    if verb == "discard" or bulk.dry_run:
        jobs = selection.run_unscoped(
            lambda app: count_ids(app, bulk.job_ids, verb, selection)
        )
        jobs_text = bulk.filters.jobs_text(jobs)
        if bulk.dry_run:
            return show_summary(selection, jobs, jobs_text, dry_run=True)
        if jobs:
            confirm(f"{jobs_text} {VERB_TEXTS[verb][0]}", yes=bulk.yes)
    return act_on_jobs(selection, bulk.job_ids, verb, by=operator(bulk.by))


async def count_ids(
    app: App, job_ids: Sequence[str], verb: Verb, selection: AppSelection
) -> int:
    """Return how many of these jobs the action changes and the selected App has."""
    found, _ = await find_ids(app, job_ids)  # the action reports what is missing
    others = await wrong_app_errors(app, list(found), selection)
    known = [job_id for job_id in found if job_id not in others]
    states = await (await app.store()).states(known)
    return sum(state in ACTION_OF_VERB[verb].states for state in states.values())


Arguments = tuple[list[Any], dict[str, Any]]
EDIT_CURE = "Correct it in the editor; nothing was changed."


class EditedArguments(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments with positionals, in the form that a person edits."""

    args: list[Any]
    kwargs: dict[str, Any]


def retry_edited(
    selection: AppSelection,
    bulk: BulkSelection,
    given: str | None,
    *,
    unchecked: bool,
) -> int:
    """Check new arguments, given or from an editor, then retry the job with them."""
    if len(bulk.job_ids) != 1:
        raise UsageError(
            "--edit and --args are for one job", cure="Name one job by its id."
        )
    record = selection.run_unscoped(
        lambda app: find_in_app(app, bulk.job_ids[0], selection)
    )
    if options_of(record).is_chunk:
        raise UsageError(
            f"job {id_text(record.id)} makes several calls: its arguments cannot be edited",
            cure="Retry it as it is, or discard it and enqueue the calls that are left.",
        )
    if given is None:
        payload = payload_from_editor(selection, record, unchecked=unchecked)
    else:
        command = f"durio dead retry {id_text(record.id)} --args"
        arguments = parse_arguments(given, command)
        payload = checked_arguments(selection, record, arguments, unchecked=unchecked)
    if bulk.dry_run:
        words = f"{id_text(record.id)}  would run with {payload.decode()}"
        return show_summary(selection, 1, words, dry_run=True)
    by = operator(bulk.by)

    async def ask(app: App) -> tuple[Acted, NodeRetry | None]:
        store, note = await app.store(), AuditNote(who=by)
        nodes = await resume_plans(store, [record.id], app.clock, by)
        (acted,) = await store.act([record.id], RetryJobs(payload), note=note)
        return acted, nodes.get(record.id)

    acted, node = selection.run_unscoped(ask)
    error = refusal(acted, "retry", selection.flags())
    row = response_fields(id_text(record.id), acted, error)
    row["plan"] = plan_fields(node) if error is None else None
    return show_responses(selection, [row], "retry")


async def dead_letter_by_id(
    app: App, job_id: str, selection: AppSelection
) -> StoredJob:
    record = await job_by_id(app, job_id)
    if record.state != DEAD:
        state = STATE_BY_CODE[record.state]
        raise not_dead(id_text(record.id), state, selection.flags())
    return record


async def find_in_app(app: App, job_id: str, selection: AppSelection) -> StoredJob:
    """Return the job; raise if it belongs to another App than the selected one."""
    record = await dead_letter_by_id(app, job_id, selection)
    for error in (await wrong_app_errors(app, [record.id], selection)).values():
        raise error
    return record


def checked_arguments(
    selection: AppSelection, job: StoredJob, arguments: Arguments, *, unchecked: bool
) -> bytes:
    """Return the arguments as a payload; raise if they do not fit."""
    args, kwargs = arguments

    async def ask(app: App) -> bytes:
        return await checked_payload(app, job.task, args, kwargs, unchecked=unchecked)

    return selection.run_unscoped(ask)


# --- in an editor


def payload_from_editor(
    selection: AppSelection, job: StoredJob, *, unchecked: bool
) -> bytes:
    """Open an editor until the arguments fit or the person gives up."""
    if not is_interactive():
        raise UsageError(
            "--edit needs a terminal", cure="Give the arguments with --args JSON."
        )
    text, is_plain = editable_arguments(job)
    while True:
        written = edit_text(text)
        if written is None or written == text:
            raise Declined("the arguments are the same: nothing was changed")
        text = written
        try:
            arguments = parse_edited(text, is_plain=is_plain)
            return checked_arguments(selection, job, arguments, unchecked=unchecked)
        except UsageError as error:
            click.echo(error_text(error_fields(error)), err=True)
            if not click.confirm("Edit again?", default=True, err=True):
                raise Declined("nothing was changed") from None


def edit_text(text: str) -> str | None:
    """Return the text that the editor saved; None if nothing was saved."""
    try:
        return click.edit(text, extension=".json")
    except click.ClickException as error:
        raise UsageError(
            f"the editor failed: {error.format_message()}",
            cure="Set $EDITOR to one that works, or give --args JSON.",
        ) from None


def editable_arguments(job: StoredJob) -> tuple[str, bool]:
    """Return the arguments as text, and whether it is plain: keywords without positionals."""
    args, kwargs = arguments_of(job)
    is_plain = not args
    shown = kwargs if is_plain else {"args": args, "kwargs": kwargs}
    return json.dumps(shown, indent=2, ensure_ascii=False) + "\n", is_plain


def parse_edited(text: str, *, is_plain: bool) -> Arguments:
    value = parse_json(text.strip() or "{}", "the arguments", EDIT_CURE)
    if is_plain:
        return split_arguments(value, EDIT_CURE)
    try:
        both = msgspec.convert(value, EditedArguments)
    except msgspec.ValidationError as error:
        raise InvalidArguments(f"the arguments: {error}", cure=EDIT_CURE) from None
    return both.args, both.kwargs
