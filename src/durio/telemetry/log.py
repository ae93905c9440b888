"""Log lines: human or JSON, every record of a task with its job, one write per exchange.

Engine events go to the logger `durio`. When `configure` set logging up (the worker's
command line does), a batch of job events is one write to the stream; under somebody
else's logging configuration each becomes an ordinary record.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Protocol, TextIO

import msgspec

from durio.model.failure import LOG_LINE_CHARS_MAX, LOG_LINES_MAX, storable
from durio.model.ids import id_text
from durio.model.names import queue_of
from durio.model.settings import LogSettings
from durio.telemetry.emit import JobEvent
from durio.telemetry.names import JOB_DONE, MEANINGS, EmissionMeaning

Logger = logging.Logger
JOB_NAMES = [name for name in MEANINGS if name.startswith("job.")]
ON_ONE_LINE = {
    code: repr(chr(code))[1:-1] for code in (*range(32), 127, 0x85, 0x2028, 0x2029)
}
LEVEL_NAMES = {10: "DEBUG  ", 20: "INFO   ", 30: "WARNING", 40: "ERROR  "}
logger = logging.getLogger("durio")


class JobFields(Protocol):
    """What every log record made in a task carries, and a place for its last ones."""

    @property
    def job_id(self) -> bytes:
        """Which job."""
        ...

    @property
    def task(self) -> str:
        """Its task."""
        ...

    @property
    def queue(self) -> str:
        """Its queue."""
        ...

    @property
    def number(self) -> int:
        """Which attempt."""
        ...

    @property
    def records(self) -> deque[logging.LogRecord]:
        """The last records, for a failure."""
        ...


in_job: ContextVar[JobFields | None] = ContextVar("durio_job", default=None)


def new_records() -> deque[logging.LogRecord]:
    """Room for an attempt's last log records."""
    return deque(maxlen=LOG_LINES_MAX)


def log_lines(records: deque[logging.LogRecord]) -> list[str]:
    """The last log lines of an attempt, for a failure's record."""
    # Copied in one piece: another thread may be logging, and a message that is formatted
    # here may log by itself.
    return [_log_line(record) for record in list(records)]


def _log_line(record: logging.LogRecord) -> str:
    text = "<no message: its arguments cannot be formatted>"
    with suppress(Exception):  # they are the user's, and may raise anything
        text = record.getMessage()
    return storable(f"{record.levelname} {text}", LOG_LINE_CHARS_MAX)


def install_job_fields() -> None:
    """Give every record made inside a task its job, whoever formats it. Idempotent."""
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
    """Binds fields for structlog, in programs that have loaded it; None elsewhere."""
    module = sys.modules.get("structlog.contextvars")
    return None if module is None else module.bind_contextvars


def task_logger(task: str) -> logging.Logger:
    """`ctx.log`: an ordinary logger; its records carry the job by themselves."""
    return logging.getLogger(f"durio.task.{task}")


# --- writing


class StreamLog(logging.StreamHandler[TextIO]):
    """Our handler: knows how to write many lines at once."""

    def __init__(self, settings: LogSettings, stream: TextIO) -> None:
        super().__init__(stream)
        self.is_json = settings.format == "json"
        self.setFormatter(JsonLines() if self.is_json else HumanLines())
        self._one_at_a_time: Any = self.lock

    # A soft limit may be raised in a thread at any step. Between a call that takes a lock
    # and the `try` that frees it the lock would stay taken; `with` has no such step.

    def acquire(self) -> None:
        """Nothing yet: the lock is taken where it is sure to be freed."""

    def release(self) -> None:
        """Nothing: see above."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        with self._one_at_a_time:
            super().emit(record)

    def write_lines(self, lines: list[str]) -> None:
        """One write for all of them."""
        with self._one_at_a_time:
            self.stream.write("\n".join(lines) + "\n")
            self.flush()


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Make this process log our way: for the worker's command line."""
    handler = StreamLog(settings, stream or sys.stderr)
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old, StreamLog):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(settings.level)
    install_job_fields()


