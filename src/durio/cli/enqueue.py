"""`durio enqueue`: enqueues a job by its task's name, and may wait for its result."""

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, cast

import click

from durio.app.app import App
from durio.app.cures import quoted
from durio.cli.apps import AppSelection, selection_options, shown_url, with_options
from durio.cli.known_names import check_namespace
from durio.cli.main import error_fields, exit_code_of, keep_lines
from durio.cli.output import safe, show_json, show_text, to_json
from durio.client.handle import Job
from durio.model.codec import encode
from durio.model.errors import (
    InvalidArguments,
    JobCancelled,
    JobDead,
    ResultExpired,
    UsageError,
)
from durio.model.job import JobStatus
from durio.model.options import FLAGS, NO_OPTIONS, CallOptions, Flag
from durio.model.quantities import format_duration, seconds

WAIT_SECONDS_MAX = 86400.0
SHOWN_MAX = 60  # characters of an argument that an error repeats


def flag_options(flags: Mapping[str, Flag]) -> list[Callable[[Any], Any]]:
    """Return options of jobs as options of a command."""
    return [
        click.option(
            f"--{name.replace('_', '-')}",
            type=int if flag.kind == "number" else str,
            metavar=flag.metavar,
            help=flag.help,
        )
        for name, flag in flags.items()
    ]


option_flags = with_options(*flag_options(FLAGS))


@click.command(
    "enqueue", short_help="Enqueue a job by task name; optionally wait for it."
)
@click.argument("task", metavar="NAME")
@click.argument("arguments", metavar="[JSON]", default="", required=False)
@click.option(
    "--wait", is_flag=True, help="Wait until the job ends and print its result."
)
@click.option(
    "--timeout",
    metavar="DURATION",
    help="Longest wait with --wait, such as 30s (default 24h).",
)
@option_flags
@selection_options
@keep_lines
def command(
    *,
    selection: AppSelection,
    task: str,
    arguments: str,
    wait: bool,
    timeout: str | None,
    **given: Any,
) -> int:
    r"""Enqueue a job by the name of its task; the task's code is not needed.

    A name without a dot is a task of one App: --app, --name, DURIO_APP, DURIO_NAME, the
    only App in the store, or `app` if the SQLite file is empty. JSON is an object of
    keyword arguments or an array of positional arguments; `-` reads it from standard
    input. Name and arguments are checked against the App of --app, or else against what
    workers have published. The command creates a SQLite store that --store, an App,
    DURIO_URL or the settings file names, but never the default one. It returns when the
    job is durable: a power cut does not lose it.

    \b
    Examples:
      durio enqueue resize '{"path": "cat.png"}' --wait --timeout 30s
      durio enqueue shop.send_receipt '[42]' --delay 5m --key r:42
      durio enqueue resize --app app:app '{"path": "cat.png"}' --priority 9

    With --json: {"id", "task", "queue", "store", "created", "same_args", "replaced"}; with
    --wait also {"state", "result", "attempts", "seconds", "reason", "error"}.

    \b
    Exit codes: 2 wrong name, arguments or options; 3 store; 75 the queue is full or
    closed: the error says when to try again ("retry_after" with --json). With --wait:
      6  the job is dead: its reason and last error are printed
      7  timeout; the job is not cancelled
      1  the job was cancelled
    """
    args, kwargs = parse_arguments(arguments, f"durio enqueue {task}")
    options = parse_options(given)
    limit = parse_timeout(timeout, wait=wait)

    async def ask(app: App) -> int:
        await check_namespace(app, task)
        job = await app.enqueue_named(task, args, kwargs, options)
        store, status = shown_url(app), await job.status()
        if limit is not None:
            if not selection.is_json:
                click.echo(safe(enqueued_text(job, status, store)), err=True)
            return await wait_and_show(selection, job, limit, store)
        if selection.is_json:
            show_json(job_fields(job, status, store))
        else:
            show_text(enqueued_text(job, status, store))
        return 0

    return selection.run_enqueue(task, ask)


# --- arguments and options


def parse_arguments(text: str, command: str) -> tuple[list[Any], dict[str, Any]]:
    """Parse an object as keywords, an array as positionals, empty text as no arguments.

    `command` is what the user types before the JSON, for the example in an error.
    """
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    if not text.strip():
        return [], {}
    value = parse_json(text, "the arguments", arguments_cure(text, command))
    return split_arguments(value, arguments_cure(value, command))


