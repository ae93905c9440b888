"""The entry of the command line: a table of commands, and an exit code for every error.

A command's module is imported by name when the command runs, so `durio --help` loads none
of them. Each module has one click command named `command`; it returns the exit code, None
means 0. Errors of all commands are reported here, in one format: what happened, the code,
the cure. With `--json` an error is an object on standard output, in place of the answer, so
that a script reads one stream.
"""

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from durio.model.errors import (
    PASSES_BY_ITSELF,
    ChildFailed,
    DurioError,
    JobDead,
    QueueClosed,
    QueueFull,
    SchemaMismatch,
    StoreError,
    StoreFull,
    UsageError,
    WorkersTooOld,
)
from durio.model.names import did_you_mean
from durio.model.version import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "worker": ("durio.cli.worker", "Run the jobs of an App."),
    "enqueue": (
        "durio.cli.enqueue",
        "Enqueue a job by task name; optionally wait for it.",
    ),
    "jobs": (
        "durio.cli.jobs",
        "List, count, show, retry, cancel, run, discard, rename jobs.",
    ),
    "why": ("durio.cli.why", "Say why a job does not run, or how it ended."),
    "plans": ("durio.cli.plans", "List, show, cancel and retry plans."),
    "schedules": (
        "durio.cli.schedules",
        "List, add, edit, pause, run, backfill schedules.",
    ),
    "queues": (
        "durio.cli.queues",
        "List, pause, resume, limit, drain, move, purge queues.",
    ),
    "limits": ("durio.cli.limits", "List, show, set and reset limits."),
    "dead": ("durio.cli.dead", "Review dead letters: retry, discard, export, import."),
    "errors": ("durio.cli.errors", "Group errors by cause; retry or mute a group."),
    "breakers": (
        "durio.cli.breakers",
        "List circuit breakers; open, close, reset them by hand.",
    ),
    "workers": ("durio.cli.workers", "List, inspect and drain workers."),
    "dashboard": ("durio.cli.dashboard", "Serve the dashboard and the admin API."),
    "users": (
        "durio.cli.users",
        "Add, change, list and remove users of the dashboard.",
    ),
    "tokens": (
        "durio.cli.tokens",
        "Create, list and revoke tokens for the admin API.",
    ),
    "audit": ("durio.cli.audit", "Show what operators changed, and when."),
    "migrate": ("durio.cli.schema", "Create, upgrade or check the schema of a store."),
    "move": ("durio.cli.move", "Move all jobs from a SQLite file to PostgreSQL."),
    "tail": ("durio.cli.tail", "Follow events of all processes live."),
    "doctor": ("durio.cli.doctor", "Check machine, settings and store for problems."),
    "config": (
        "durio.cli.config",
        "Show effective settings and where each comes from.",
    ),
    "bench": ("durio.cli.bench", "Measure throughput and latency on this machine."),
    "demo": ("durio.cli.demo", "Run a small shop and kill one of its workers."),
    "completion": (
        "durio.cli.completion",
        "Print a completion script for your shell.",
    ),
}
PROGRAM = "durio"
COMPLETION_VARIABLE = "_DURIO_COMPLETE"

EXIT_CODES = """\b
Exit codes:
  0  success; the worker drained        6    the awaited job is dead
  1  the command failed                 7    timeout
  2  usage error                        8    doctor found errors
  3  store missing or unreachable       130  interrupted
  4  the App cannot be imported         143  terminated before the drain ended
  5  schema missing, older or newer     75   queue full or closed; try again later
  9  crash loop: worker processes keep dying
  70 the worker process must be replaced: a task blocked the event loop past its hard
     limit, too many abandoned attempts still run, or no child process starts
"""
INTERRUPTED = 130
# Errors of a write to a stream; errors about a file include its name.
WRITE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
Function = TypeVar("Function", bound=Callable[..., Any])


