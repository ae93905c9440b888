"""`durio queues drain`: close a queue, and wait until it is empty."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

import click

from durio.app.app import App
from durio.cli.apps import Place
from durio.cli.lines import Line, check_known, known_queues, lines_of
from durio.cli.output import safe
from durio.model.duration import spoken
from durio.model.errors import UsageError
from durio.model.names import lane
from durio.ports.control import QueueChange

LOOK_SECONDS = 0.2


def drain(place: Place, queue: str, limit_seconds: float, by: str) -> Line:
    """Close it and wait; the queue as it was at the end."""

    async def ask(app: App) -> Line:
        check_known([queue], await known_queues(app), app.name)
        refuse_paused(await line_named(app, queue), queue)
        close = QueueChange(closed=True)
        await (await app.store()).change_queue(lane(app.name, queue), close, by=by)
        return await wait_until_empty(app, queue, limit_seconds)

    try:
        return place.ask(ask)
    except KeyboardInterrupt:
        told = f"{queue} stays closed; open it with: durio queues resume {queue}"
        click.echo(safe(told), err=True)
        raise


async def line_named(app: App, queue: str) -> Line | None:
    """One queue as it is now; None: never used."""
    found = [line for line in await lines_of(app) if line.queue == queue]
    return found[0] if found else None


def refuse_paused(line: Line | None, queue: str) -> None:
    """A paused queue with jobs would never be empty."""
    if line is not None and line.paused and line.depth:
        raise UsageError(
            f"queue {queue} is paused with {line.depth} jobs: it would never be empty",
            cure=f"Resume it first: durio queues resume {queue}",
        )


async def wait_until_empty(app: App, queue: str, limit_seconds: float) -> Line:
    """Look again and again; TimeoutError when the time is over."""
    deadline = app.clock.monotonic() + limit_seconds
    with told_progress() as tell:
        while True:
            line = await line_named(app, queue)
            if line is not None:
                tell(line)
                if not (line.depth or line.running):
                    return line
            if app.clock.monotonic() >= deadline:
                raise TimeoutError(
                    f"queue {queue} is not empty after {spoken(limit_seconds)}: "
                    f"{rest_text(line)}; it stays closed until durio queues resume"
                )
            await app.clock.sleep(LOOK_SECONDS)


def rest_text(line: Line | None) -> str:
    """What is left of a queue."""
    if line is None:
        return "nothing is known of it"
    parts = [
        f"{line.ready} ready",
        f"{line.scheduled + line.blocked} scheduled",
        f"{line.running} running",
    ]
    served = "" if line.workers else ", no worker serves it"
    return ", ".join(parts) + served


class Telling:
    """Says how far it is: on a terminal in one line, elsewhere once and when it changes."""

    def __init__(self) -> None:
        self.is_live = sys.stderr.isatty()
        self.last = ""

    def __call__(self, line: Line) -> None:
        """Tell, if there is anything new."""
        told = rest_text(line)
        if told == self.last:
            return
        if self.is_live:
            click.echo(f"\r{told.ljust(len(self.last))}", err=True, nl=False)
        elif not self.last:
            click.echo(f"draining: {told}", err=True)
        self.last = told


@contextmanager
def told_progress() -> Generator[Telling]:
    """Ends the line that it wrote, whatever happens."""
    telling = Telling()
    try:
        yield telling
    finally:
        if telling.is_live and telling.last:
            click.echo("", err=True)