def split_arguments(value: Any, cure: str) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments; raises InvalidArguments."""
    kind = type(cast("object", value)).__name__
    if kind == "dict":
        return [], value
    if kind == "list":
        return value, {}
    raise InvalidArguments(
        f"the arguments are a JSON {kind}, not an object or an array", cure=cure
    )


def arguments_cure(value: object, command: str) -> str:
    """Return the line to type: the value alone in an array, if it is short and plain."""
    listed = json.dumps([value])
    if len(listed) > SHOWN_MAX or (isinstance(value, str) and value[0] in "[{"):
        listed = '{"name": "value"}'
    return f"Write JSON, in quotes for the shell: {command} {quoted(listed)}"


def parse_json(text: str, what: str, cure: str) -> Any:
    """Parse JSON from the command line, which may contain bytes that are not text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{what} are not valid UTF-8", cure="Check the terminal's encoding."
        ) from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} are not JSON: {error}", cure=cure) from None


def parse_options(given: dict[str, Any]) -> CallOptions:
    """Return the options of the call, checked as `.options()` checks them."""
    changes = {
        name: parse_flag(name, flag.kind, given[name])
        for name, flag in FLAGS.items()
        if given[name] is not None
    }
    return NO_OPTIONS.with_changes(changes)


def parse_flag(name: str, kind: str, value: Any) -> Any:
    """Return the value of an option; it is checked later."""
    if kind == "time":
        return parse_moment(name, value)
    if kind == "json":
        cure = """Write '{"tenant": 7}'."""
        return parse_json(value, f"--{name}: its contents", cure)
    return value


def parse_moment(name: str, text: str) -> datetime:
    """Return an ISO time with a zone; raises UsageError for other text."""
    moment: datetime | None = None
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
    if moment is None or moment.tzinfo is None:
        why = " has no time zone" if moment else " cannot be read"
        raise UsageError(
            f"--{name}: {text!r}{why}",
            cure="Write 2030-01-31T09:00:00Z, or +01:00 in place of Z.",
        )
    return moment


def parse_timeout(text: str | None, *, wait: bool) -> float | None:
    """Return how long to wait, in seconds; None means not at all."""
    if not wait:
        if text is not None:
            raise UsageError("--timeout needs --wait", cure="Add --wait.")
        return None
    return WAIT_SECONDS_MAX if text is None else seconds(text, "--timeout")


# --- output


def enqueued_text(job: Job[Any], status: JobStatus, store: str) -> str:
    word = "enqueued" if job.created else "replaced" if job.replaced else "exists"
    other = "" if job.same_args else "  with other arguments"
    return f"{word}  {job.id}  {status.task}  queue {status.queue}  {store}{other}"


async def wait_and_show(
    selection: AppSelection, job: Job[Any], limit: float, store: str
) -> int:
    """Wait, then print how the job ended; return the exit code."""
    outcome: dict[str, Any] = {"result": None, "error": None}
    failure: Exception | None = None
    value = "(result not kept)"
    try:
        outcome["result"] = json.loads(encode(await job.result(limit), "the result"))
        value = to_json(outcome["result"])
    except ResultExpired:
        pass
    except (JobDead, JobCancelled, TimeoutError) as error:
        failure = error
        outcome["error"] = error_fields(error)
    status = await job.status()
    if selection.is_json:
        show_json({**job_fields(job, status, store), **end_fields(status), **outcome})
        return 0 if failure is None else exit_code_of(failure)
    if failure is not None:
        raise failure
    show_text(f"{status.state.value}  {safe(value)}   {effort_text(status)}")
    return 0


def job_fields(job: Job[Any], status: JobStatus, store: str) -> dict[str, Any]:
    return {
        "id": job.id,
        "task": status.task,
        "queue": status.queue,
        "store": store,
        "created": job.created,
        "same_args": job.same_args,
        "replaced": job.replaced,
    }


def end_fields(status: JobStatus) -> dict[str, Any]:
    return {
        "state": status.state.value,
        "attempts": status.attempt,
        "seconds": elapsed(status),
        "reason": status.reason,
    }


def elapsed(status: JobStatus) -> float | None:
    """Return seconds from the enqueue to the end; None if the job has not ended."""
    if status.finished_at is None:
        return None
    return round((status.finished_at - status.created_at).total_seconds(), 3)


def effort_text(status: JobStatus) -> str:
    """Return text such as `1 attempt, 1.2 s`."""
    plural = "" if status.attempt == 1 else "s"
    return (
        f"{status.attempt} attempt{plural}, {format_duration(elapsed(status) or 0.0)}"
    )