class UserCodeFailed(DurioError):
    """User code raised an error: its own traceback is shown, not ours."""

    def __init__(self, what: str, *, cure: str = "", traceback_text: str = "") -> None:
        super().__init__(what, cure=cure)
        self.traceback_text = traceback_text


class AppImportFailed(UserCodeFailed):
    """The user's module, or the App in it, cannot be loaded."""

    code = "app_import_failed"


class DepsFailed(UserCodeFailed):
    """The user's `deps=` raised when a worker entered it."""

    code = "deps_failed"


class Declined(DurioError):
    """The user answered no, so nothing was changed."""

    code = "declined"


class OutputFailed(DurioError):
    """The output of a command cannot be written."""

    code = "output_failed"

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"standard output cannot be written: {error.strerror}",
            cure="The command itself ran. Free disk space, or redirect its output.",
        )


# The first match counts.
EXIT_CODE_BY_ERROR: tuple[tuple[type[BaseException], int], ...] = (
    (AppImportFailed, 4),
    (ChildFailed, 4),
    (SchemaMismatch, 5),
    (StoreError, 3),
    (JobDead, 6),
    (QueueFull, 75),
    (QueueClosed, 75),
    (WorkersTooOld, 75),
    (UsageError, 2),
    (click.UsageError, 2),
    (TimeoutError, 7),
    (click.Abort, INTERRUPTED),
    (KeyboardInterrupt, INTERRUPTED),
)


class Commands(click.Group):
    """A group that loads a command when it runs."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Run a command; always ends in SystemExit with the exit code."""
        given = list(sys.argv[1:] if args is None else args)
        extra = {**extra, "prog_name": PROGRAM, "standalone_mode": False}
        try:
            code = super().main(args=given, **extra)
        except (Exception, KeyboardInterrupt) as error:
            code = report_error(first_error(error), as_json=wants_json(given))
        sys.exit(code if isinstance(code, int) else 0)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table, which is the order of need."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name.startswith("-") or (
            ctx.resilient_parsing and cmd_name not in COMMANDS  # completed by a shell
        ):
            return None
        if cmd_name not in COMMANDS:
            ctx.fail(
                f"there is no command {cmd_name!r}.{did_you_mean(cmd_name, COMMANDS)}"
            )
        return importlib.import_module(COMMANDS[cmd_name][0]).command

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """Complete names from the table, without loading the commands, and options."""
        names = [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Print the table without loading its commands."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def keep_lines(function: Function) -> Function:
    r"""Make the docstring the help text; a paragraph that begins with \b keeps its lines."""
    function.__doc__ = (function.__doc__ or "").replace(r"\b", "\b")
    return function


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, prog_name="durio", message="%(prog)s %(version)s")
@click.option(
    "--env-file",
    metavar="FILE",
    help="Read environment variables (KEY=VALUE) from FILE; set ones are kept.",
)
@click.pass_context
@keep_lines
def commands(ctx: click.Context, env_file: str | None) -> None:
    r"""Durable background jobs on SQLite or PostgreSQL.

    An App has a store and a name. Commands take both from --app MODULE:APP, else from
    DURIO_APP, else from `app` in durio.toml or [tool.durio] of pyproject.toml in the
    current directory. Without an App, the store is --store, DURIO_URL, `url` in that
    file or sqlite:///durio.db, and the name is --name, DURIO_NAME, `name` in that file
    or the only App in the store. With --store and without --app your code is not
    imported (except by worker). To see what applies: durio config show --origin

    \b
    Start here:
      durio worker app:app
      durio enqueue resize '{"path": "cat.png"}' --wait
      durio jobs ls --state dead

    Every command takes --json: it prints one JSON object to standard output. An error
    is {"error": {"code", "what", "cure"}}.
    """
    if env_file is not None:  # by name: `--help` loads no App code
        reader = importlib.import_module("durio.cli.env_file")
        ctx.obj = reader.read_env_file(env_file, os.environ)


def main() -> None:
    """The entry point of `durio` and `python -m durio`."""
    commands.main()


# --- errors


