"""`durio worker --processes N`: the supervisor, and the workers' side of it.

The supervisor reads flags, the environment and the settings file, never the App. It starts
this same command line with one more argument: the file descriptor of its pipe.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from durio.app.app import App
from durio.app.configuration import configuration
from durio.cli.apps import with_options
from durio.cli.env_file import NO_ENV_FILE, EnvFile
from durio.cli.main import error_fields, error_text, exit_code_of, first_error
from durio.host.clock import HostClock
from durio.host.fleet import ProcessFleet, SupervisorPipe
from durio.host.processes import durio_command, exec_program
from durio.host.signals import STOP_SIGNALS, Signals
from durio.host.systemd_notify import SystemdNotifier
from durio.model.errors import InvalidOption, UsageError
from durio.model.quantities import counted
from durio.model.settings import PROCESSES_MAX, LogSettings
from durio.model.version import __version__
from durio.ports.fleet import ProcessMessage
from durio.telemetry.emit import Emitter
from durio.telemetry.log import LogWriter, configure
from durio.worker.supervised import exit_text
from durio.worker.supervisor import EXIT_CRASH_LOOP, Supervisor, SupervisorResult

ARGUMENTS = "durio.arguments"


class KeepArguments(click.Command):
    """A command that remembers its arguments, to start itself again."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep a copy: parsing consumes the list."""
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)


