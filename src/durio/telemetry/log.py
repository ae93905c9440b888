"""Log lines, text or JSON: records of a task carry their job, one write per exchange.

Engine events go to the logger `durio`, records of `ctx.log` to `durio.task.<name>`. If
`configure` gave them our handler (the worker's command line does), a batch of job events
is one write to the stream. Under another logging configuration each event becomes an
ordinary record.
"""

import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol, TextIO

import msgspec

from durio.model.failure import (
    LOG_LINE_CHARS_MAX,
    LOG_LINES_MAX,
    failure_of,
    storable,
)
from durio.model.ids import id_text
from durio.model.names import queue_of
from durio.model.settings import LogSettings
from durio.telemetry.emit import JobEvent
from durio.telemetry.frames import OUR_FRAMES, user_stack
from durio.telemetry.names import JOB_DONE, MEANINGS, EmissionMeaning

Logger = logging.Logger
JOB_EVENT_FIELDS = (
    *("error_type", "error", "decision", "reason", "delay_seconds", "meta", "worker"),
)
JOB_NAMES = [name for name in MEANINGS if name.startswith("job.")]
# What moves the cursor, ends a line, or turns the direction of writing.
UNSHOWN = (*range(32), *range(127, 160), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
ON_ONE_LINE = {code: repr(chr(code))[1:-1] for code in UNSHOWN}
LEVEL_NAMES = {10: "DEBUG  ", 20: "INFO   ", 30: "WARNING", 40: "ERROR  "}
LEVEL_COLOURS = {10: "2", 30: "33", 40: "31", 50: "31"}
EVENT_COLOURS = {JOB_DONE: "32"}
logger = logging.getLogger("durio")


class JobFields(Protocol):
    """The fields of every log record made in a task, and its last records."""

    @property
    def job_id(self) -> bytes: ...

    @property
    def task(self) -> str: ...

    @property
    def queue(self) -> str: ...

    @property
    def number(self) -> int:
        """The number of the attempt."""
        ...

    @property
    def records(self) -> deque[logging.LogRecord]:
        """The last records, for a failure."""
        ...


in_job: ContextVar[JobFields | None] = ContextVar("durio_job", default=None)


def new_records() -> deque[logging.LogRecord]:
    """Return a buffer for the last LOG_LINES_MAX records of an attempt."""
    return deque(maxlen=LOG_LINES_MAX)


def log_lines(records: deque[logging.LogRecord]) -> list[str]:
    """Return the last log lines of an attempt, stored with a failure."""
    # Copied first: another thread may log, and formatting a message may log too.
    return [_log_line(record) for record in list(records)]


def _log_line(record: logging.LogRecord) -> str:
    text = "<no message: its arguments cannot be formatted>"
    with suppress(Exception):  # user objects may raise anything
        text = record.getMessage()
    return storable(f"{record.levelname} {text}", LOG_LINE_CHARS_MAX)


def install_job_fields() -> None:
    """Add the job to every record made inside a task, for any formatter; idempotent."""
    made = logging.getLogRecordFactory()
    if getattr(made, "knows_jobs", False):
        return

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = made(*args, **kwargs)
        fields = in_job.get()
        if fields is not None:
            record.job_id = id_text(fields.job_id)
            record.task = fields.task
            record.queue = fields.queue
            record.attempt = fields.number
            fields.records.append(record)
        return record

    make.knows_jobs = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(make)


def structlog_binder() -> Callable[..., object] | None:
    """Return the function that binds fields for structlog, if the program has loaded it."""
    module = sys.modules.get("structlog.contextvars")
    return None if module is None else module.bind_contextvars


def task_logger(task: str) -> logging.Logger:
    """Return `ctx.log`: an ordinary logger, whose records name the job."""
    return logging.getLogger(f"durio.task.{task}")


# --- writing


class StreamLog(logging.StreamHandler[TextIO]):
    """Our log handler, which can write many lines at once."""

    def __init__(self, settings: LogSettings, stream: TextIO) -> None:
        super().__init__(stream)
        self.lines = JsonLines() if settings.format == "json" else TextLines(stream)
        self.setFormatter(self.lines)
        self._one_at_a_time: Any = self.lock

    # A soft limit may be raised in a thread at any instruction. Between a call that
    # takes a lock and the `try` that releases it, the lock would stay taken; `with` has
    # no such gap. So these two do nothing, and `emit` takes the lock.

    def acquire(self) -> None: ...

    def release(self) -> None: ...

    def emit(self, record: logging.LogRecord) -> None:
        with self._one_at_a_time:
            super().emit(record)

    def write_lines(self, lines: list[str]) -> None:
        with self._one_at_a_time:
            self.stream.write("\n".join(lines) + "\n")
            self.flush()


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Set up logging of this process, for the worker's command line.

    Called after the App was imported: where the host has set up logging, only `durio`
    gets our handler, and does not propagate to the host's. With format `none` all
    records go to the host's logging.
    """
    root = logging.getLogger()
    for each in (root, logger):
        for old in [old for old in each.handlers if isinstance(old, StreamLog)]:
            each.removeHandler(old)
            logger.propagate = True
    install_job_fields()
    if settings.format == "none" or logger.handlers:
        return  # the host's logging, or its own handler of `durio`
    enable_loggers()
    logger.propagate = not root.handlers
    target = root if logger.propagate else logger
    target.addHandler(StreamLog(settings, stream or sys.stderr))
    target.setLevel(settings.level)


def enable_loggers() -> None:
    """Undo `disable_existing_loggers` of a host's dictConfig for our loggers."""
    for name, each in logger.manager.loggerDict.items():
        if f"{name}.".startswith("durio.") and isinstance(each, logging.Logger):
            each.disabled = False


class LogWriter:
    """Turns events into log lines."""

    def wants(self, meaning: EmissionMeaning) -> bool:
        return logger.isEnabledFor(meaning.level)

    def on_event(
        self, name: str, meaning: EmissionMeaning, fields: dict[str, Any]
    ) -> None:
        if logger.isEnabledFor(meaning.level):
            stack = fields.get("stack", "")
            text = " ".join(
                f"{k}={on_one_line(v)}" for k, v in fields.items() if k != "stack"
            )
            text += f"\n{_indented(user_stack(stack))}" if stack else ""
            logger.log(
                meaning.level,
                "%s %s",
                name,
                text,
                extra={"event": name, "fields": fields},
            )

    def on_jobs(self, events: Sequence[JobEvent]) -> None:
        """Write the batch at once if the handler is ours, else one record for each event."""
        handler = _own_handler()
        is_on = {name: logger.isEnabledFor(MEANINGS[name].level) for name in JOB_NAMES}
        seen = [event for event in events if is_on[event.name]]
        if not seen:
            return
        if handler is None:
            for event in seen:
                _log_job_event(event)
        else:
            stamp, write = handler.lines.stamp(datetime.now(UTC)), handler.lines.event
            handler.write_lines([write(event, stamp) for event in seen])


def _own_handler() -> StreamLog | None:
    """Return our handler, if records of `durio` go there and nowhere else."""
    handlers = [*logger.handlers]
    if logger.propagate:
        handlers += logging.getLogger().handlers
    only = handlers[0] if len(handlers) == 1 else None
    return only if isinstance(only, StreamLog) else None


def _log_job_event(event: JobEvent) -> None:
    fields = job_fields(event)
    text = " ".join(
        f"{k}={on_one_line(v)}" for k, v in fields.items() if k != "traceback"
    )
    text += f"\n{_indented(event.traceback)}" if event.traceback else ""
    level = MEANINGS[event.name].level
    logger.log(
        level, "%s %s", event.name, text, extra={"event": event.name, "fields": fields}
    )


def job_fields(event: JobEvent) -> dict[str, Any]:
    """Return the fields of a job event, except its name and time."""
    fields: dict[str, Any] = {
        "job_id": id_text(event.id),
        "task": event.task,
        "queue": queue_of(event.lane),
        "attempt": event.attempt,
        **({"max_attempts": event.max_attempts} if event.max_attempts else {}),
        "duration_ms": round(event.duration_seconds * 1000, 3),
    }
    for name in JOB_EVENT_FIELDS:
        value = getattr(event, name)
        if value:
            fields[name] = round(value, 3) if name == "delay_seconds" else value
    if event.traceback:
        fields["traceback"] = event.traceback
    return fields


def attempt_text(attempt: int, most: int) -> str:
    """Return text such as `attempt 2 of 6`.

    Attempts that were lost, or that a raised Retry allowed, may exceed the number.
    """
    return f"attempt {attempt} of {most}" if most >= attempt else f"attempt {attempt}"


class TextLines(logging.Formatter):
    """Formats time, level and text; a task's own record ends with its job.

    On a terminal with colours, and times of the day; elsewhere with the whole time.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._is_terminal = stream.isatty()
        self._has_colour = (
            self._is_terminal
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
        self._names = {name: self._level_and_name(name) for name in JOB_NAMES}

    def stamp(self, moment: datetime) -> str:
        if self._is_terminal:
            return moment.astimezone().strftime("%H:%M:%S")
        return format_time(moment)

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        fields: dict[str, Any] = record.__dict__
        if "job_id" in fields:
            text += JOB_FIELDS.format_map(fields)
        level = self._coloured(f"{record.levelname:<7}", record.levelno)
        line = f"{self.stamp(_record_time(record))} {level} {text}"
        if (trace := _traceback(record)) is not None:
            line += "\n" + _indented(trace)
        return line

    def event(self, event: JobEvent, stamp: str) -> str:
        queue = _queue_and_attempt(event.lane, event.attempt, event.max_attempts)
        line = (
            f"{stamp} {self._names[event.name]} {event.task} {id_text(event.id)} {queue} "
            f"duration_ms={event.duration_seconds * 1000:.1f}"
        )
        if event.name == JOB_DONE:  # the most frequent event has no other fields
            return line
        for field in ("reason", "error_type", "error", "decision"):
            if value := getattr(event, field):
                line += f" {field}={on_one_line(value)}"
        if event.delay_seconds:
            line += f" delay_seconds={event.delay_seconds:.1f}"
        line += f" meta={on_one_line(event.meta)}" if event.meta else ""
        return f"{line}\n{_indented(event.traceback)}" if event.traceback else line

    def _level_and_name(self, name: str) -> str:
        number = MEANINGS[name].level
        colour = EVENT_COLOURS.get(name) if self._has_colour else None
        level = self._coloured(LEVEL_NAMES[number], number)
        return f"{level} {with_code(f'{name:<13}', colour)}"

    def _coloured(self, text: str, level: int) -> str:
        return with_code(text, LEVEL_COLOURS.get(level)) if self._has_colour else text


@lru_cache(maxsize=256)  # most events share one
def _queue_and_attempt(lane: str, attempt: int, most: int) -> str:
    return f"queue={queue_of(lane)} {attempt_text(attempt, most)}"


def with_code(text: str, code: str | None) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


JOB_FIELDS = " {task} {job_id} queue={queue} attempt {attempt}"

STANDARD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {
    *("message", "asctime", "taskName", "event", "fields")
}


class JsonLines(logging.Formatter):
    """Formats one JSON object per line; `extra=` fields are kept."""

    def stamp(self, moment: datetime) -> str:
        return format_time(moment)

    def event(self, event: JobEvent, stamp: str) -> str:
        level = logging.getLevelName(MEANINGS[event.name].level)
        first = {"ts": stamp, "level": level, "logger": logger.name}
        fields = {**first, "event": event.name, **job_fields(event)}
        return msgspec.json.encode(fields, enc_hook=repr).decode()

    def format(self, record: logging.LogRecord) -> str:
        event = getattr(record, "event", None)
        out: dict[str, Any] = {
            "ts": format_time(_record_time(record)),
            "level": record.levelname,
            "logger": record.name,
        }
        if event is not None:
            out = {**out, "event": event, **getattr(record, "fields", {})}
        else:
            out["message"] = record.getMessage()
        out |= {k: v for k, v in record.__dict__.items() if k not in STANDARD_FIELDS}
        if (trace := _traceback(record)) is not None:
            out["traceback"] = trace
        return msgspec.json.encode(out, enc_hook=repr).decode()


def _traceback(record: logging.LogRecord) -> str | None:
    """Return the traceback of a record; a record from a child process has it as text."""
    if record.exc_info and record.exc_info[1] is not None:
        return failure_of(record.exc_info[1], hidden=OUR_FRAMES).traceback
    return record.exc_text or None


def _record_time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def format_time(moment: datetime) -> str:
    """Return a time in the form of the log: UTC, to the millisecond."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _indented(text: str) -> str:
    """Indent the text, so that its lines cannot be mistaken for log lines."""
    lines = text.rstrip().expandtabs().splitlines()
    return "\n".join(f"    {line.translate(ON_ONE_LINE)}" for line in lines)


def on_one_line(value: Any) -> str:
    """Return the value shortened and on one line, so that it cannot forge log lines."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > LOG_LINE_CHARS_MAX:
        text = text[:LOG_LINE_CHARS_MAX] + "..."
    return text if text.isprintable() else text.translate(ON_ONE_LINE)
