"""`durio worker`: runs the jobs of an App until it is stopped."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import click
import msgspec

from durio.app.app import App
from durio.app.worker_builder import make_worker
from durio.cli.apps import (
    APP_OPTION,
    JSON_OPTION,
    STORE_OPTION,
    shown_url,
    with_options,
)
from durio.cli.load_app import (
    deps_failed,
    load_placed_app,
    required_place,
    typed_once,
)
from durio.cli.main import keep_lines
from durio.cli.stall import StallWatch
from durio.cli.supervise import (
    KeepArguments,
    WorkerInvocation,
    check_unsupervised,
    run_supervised,
    supervise,
    supervise_options,
    with_log_flags,
)
from durio.host.fleet import SupervisorPipe
from durio.host.interpreter import tune_interpreter
from durio.host.processes import loop_factory
from durio.host.side_loop import WorkerMachine
from durio.host.signals import STOP_SIGNALS, Signals, end_process
from durio.host.systemd_notify import SystemdNotifier
from durio.model.quantities import format_duration, seconds, size_bytes
from durio.model.queues import Serving, parse_serving
from durio.model.settings import Settings
from durio.model.version import __version__
from durio.ports.store import Stall
from durio.telemetry.log import configure
from durio.worker.watchdog import EXIT_BLOCKED, exit_code_for_signal
from durio.worker.worker import Worker


class QueueFlags(NamedTuple):
    """The flags about queues, as given on the command line."""

    queues: tuple[str, ...] | None  # None: every queue of the App
    weights: tuple[str, ...]
    prefetches: tuple[str, ...]  # for single queues; `--prefetch N` is a setting
    concurrency: int | None

    def serving(self, *, is_strict: bool) -> Serving:
        """Return the queues that the flags name, without the App's declarations."""
        return parse_serving(
            self.queues,
            weights=self.weights,
            prefetches=self.prefetches,
            is_strict=is_strict,
        )


queue_options = with_options(
    click.option(
        "-q", "--queue", "queues", multiple=True, metavar="QUEUE[=SLOTS]",
        help="Serve this queue, with at most SLOTS jobs at once; may be repeated. A glob "
        "such as 'mail*' serves every queue that matches, each with these slots. "
        "Default: every queue of the App.",
    ),
    click.option(
        "-c", "--concurrency", type=int, metavar="N",
        help="Jobs at once (default 10; the sum of SLOTS when every -q has them).",
    ),
    click.option(
        "--weight", "weights", multiple=True, metavar="QUEUE=N",
        help="Share of a queue, 1 to 1000 (default 1); may be repeated.",
    ),
    click.option(
        "--strict", is_flag=True,
        help="Serve queues in strict order: that of -q, else as declared.",
    ),
    click.option(
        "--prefetch", "prefetches", multiple=True, metavar="[QUEUE=]N",
        help="Claim at most N jobs ahead of the slots, in all (default 256) or per queue.",
    ),
)  # fmt: skip


def read_queue_flags(given: dict[str, Any]) -> QueueFlags:
    """Move these flags out of `given`; flags that are settings stay there."""
    prefetches: tuple[str, ...] = given.pop("prefetches")
    plain = [text for text in prefetches if "=" not in text]
    given["prefetch"] = whole_number("--prefetch", plain[-1]) if plain else None
    given["strict"] = given.pop("strict") or None
    return QueueFlags(
        queues=given.pop("queues") or None,
        weights=given.pop("weights"),
        prefetches=tuple(text for text in prefetches if "=" in text),
        concurrency=given["concurrency"],
    )


def whole_number(flag: str, text: str) -> int:
    """Return the number of a flag that also accepts QUEUE=N."""
    try:
        return int(text)
    except ValueError:
        raise click.UsageError(
            f"{flag} {text}: give a number, or QUEUE=N for one queue."
        ) from None


def slots_of(app: App, flags: QueueFlags) -> int:
    """Return the number of slots that a worker of this App has with these flags."""
    serving = parse_serving(
        flags.queues, prefetches=flags.prefetches, declared=app.registry.queues
    )
    return serving.concurrency(flags.concurrency, app.settings.worker.concurrency)


TASKS_SHOWN = 8
# By option: the setting that it overrides. Durations are text such as 30 or 2m.
NUMBERS = {
    "concurrency": "concurrency",
    "prefetch": "prefetch",
    "strict": "strict",
    "recycle_jobs": "recycle_jobs",
    # For a supervised worker: how many processes share the cores.
    "processes": "processes",
}
DURATIONS = {
    "grace": "grace_seconds",
    "lease": "lease_seconds",
    "heartbeat": "heartbeat_seconds",
}


