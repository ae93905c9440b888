"""Forward log records of a child process to its worker's logging, with their job.

In the child one handler gets the records of every logger. The worker creates the records
again and passes them to the logger of the same name. So levels, handlers and formats are
the worker's, and nothing is written twice.
"""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from durio.host.child_wire import ForwardedRecord
from durio.model.failure import MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX, storable
from durio.model.settings import LogSettings
from durio.telemetry.log import STANDARD_FIELDS, JobFields, StreamLog, in_job

NOT_EXTRA = STANDARD_FIELDS | {"job_id", "task", "queue", "attempt"}
EMISSION_FIELDS = frozenset({"event", "fields"})
EXTRA_CHARS_MAX = 1_000
NAME_CHARS_MAX = 1_000
PLAIN_TYPES = int | float | bool | None
formatter = logging.Formatter()


class Forwarder(logging.Handler):
    """The only log handler of a child."""

    def __init__(self, send: Callable[[ForwardedRecord], None]) -> None:
        super().__init__()
        self._send = send

    # No lock here: the connection has its own, and an interrupted thread might never
    # release this one.

    def acquire(self) -> None: ...

    def release(self) -> None: ...

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._send(forwarded_record(record))
        except Exception:  # a log call must not fail its task
            self.handleError(record)


def forwarded_record(record: logging.LogRecord) -> ForwardedRecord:
    """Return a record as plain data, whatever objects a user put into it."""
    text = "<no message: its arguments cannot be formatted>"
    with suppress(Exception):  # user objects may raise anything
        text = record.getMessage()
    # Convert types: user code may create records with fields of any type.
    file, line, function = record.pathname, record.lineno, record.funcName
    return ForwardedRecord(
        name=_bounded_name(record.name),
        level=int(record.levelno or 0),
        text=storable(text, MESSAGE_CHARS_MAX),
        created=float(record.created),
        location=(_bounded_name(file), int(line or 0), _bounded_name(function)),
        error=storable(_error_of(record), TRACEBACK_CHARS_MAX),
        extra=_extra_of(record),
        in_job=in_job.get() is not None,
    )


def _bounded_name(name: object) -> str:
    return storable(str(name or ""), NAME_CHARS_MAX)


def _error_of(record: logging.LogRecord) -> str:
    with suppress(Exception):
        if record.exc_info:
            return formatter.formatException(record.exc_info)
    return record.exc_text or ""


def _extra_of(record: logging.LogRecord) -> bytes:
    """Return the fields of `extra=`, as far as they can be encoded."""
    fields: dict[str, msgspec.Raw] = {}
    for name, value in record.__dict__.items():
        if name in EMISSION_FIELDS or name not in NOT_EXTRA:
            with suppress(Exception):  # a repr may raise anything
                fields[_bounded_name(name)] = _raw(name, value)
    return msgspec.json.encode(fields)


def _raw(name: str, value: Any) -> msgspec.Raw:
    # Fields of our own events are already plain data.
    if name not in EMISSION_FIELDS and not isinstance(value, PLAIN_TYPES):
        text = value if isinstance(value, str) else repr(value)
        value = storable(text, EXTRA_CHARS_MAX)
    return msgspec.Raw(msgspec.json.encode(value, enc_hook=repr))


def forward_all(
    send: Callable[[ForwardedRecord], None], level: int, log: LogSettings
) -> None:
    """Send the records of every logger of this process to `send` only."""
    root = logging.getLogger()
    written = StreamLog(log, sys.stderr)

    def write_in_fork() -> None:
        """Log to stderr in a forked process, which has no connection to the worker."""
        root.handlers[:] = [
            written if isinstance(handler, Forwarder) else handler
            for handler in root.handlers
        ]

    os.register_at_fork(after_in_child=write_in_fork)
    for logger in list(root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.handlers.clear()
            logger.propagate = True
    root.handlers[:] = [Forwarder(send)]
    root.setLevel(level)


def wanted_level() -> int:
    """Return the lowest level that this process logs, of tasks or of other code."""
    loggers = logging.getLogger(), logging.getLogger("durio")
    return min(each.getEffectiveLevel() for each in loggers)


def replay(logged: ForwardedRecord, fields: JobFields | None) -> None:
    """Log a child's record in this process; it also counts as a record of its job."""
    # Filters and handlers are user code, whose errors must not stop other messages.
    with suppress(Exception):
        _replay(logged, fields)


def _replay(logged: ForwardedRecord, fields: JobFields | None) -> None:
    logger = logging.getLogger(logged.name)
    file, line, function = logged.location
    # The record factory adds the fields of the job in `in_job`.
    token = in_job.set(fields if logged.in_job else None)
    try:
        record = logger.makeRecord(
            logged.name, logged.level, file, line, logged.text, (), None, function
        )
    finally:
        in_job.reset(token)
    record.created = logged.created
    record.msecs = (logged.created % 1) * 1000
    record.exc_text = logged.error or None
    record.__dict__.update(msgspec.json.decode(logged.extra))
    if logger.isEnabledFor(logged.level):
        logger.handle(record)