class LogWriter:
    """Subscribes to emissions and turns them into log lines."""

    def wants(self, meaning: EmissionMeaning) -> bool:
        """Whether this level is on."""
        return logger.isEnabledFor(meaning.level)

    def on_event(
        self, name: str, meaning: EmissionMeaning, fields: dict[str, Any]
    ) -> None:
        """One record."""
        if logger.isEnabledFor(meaning.level):
            stack = fields.get("stack", "")
            told = " ".join(
                f"{k}={on_one_line(v)}" for k, v in fields.items() if k != "stack"
            )
            told += f"\n{_indented(stack)}" if stack else ""
            logger.log(
                meaning.level,
                "%s %s",
                name,
                told,
                extra={"event": name, "fields": fields},
            )

    def on_jobs(self, events: Sequence[JobEvent]) -> None:
        """One write for the batch when the handler is ours, else a record each."""
        handler = _own_handler()
        is_on = {name: logger.isEnabledFor(MEANINGS[name].level) for name in JOB_NAMES}
        seen = [event for event in events if is_on[event.name]]
        if not seen:
            return
        if handler is None:
            for event in seen:
                _log_job_event(event)
        else:
            stamp = format_time(datetime.now(UTC))
            write = _json_line if handler.is_json else _human_line
            handler.write_lines([write(event, stamp) for event in seen])


def _own_handler() -> StreamLog | None:
    handlers = logging.getLogger().handlers
    if (
        len(handlers) == 1
        and not logger.handlers
        and isinstance(handlers[0], StreamLog)
    ):
        return handlers[0]
    return None


def _log_job_event(event: JobEvent) -> None:
    fields = job_fields(event)
    told = " ".join(f"{k}={on_one_line(v)}" for k, v in fields.items())
    level = MEANINGS[event.name].level
    logger.log(
        level, "%s %s", event.name, told, extra={"event": event.name, "fields": fields}
    )


def job_fields(event: JobEvent) -> dict[str, Any]:
    """What is told about a job, beside the event's name and time."""
    fields: dict[str, Any] = {
        "job_id": id_text(event.id),
        "task": event.task,
        "queue": queue_of(event.lane),
        "attempt": event.attempt,
        "duration_ms": round(event.duration_seconds * 1000, 3),
    }
    for name in ("error_type", "error", "reason", "delay_seconds", "meta", "worker"):
        value = getattr(event, name)
        if value:
            fields[name] = value
    if event.traceback:
        fields["traceback"] = event.traceback
    return fields


def _human_line(event: JobEvent, stamp: str) -> str:
    if event.name == JOB_DONE:  # by far the most
        return (
            f"{stamp} INFO    job.done      {event.task} {id_text(event.id)} "
            f"queue={queue_of(event.lane)} attempt={event.attempt} "
            f"duration_ms={event.duration_seconds * 1000:.1f}"
        )
    level = LEVEL_NAMES[MEANINGS[event.name].level]
    line = (
        f"{stamp} {level} {event.name:<13} {event.task} {id_text(event.id)} "
        f"queue={queue_of(event.lane)} attempt={event.attempt} "
        f"duration_ms={event.duration_seconds * 1000:.1f}"
    )
    for name in ("reason", "error_type", "error", "delay_seconds", "meta"):
        value = getattr(event, name)
        if value:
            line += f" {name}={on_one_line(value)}"
    return f"{line}\n{_indented(event.traceback)}" if event.traceback else line


def _json_line(event: JobEvent, stamp: str) -> str:
    level = logging.getLevelName(MEANINGS[event.name].level)
    fields = {"ts": stamp, "level": level, "event": event.name, **job_fields(event)}
    return msgspec.json.encode(fields, enc_hook=repr).decode()


JOB_FIELDS = " job_id={job_id} task={task} queue={queue} attempt={attempt}"


class HumanLines(logging.Formatter):
    """Time, level, words; a task's own record ends with its job."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback when there is one."""
        text = record.getMessage()
        told: dict[str, Any] = record.__dict__
        if "job_id" in told:
            text += JOB_FIELDS.format_map(told)
        line = f"{format_time(_record_time(record))} {record.levelname:<7} {text}"
        if (trace := _traceback(self, record)) is not None:
            line += "\n" + _indented(trace)
        return line


STANDARD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {
    *("message", "asctime", "taskName", "event", "fields")
}


class JsonLines(logging.Formatter):
    """One JSON object a line; `extra=` fields survive."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
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
        if (trace := _traceback(self, record)) is not None:
            out["traceback"] = trace
        return msgspec.json.encode(out, enc_hook=repr).decode()


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    """Of a record with an error; one from a child process has it as text."""
    if record.exc_info:
        return formatter.formatException(record.exc_info)
    return record.exc_text or None


def _record_time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def format_time(moment: datetime) -> str:
    """A time as logs write it: UTC, to the millisecond."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _indented(text: str) -> str:
    """Lines that nobody can take for log lines of their own."""
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())


def on_one_line(value: Any) -> str:
    """Bounded, and on one line: a value must not be able to forge log lines."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > LOG_LINE_CHARS_MAX:
        text = text[:LOG_LINE_CHARS_MAX] + "..."
    return text if text.isprintable() else text.translate(ON_ONE_LINE)