@click.command(
    "worker",
    cls=KeepArguments,
    short_help="Run the jobs of an App.",
)
@click.argument("path", metavar="[MODULE:APP]", required=False)
@queue_options
@supervise_options
@click.option(
    "--burst",
    is_flag=True,
    help="Exit when no job is ready, running or before a gate, and plans have nothing "
    "left to do. A gate that stays closed keeps it waiting.",
)
@APP_OPTION
@STORE_OPTION
@click.option(
    "--grace", metavar="SECONDS", help="Time for running jobs to finish (default 25)."
)
@click.option(
    "--lease",
    metavar="SECONDS",
    help="How long a silent worker keeps its jobs (default 30).",
)
@click.option(
    "--heartbeat", metavar="SECONDS", help="How often the lease is renewed (default 5)."
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json", "none"]),
    help="Format of log lines (default text); none: use the App's own logging.",
)
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    help="Lowest level to log (default info).",
)
@JSON_OPTION
@keep_lines
def command(
    *,
    path: str | None,
    app_path: str | None,
    burst: bool,
    store: str | None,
    is_json: bool,
    processes: int | None,
    supervised: int | None,
    **given: Any,
) -> int:
    r"""Run the jobs of an App until SIGTERM or SIGINT.

    MODULE:APP is an App, or a function without arguments that returns one; `:app` may be
    omitted. Without it, DURIO_APP or `app` in the settings file is used. The current
    directory is put first on sys.path. Flags override the App's settings.

    On the first SIGTERM or SIGINT (Ctrl-C) the worker claims no more jobs. Running jobs
    have the grace period to finish; then they are cancelled and given back, and the
    attempt is not counted. A second signal skips the wait. Logs go to standard error.
    --json sets --log-format json and prints one object at the end: {"exit_code",
    "cut_short", "signal"}, with --processes also "restarts".

    With --processes N a supervisor keeps N workers running. It replaces a worker that
    dies, whose jobs run again at once. SIGHUP replaces all in turn, to load new code.

    Queues that have jobs share the slots by weight (default 1): with --weight high=6,
    high gets six times the turns of a queue of weight 1. --strict can starve queues.

    \b
    Examples:
      durio worker app:app
      durio worker shop.jobs:app -q mail -q default -c 50
      durio worker app:app -q high=4 -q default=2 -q low=1
      durio worker app:app --weight high=6 --weight default=3 --prefetch mail=4
      durio worker app:app -q critical -q 'mail*' -q default --strict
      durio worker app:app --processes 4 --recycle-rss 500MB
      durio worker app:app --burst --log-format json

    \b
    Exit codes:
      0    drained: no running job was interrupted; or the burst is over
      143, 130  SIGTERM or SIGINT, and jobs were interrupted and given back
      70   a supervisor must replace it: a task blocked the event loop past its hard
           limit, too many abandoned attempts still run, or no child process starts
      9    crash loop: the supervisor gave up
      1, 2, 3, 4, 5  deps= raised, usage, store, import of the App, schema
    """
    if is_json:
        given["log_format"] = given["log_format"] or "json"
    flags = read_queue_flags(given)
    flags.serving(is_strict=bool(given["strict"]))  # raises early on bad flags
    call = WorkerInvocation.of(
        click.get_current_context(), is_burst=burst, is_json=is_json
    )
    place = required_place(typed_once(path, app_path))

    def start(pipe: SupervisorPipe | None) -> int:
        app = load_placed_app(place, store, is_needed=True)
        return run_in_process(app, call, flags, given, pipe)

    if supervised is not None:
        given["processes"] = processes
        return run_supervised(supervised, start)
    return start(None) if processes is None else supervise(call, processes, given)


def run_in_process(
    app: App,
    invocation: WorkerInvocation,
    flags: QueueFlags,
    given: dict[str, Any],
    supervisor: SupervisorPipe | None,
) -> int:
    app.settings = changed_settings(app.settings, given)
    configure(app.settings.log)
    if supervisor is None:
        check_unsupervised(invocation, app, given)
        print_banner(app, flags)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        worked = run_to_end(
            app, flags, is_burst=invocation.is_burst, supervisor=supervisor
        )
        code, signal, hangs = runner.run(worked)
        if invocation.is_json and supervisor is None:
            result = {"exit_code": code, "cut_short": code != 0, "signal": signal}
            click.echo(msgspec.json.encode(result))
        if hangs:
            # User code that ignores its cancellation would keep this process alive.
            end_process(code)
    return code


def changed_settings(settings: Settings, given: dict[str, Any]) -> Settings:
    """Return the App's settings with the flags applied; raise for bad values."""
    worker: dict[str, Any] = {
        setting: given[option]
        for option, setting in NUMBERS.items()
        if given.get(option) is not None
    }
    for option, setting in DURATIONS.items():
        if given[option] is not None:
            worker[setting] = seconds(given[option], f"--{option}")
    if given.get("recycle_rss"):
        size = size_bytes(given["recycle_rss"], "--recycle-rss")
        worker["recycle_rss_bytes"] = size
    return msgspec.structs.replace(
        settings,
        worker=msgspec.structs.replace(settings.worker, **worker),
        log=with_log_flags(settings.log, given),
    )