def wants_json(args: Sequence[str]) -> bool:
    """Whether --json was given, even if the arguments cannot be parsed."""
    before = args[: args.index("--")] if "--" in args else args
    return "--json" in before


def first_error(error: BaseException) -> BaseException:
    if not isinstance(error, BaseExceptionGroup):
        return error
    return first_error(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of an error; 1 for errors without their own."""
    return next(
        (code for kind, code in EXIT_CODE_BY_ERROR if isinstance(error, kind)), 1
    )


def report_error(error: BaseException, *, as_json: bool) -> int:
    """Print an error as text or JSON; return its exit code."""
    if isinstance(error, BrokenPipeError):
        drop_output()  # the reader has closed its end, as `head` does
        return 1
    if (
        isinstance(error, OSError)
        and error.errno in WRITE_ERRNOS
        and not error.filename
    ):
        drop_output()
        error, as_json = OutputFailed(error), False
    fields = error_fields(error)
    if as_json:
        from msgspec import json  # `--help` loads no serializer

        click.echo(json.encode({"error": {**fields, **backpressure_fields(error)}}))
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    elif isinstance(error, Declined):
        click.echo(error.what, err=True)
    else:
        click.echo(error_text(fields), err=True)
    return exit_code_of(error)


def drop_output() -> None:
    """Drop buffered output: Python flushes it at exit, which must not fail a second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def error_fields(error: BaseException) -> dict[str, str]:
    """Return an error as data: what, code, cure, and the traceback of user code."""
    if isinstance(error, DurioError):
        fields = {"code": error.code, "what": error.what, "cure": error.cure}
        if isinstance(error, StoreFull):  # this process ends and does not retry
            fields["cure"] = "Free space on this disk, then start it again."
        elif error.cure == PASSES_BY_ITSELF:
            fields["cure"] = "Start it again when the store is back."
    elif isinstance(error, click.Abort | KeyboardInterrupt):
        fields = {"code": "interrupted", "what": "interrupted", "cure": ""}
    elif isinstance(error, TimeoutError):
        fields = {
            "code": "timeout",
            "what": str(error) or "timeout",
            "cure": "Start a worker if none serves the queue. Else ask why: durio why "
            "ID; give a longer --timeout, or check again later.",
        }
    elif isinstance(error, click.ClickException):
        fields = {
            "code": "usage",
            "what": error.format_message(),
            "cure": cure_of(error),
        }
    else:
        fields = {
            "code": "unexpected",
            "what": f"{type(error).__name__}: {error}",
            "cure": "This is unexpected: please report it with the lines above.",
            "traceback": "".join(traceback.format_exception(error)),
        }
    if isinstance(error, UserCodeFailed | ChildFailed) and error.traceback_text:
        fields["traceback"] = error.traceback_text
    return {name: storable_text(text) for name, text in fields.items()}


def backpressure_fields(error: BaseException) -> dict[str, float]:
    """Return the values that a script needs to try again later."""
    if not isinstance(error, QueueFull):
        return {}
    names = ("depth", "limit", "retry_after")
    return {name: getattr(error, name) for name in names}


def cure_of(error: click.ClickException) -> str:
    """Return the cure of a usage error: where it is explained."""
    ctx = getattr(error, "ctx", None)
    return f"See: {ctx.command_path} --help" if ctx is not None else "See: durio --help"


def error_text(fields: dict[str, str]) -> str:
    """Return an error as text: one block, the cure last."""
    lines = [fields["traceback"].rstrip()] if "traceback" in fields else []
    head = "error:" if os.environ.get("NO_COLOR") else click.style("error:", fg="red")
    lines.append(f"{head} {fields['what']} [{fields['code']}]")
    lines += [f"  {line}" for line in fields["cure"].splitlines()]
    return "\n".join(lines)


def storable_text(text: str) -> str:
    """Return text that every stream can encode; an argument may not be valid text."""
    return text.encode("utf-8", "backslashreplace").decode()
