"""Log records of a child process come out of its worker's logging, with their job.

In the child every logger hands its records to one handler; the worker makes records of
them again and gives them to the logger of the same name, so that levels, handlers and
formats are the worker's, and nothing is written twice.
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
    """The only handler of a child."""

    def __init__(self, send: Callable[[ForwardedRecord], None]) -> None:
        super().__init__()
        self._send = send

    # The line has a lock of its own, and a thread that is interrupted may keep this one.

    def acquire(self) -> None:
        """Nothing."""

    def release(self) -> None:
        """Nothing."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record on its way."""
        try:
            self._send(forwarded_record(record))
        except Exception:  # whatever it is made of: a log call fails no task
            self.handleError(record)


def forwarded_record(record: logging.LogRecord) -> ForwardedRecord:
    """A record as plain data, whatever a user put into it."""
    text = "<no message: its arguments cannot be formatted>"
    with suppress(Exception):  # they are the user's, and may raise anything
        text = record.getMessage()
    # Types too: records may be made by hand, of anything.
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
    """What `extra=` gave it, as far as it can be told."""
    told: dict[str, msgspec.Raw] = {}
    for name, value in record.__dict__.items():
        if name in EMISSION_FIELDS or name not in NOT_EXTRA:
            with suppress(Exception):  # a repr may raise anything too
                told[_bounded_name(name)] = _raw(name, value)
    return msgspec.json.encode(told)


def _raw(name: str, value: Any) -> msgspec.Raw:
    # Our own emissions are plain data already.
    if name not in EMISSION_FIELDS and not isinstance(value, PLAIN_TYPES):
        text = value if isinstance(value, str) else repr(value)
        value = storable(text, EXTRA_CHARS_MAX)
    return msgspec.Raw(msgspec.json.encode(value, enc_hook=repr))


def forward_all(
    send: Callable[[ForwardedRecord], None], level: int, log: LogSettings
) -> None:
    """Let every logger of this process hand its records to `say`, and to nobody else."""
    root = logging.getLogger()
    written = StreamLog(log, sys.stderr)

    def write_in_fork() -> None:
        """A process that a task forks has no line to the worker, but the same stderr."""
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
    """The lowest level that this process listens to at its root."""
    return logging.getLogger().getEffectiveLevel()


def replay(logged: ForwardedRecord, fields: JobFields | None) -> None:
    """A child's record once more, here; it also counts as one of its job."""
    # Filters and handlers are the user's: what they raise must not stop other words.
    with suppress(Exception):
        _replay(logged, fields)


def _replay(logged: ForwardedRecord, fields: JobFields | None) -> None:
    logger = logging.getLogger(logged.name)
    file, line, function = logged.location
    # Whoever makes records gives those of a job its fields.
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