def print_banner(app: App, flags: QueueFlags) -> None:
    tasks = sorted(app.registry.handlers)
    if not tasks:
        click.echo(f"warning: {app!r} has no tasks: give it imports=(...)", err=True)
    if not sys.stderr.isatty():
        return
    more = f" and {len(tasks) - TASKS_SHOWN} more" if len(tasks) > TASKS_SHOWN else ""
    worker, slots = app.settings.worker, slots_of(app, flags)
    lines = (
        f"durio {__version__}  app {app.name}  pid {os.getpid()}",
        f"  store   {shown_url(app)}",
        f"  queues  {', '.join(flags.queues or ('all',))}",
        f"  slots   {slots}",
        f"  tasks   {', '.join(tasks[:TASKS_SHOWN]) or 'none'}{more}",
        f"  Ctrl-C  drains within {format_duration(worker.grace_seconds)}; again: stops at once",
    )
    click.echo("\n".join(lines), err=True)


async def run_to_end(
    app: App,
    flags: QueueFlags,
    *,
    is_burst: bool,
    supervisor: SupervisorPipe | None = None,
) -> tuple[int, str | None, bool]:
    """Run a worker to its end; return exit code, signal, and whether abandoned code runs."""
    control, notify = WorkerControl(app), SystemdNotifier(os.environ)
    signals = Signals(control.on_signal, STOP_SIGNALS, is_last=True)
    send = notify.send_message if notify.is_enabled else None
    if supervisor is not None:
        send = supervisor.send_message
        supervisor.listen(control.rescue_now, control.on_supervisor_lost)
    watch = StallWatch(
        app.stall,
        report=control.on_stall,
        is_over=control.has_started,
        gives_up=False,
    )

    async def begin(stack: AsyncExitStack) -> Worker:
        await stack.enter_async_context(app)
        return await make_worker(
            app,
            queues=flags.queues,
            weights=flags.weights,
            prefetches=flags.prefetches,
            concurrency=flags.concurrency,
            is_burst=is_burst,
            machine=WorkerMachine(signals),
            send_message=send,
            on_busy_threads=on_busy_threads,
        )

    on_busy_threads = tune_interpreter()
    # Signals first, so that none is lost while the store opens.
    async with signals, AsyncExitStack() as stack:
        worker = await watch.wait_for(run_worker(control, begin(stack)))
        signal = control.received[0] if control.received else None
        signals.exit_code = 0 if worker is None else exit_code(worker, signal)
    return signals.exit_code, signal, worker is not None and worker.hangs


async def run_worker(
    control: "WorkerControl", start: Coroutine[Any, Any, Worker]
) -> Worker | None:
    """Run a worker to its end and return it; None if it was stopped before it started."""
    worker = await control.start_unless_stopped(start)
    if worker is None:
        return None
    try:
        await worker.run()
    except Exception as error:
        if error is worker.deps_error:
            raise deps_failed(error) from error
        raise
    return worker


def exit_code(worker: Worker, signal: str | None) -> int:
    if worker.broken is not None:
        return EXIT_BLOCKED
    if not worker.was_cut_short:
        return 0
    return exit_code_for_signal(signal)


class WorkerControl:
    """Passes signals and requests of the supervisor to the worker."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.received: list[str] = []
        self.workers: list[Worker] = []  # empty while the store opens
        self._starting: asyncio.Task[Worker] | None = None

    async def start_unless_stopped(
        self, start: Coroutine[Any, Any, Worker]
    ) -> Worker | None:
        """Start a worker; None if a stop came first, which does not wait for a stuck store."""
        self._starting = asyncio.get_running_loop().create_task(start)
        if self.received:
            self._starting.cancel()
        try:
            worker = await self._starting
        except asyncio.CancelledError:
            if self.received:
                return None
            raise
        self.workers.append(worker)
        if self.received:
            worker.stop()
        return worker

    def has_started(self) -> bool:
        """Whether a worker has a lease; from then on its heartbeat reports stalls."""
        return any(worker.started.is_set() for worker in self.workers)

    def on_stall(self, stall: Stall) -> None:
        """Report a process whose lock keeps the worker from starting."""
        seconds = round(stall.seconds, 1)
        self._app.emit("store.stalled", pid=stall.pid, seconds=seconds)

    def on_signal(self, signal: str, _count: int) -> None:
        """Start the drain at the first signal; end it at once at the second."""
        self.received.append(signal)
        if self._starting is not None and len(self.received) == 1:
            self._starting.cancel()
        for worker in self.workers:
            worker.stop()

    def on_supervisor_lost(self) -> None:
        """End this process: without a supervisor nothing replaces or stops it."""
        self._app.emit("supervisor.lost", pid=os.getpid())
        self.on_signal("SIGTERM", 1)

    def rescue_now(self) -> None:
        """Rescue jobs now, because another process on this host has died."""
        for worker in self.workers:
            worker.check_deaths.set()
