"""`durio worker`: run the jobs of an App until told to stop."""

import asyncio
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from durio.app.app import App
from durio.app.connect import masked
from durio.app.work import make_worker
from durio.cli.apps import JSON_OPTION, STORE_OPTION, load_app
from durio.cli.main import INTERRUPTED, keep_lines
from durio.host.signals import Signals, end_process
from durio.model.duration import seconds, spoken
from durio.model.errors import UsageError
from durio.model.names import check_name
from durio.model.settings import Settings
from durio.model.version import __version__
from durio.telemetry.log import configure
from durio.worker.watchdog import EXIT_BLOCKED
from durio.worker.worker import Worker

TERMINATED = 143
TASKS_SHOWN = 8
# Option -> the setting that it overrides; durations are text such as 30 or 2m.
NUMBERS = {"concurrency": "concurrency", "prefetch": "prefetch"}
DURATIONS = {
    "grace": "grace_seconds",
    "lease": "lease_seconds",
    "heartbeat": "heartbeat_seconds",
}


@click.command("worker", short_help="Run the jobs of an App until told to stop.")
@click.argument("app_path", metavar="MODULE:APP")
@click.option(
    "-q", "--queue", "queues", multiple=True, metavar="QUEUE",
    help="Serve this queue; may be repeated. Without it: every queue of the App.",
)  # fmt: skip
@click.option(
    "-c", "--concurrency", type=int, metavar="N", help="Slots: jobs at once (10)."
)
@click.option("--burst", is_flag=True, help="End when nothing is ready or running.")
@STORE_OPTION
@click.option(
    "--prefetch", type=int, metavar="N", help="Jobs held ahead of the slots, at most."
)
@click.option(
    "--grace", metavar="SECONDS", help="For running jobs to end after a signal (25)."
)
@click.option("--lease", metavar="SECONDS", help="The right to its jobs lasts (30).")
@click.option("--heartbeat", metavar="SECONDS", help="The lease is renewed every (5).")
@click.option(
    "--log-format", type=click.Choice(["human", "json"]), help="Log lines (human)."
)
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    help="The lowest level that is logged (INFO).",
)
@JSON_OPTION
@keep_lines
def command(
    app_path: str,
    *,
    queues: tuple[str, ...],
    burst: bool,
    store: str | None,
    is_json: bool,
    **given: Any,
) -> int:
    r"""Run the jobs of an App until told to stop.

    MODULE:APP names an App, or a function without arguments that makes one; the current
    directory comes first on the path, and `:app` may be left out. Flags beat the App's
    settings, which beat DURIO_WORKER__CONCURRENCY and the like.

    The first SIGTERM or SIGINT (Ctrl-C) stops claiming: running jobs may end within
    the grace, the rest is cancelled and given back, uncharged. A second signal gives
    back at once. Logs go to standard error. --json means --log-format json, and one
    object at the end: {"exit_code", "cut_short", "signal"}.

    \b
    Examples:
      durio worker app:app
      durio worker shop.jobs:app -q mail -q default -c 50
      durio worker app:app --burst --log-format json

    \b
    Exit codes:
      0    drained: every running job ended by itself; or the burst is over
      143  SIGTERM, and jobs were cut short and given back
      130  SIGINT, and jobs were cut short and given back
      2, 3, 4, 5  usage, store, import of the App, schema
    """
    if is_json:
        given["log_format"] = given["log_format"] or "json"
    served = check_queues(queues)
    app = load_app(app_path, store)
    app.settings = changed_settings(app.settings, given)
    configure(app.settings.log)
    greet(app, served)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        code, signal, hangs = runner.run(work(app, served, is_burst=burst))
        if is_json:
            told = {"exit_code": code, "cut_short": code != 0, "signal": signal}
            click.echo(msgspec.json.encode(told))
        if hangs:
            # Code that ignores its cancel would keep this process for ever.
            end_process(code)
    return code


def check_queues(queues: Sequence[str]) -> list[str] | None:
    """Plain names; None: every queue of the App."""
    for queue in queues:
        if "=" in queue:
            raise UsageError(
                f"-q {queue}: slots of a queue come with a later release",
                cure=f"Give the plain name: -q {queue.partition('=')[0]}",
            )
        check_name("queue", queue)
    return list(dict.fromkeys(queues)) or None


def changed_settings(settings: Settings, given: dict[str, Any]) -> Settings:
    """The App's settings, changed by flags; bad values are refused here."""
    worker: dict[str, Any] = {
        setting: given[option]
        for option, setting in NUMBERS.items()
        if given[option] is not None
    }
    for option, setting in DURATIONS.items():
        if given[option] is not None:
            worker[setting] = seconds(given[option], f"--{option}")
    log: dict[str, Any] = {}
    if given["log_format"]:
        log["format"] = given["log_format"]
    if given["log_level"]:
        log["level"] = given["log_level"].upper()
    return msgspec.structs.replace(
        settings,
        worker=msgspec.structs.replace(settings.worker, **worker),
        log=msgspec.structs.replace(settings.log, **log),
    )


def greet(app: App, queues: Sequence[str] | None) -> None:
    """Tell a person at a terminal who works on what."""
    tasks = sorted(app.registry.handlers)
    if not tasks:
        click.echo(f"warning: {app!r} has no tasks: give it imports=(...)", err=True)
    if not sys.stderr.isatty():
        return
    more = f" and {len(tasks) - TASKS_SHOWN} more" if len(tasks) > TASKS_SHOWN else ""
    worker = app.settings.worker
    lines = (
        f"durio {__version__}  app {app.name}  pid {os.getpid()}",
        f"  store   {masked(app.url)}",
        f"  queues  {', '.join(queues) if queues else 'all'}",
        f"  slots   {worker.concurrency}",
        f"  tasks   {', '.join(tasks[:TASKS_SHOWN]) or 'none'}{more}",
        f"  Ctrl-C  drains within {spoken(worker.grace_seconds)}; again: stops at once",
    )
    click.echo("\n".join(lines), err=True)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The one of uvloop where it is installed, else asyncio's own."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    return importlib.import_module("uvloop").new_event_loop


async def work(
    app: App, queues: Sequence[str] | None, *, is_burst: bool
) -> tuple[int, str | None, bool]:
    """Run a worker to its end: exit code, the signal that ended it, what hangs on."""
    heard: list[str] = []
    workers: list[Worker] = []

    def hear(signal: str, _count: int) -> None:
        heard.append(signal)
        for worker in workers:
            worker.stop()

    # Signals first: one that comes while the store is being opened is not lost.
    async with Signals(hear), app:
        worker = await make_worker(app, queues=queues, is_burst=is_burst)
        workers.append(worker)
        if heard:
            worker.stop()
        await worker.run()
    signal = heard[0] if heard else None
    if worker.is_overwhelmed:
        return EXIT_BLOCKED, signal, worker.hangs
    if not worker.was_cut_short:
        return 0, signal, worker.hangs
    code = INTERRUPTED if signal == "SIGINT" else TERMINATED
    return code, signal, worker.hangs
