"""`durio tail`: shows events of a store as they happen."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import click
import msgspec

from durio.app.app import App
from durio.cli.apps import AppSelection, app_argument, selection_options
from durio.cli.main import keep_lines
from durio.cli.output import show_json, show_text
from durio.model.errors import UsageError
from durio.model.names import check_name, did_you_mean
from durio.model.quantities import counted
from durio.model.quantities import seconds as as_seconds
from durio.telemetry.log import attempt_text, on_one_line
from durio.telemetry.names import LEVELS, MEANINGS

READ_SECONDS = 0.5
MISSED = "live.missed"
LEVEL_NUMBERS = {name: level for level, name in LEVELS.items()}
# Fields that begin a line, or that it does not show.
HEAD = {"ts", "level", "event", "namespace", "task", "job_id", "max_attempts"}
MULTILINE_FIELDS = ("traceback", "stack")


@dataclass(frozen=True, slots=True, kw_only=True)
class TailFilter:
    namespace: str | None
    queue: str | None
    task: str | None
    events: tuple[str, ...]
    level: int

    def wants(self, fields: dict[str, Any]) -> bool:
        """Whether an event matches; a note about missed events always does."""
        event = fields.get("event")
        if event == MISSED:
            return True
        return (
            LEVEL_NUMBERS.get(str(fields.get("level")), 0) >= self.level
            and self.namespace in {None, fields.get("namespace")}
            and self.queue in {None, fields.get("queue")}
            and self.wants_task(str(fields.get("task")))
            and any(fnmatchcase(str(event), each) for each in self.events or ("*",))
        )

    def wants_task(self, task: str) -> bool:
        """Return whether the task is wanted; without its App's name it may be of any App."""
        return self.task in {None, task, task.partition(".")[2]}


@click.command("tail", short_help="Follow events of all processes live.")
@click.option("--queue", metavar="QUEUE", help="Only jobs of this queue.")
@click.option("--task", metavar="TASK", help="Only jobs of this task.")
@click.option(
    "--event", "events", multiple=True, metavar="GLOB",
    help="Only these events, such as 'job.*'; may be repeated.",
)  # fmt: skip
@click.option(
    "--level",
    type=click.Choice(list(LEVEL_NUMBERS), case_sensitive=False),
    default="DEBUG",
    help="Lowest level to show (default debug).",
)
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="End after N events."
)
@click.option("--seconds", metavar="SECONDS", help="End after this time.")
@selection_options
@app_argument
@keep_lines
def command(
    *, selection: AppSelection, limit: int | None, seconds: str | None, **given: Any
) -> None:
    r"""Follow the events of all processes on a store live.

    While the command listens, workers send everything they log, at every level, and
    programs send the jobs that they enqueue. It can take a second until every process
    has noticed the listener. Events are not stored: for the past use durio jobs ls. If
    the listener is too slow, it prints how many events it missed. Ctrl-C ends the
    command.

    \b
    Examples:
      durio tail
      durio tail app:app --event job.dead
      durio tail --event 'job.*' --queue mail --level WARNING
      durio tail --json --event job.dead | jq -r .job_id

    With --json: one object per line, {"ts", "level", "event", "namespace", "process", ...}
    and the fields of the event; {"event": "live.missed", "events"} where events were missed.

    \b
    Exit codes: 0 also after Ctrl-C, --limit and --seconds; 2 usage; 3 store
    """
    left = None if seconds is None else as_seconds(seconds, "--seconds")
    chosen = filter_of(selection, given)

    async def follow(app: App) -> None:
        try:
            async with asyncio.timeout(left):
                await show_live_events(app, chosen, limit, is_json=selection.is_json)
        except TimeoutError:
            return

    try:
        selection.run_unscoped(follow)
    except KeyboardInterrupt:
        return  # Ctrl-C is the normal end


def filter_of(selection: AppSelection, given: dict[str, Any]) -> TailFilter:
    app = selection.app()
    for event in given["events"]:
        check_event(event)
    task, queue = given["task"], given["queue"]
    return TailFilter(
        namespace=selection.scope(app),
        queue=check_name("queue", queue) if queue else None,
        task=check_name("task", task) if task else None,
        events=given["events"],
        level=LEVEL_NUMBERS[given["level"].upper()],
    )


def check_event(event: str) -> None:
    """Refuse a pattern that matches no event, because it would never show anything."""
    if not any(fnmatchcase(name, event) for name in MEANINGS):
        raise UsageError(
            f"there is no event {event!r}",
            cure=f"Give a name, or 'job.*'.{did_you_mean(event, MEANINGS)}",
        )


async def show_live_events(
    app: App, chosen: TailFilter, limit: int | None, *, is_json: bool
) -> None:
    """Show events until interrupted, or until `limit` are shown."""
    shown = 0
    async with (await app.store()).subscribe() as subscriber:
        while True:
            for fields in decoded(await subscriber.read(READ_SECONDS)):
                if not chosen.wants(fields):
                    continue
                show(fields, is_json=is_json)
                shown += fields.get("event") != MISSED
                if limit is not None and shown >= limit:
                    return


def decoded(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the events; skip lines that are not events."""
    for line in lines:
        try:
            fields = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(fields, dict):
            yield fields


def show(fields: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        show_json(fields)
    else:
        show_text(event_text(fields))


def event_text(fields: dict[str, Any]) -> str:
    """Return an event in the form of the log; values with several lines come below."""
    if fields.get("event") == MISSED:
        missed = counted(fields.get("events", 0), "event")
        return f"... {missed} of other processes missed: too many at once"
    parts = [
        f"{fields.get('ts', '')} {fields.get('level', ''):<7} {fields.get('event', ''):<13}"
    ]
    parts += [str(fields[name]) for name in ("task", "job_id") if name in fields]
    parts += [
        attempt_text(value, fields.get("max_attempts", 0))
        if name == "attempt"
        else f"{name}={on_one_line(value)}"
        for name, value in fields.items()
        if name not in HEAD and name not in MULTILINE_FIELDS
    ]
    lines = [" ".join(parts)]
    for name in MULTILINE_FIELDS:
        lines += [f"    {line}" for line in str(fields.get(name, "")).splitlines()]
    return "\n".join(lines)