supervise_options = with_options(
    click.option(
        "--processes",
        type=int,
        metavar="N",
        help="Keep N worker processes running under a supervisor.",
    ),
    click.option(
        "--recycle-jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="Replace a worker process after N jobs (with --processes).",
    ),
    click.option(
        "--recycle-rss",
        metavar="SIZE",
        help="Replace a worker process that uses more memory, such as 500MB (with --processes).",
    ),
    click.option("--supervised", type=int, hidden=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInvocation:
    """The arguments and context with which `durio worker` was called."""

    arguments: Sequence[str]
    env_file: EnvFile  # workers read it again
    is_burst: bool
    is_json: bool

    @classmethod
    def of(cls, ctx: click.Context, **given: Any) -> "WorkerInvocation":
        return cls(
            arguments=ctx.meta[ARGUMENTS],
            env_file=ctx.find_root().obj or NO_ENV_FILE,
            **given,
        )


def check_unsupervised(
    invocation: WorkerInvocation, app: App, given: dict[str, Any]
) -> None:
    """Check a worker without a supervisor, before it starts.

    If the App's settings want a supervisor, this process becomes one, without the App, and
    this function never returns.
    """
    settings = app.settings.worker
    if settings.processes:
        asked = [
            "worker",
            "--processes",
            str(settings.processes),
            *invocation.arguments,
        ]
        exec_program([*durio_command(), *invocation.env_file.arguments, *asked])
    if given["recycle_jobs"] or given["recycle_rss"]:
        raise UsageError(
            "--recycle-jobs and --recycle-rss need a supervisor",
            cure="Add --processes 1, or more.",
        )
    if settings.recycle_jobs or settings.recycle_rss_bytes:
        app.emit("recycle.ignored", cure="start it with --processes")


def supervise(
    invocation: WorkerInvocation, processes: int, given: dict[str, Any]
) -> int:
    """Keep this number of workers running until a stop; return the exit code."""
    if not 1 <= processes <= PROCESSES_MAX:
        raise UsageError(
            f"--processes {processes}: not from 1 to {PROCESSES_MAX}",
            cure="Give one for each core, or leave it out: one worker, no supervisor.",
        )
    configure(log_settings(given))
    if sys.stderr.isatty():
        workers = counted(processes, "worker")
        banner = f"durio {__version__}  supervisor {os.getpid()}  {workers}"
        click.echo(f"{banner}\n  Ctrl-C drains; again: stops at once", err=True)
    verdict = asyncio.run(run_supervisor(invocation, processes))
    if verdict.error is not None or verdict.exit_code == EXIT_CRASH_LOOP:
        fields = failure_fields(verdict)
        if invocation.is_json:
            click.echo(msgspec.json.encode({"error": fields}))
        else:
            click.echo(error_text(fields), err=True)
    elif invocation.is_json:
        result = {
            "exit_code": verdict.exit_code,
            "cut_short": verdict.exit_code != 0,
            "signal": verdict.signal,
            "restarts": verdict.restarts,
        }
        click.echo(msgspec.json.encode(result))
    return verdict.exit_code


def log_settings(given: dict[str, Any]) -> LogSettings:
    """Return the log settings of the supervisor.

    The workers report errors in other settings.
    """
    log = LogSettings()
    with suppress(InvalidOption):
        log = configuration(None, None).settings.log
    return with_log_flags(log, given)


def with_log_flags(log: LogSettings, given: dict[str, Any]) -> LogSettings:
    chosen: dict[str, Any] = {}
    if given["log_format"]:
        chosen["format"] = given["log_format"]
    if given["log_level"]:
        chosen["level"] = given["log_level"].upper()
    return msgspec.structs.replace(log, **chosen)


async def run_supervisor(
    invocation: WorkerInvocation, processes: int
) -> SupervisorResult:
    emit = Emitter(LogWriter())
    had_terminal = has_terminal()
    supervisors: list[Supervisor] = []

    def on_signal(signal: str, _count: int) -> None:
        for supervisor in supervisors:
            # A terminal that closes sends SIGHUP too: then stop, do not reload.
            if signal == "SIGHUP" and not (had_terminal and not has_terminal()):
                supervisor.reload()
            else:
                supervisor.stop("SIGTERM" if signal == "SIGHUP" else signal)

    def show(running: int, seconds_left: float) -> None:
        left = round(seconds_left, 1)
        if sys.stderr.isatty():
            text = f"draining: {running} running, {left:.0f} s of grace left"
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
        else:
            emit("fleet.draining", running=running, seconds_left=left)

    share = ["--processes", str(processes)]  # this number of workers shares the cores
    fleet = ProcessFleet(
        [*durio_command(), *invocation.env_file.arguments, "worker", "--supervised"],
        [*share, *invocation.arguments],
        folder=working_folder(),
        without=invocation.env_file.names,
    )
    supervisor = Supervisor(
        processes=processes,
        fleet=fleet,
        clock=HostClock(),
        emit=emit,
        announce=SystemdNotifier(os.environ),
        show=show,
        is_burst=invocation.is_burst,
    )
    supervisors.append(supervisor)
    try:
        async with Signals(on_signal, STOP_SIGNALS, is_last=True) as signals:
            verdict = await supervisor.run()
            signals.exit_code = verdict.exit_code
            return verdict
    finally:
        fleet.close()
        if supervisor.is_ending and sys.stderr.isatty():
            click.echo(err=True)


def working_folder() -> str | None:
    """Return the current folder by its path, in which a link may point elsewhere by now."""
    name = os.environ.get("PWD", "")
    with suppress(OSError):
        if name and Path(name).samefile("."):
            return name
    return None


def has_terminal() -> bool:
    """Whether this process has a terminal that can still be opened."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def failure_fields(verdict: SupervisorResult) -> dict[str, str]:
    """Return the error of workers that could not start, or that kept dying."""
    error = verdict.error or {}
    if verdict.exit_code != EXIT_CRASH_LOOP:
        return error
    last = f"the last one ended with {exit_text(verdict.last_exit)}"
    return {
        **{name: error[name] for name in ("traceback",) if name in error},
        "code": "crash_loop",
        "what": f"the workers keep dying: {last}"
        + (f": {error['what']}" if error else ""),
        "cure": "See the log above for the cause, correct it, and start again.",
    }


# --- the supervised worker


def run_supervised(descriptor: int, body: Callable[[SupervisorPipe], int]) -> int:
    """Run a worker that a supervisor started; report its error to the supervisor."""
    try:
        pipe = SupervisorPipe(descriptor)
    except OSError:
        raise UsageError(
            "--supervised is for workers that a supervisor starts",
            cure="Give --processes N.",
        ) from None
    try:
        return body(pipe)
    except (Exception, KeyboardInterrupt) as error:
        cause = first_error(error)
        pipe.send_message(ProcessMessage(word="failed", error=error_fields(cause)))
        return exit_code_of(cause)
