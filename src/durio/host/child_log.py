"""Log records of a child process come out of its worker's logging, with their job.

In the child every logger hands its records to one handler; the worker makes records of
them again and gives them to the logger of the same name, so that levels, handlers and
formats are the worker's, and nothing is written twice.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from durio.host.child_wire import Logged
from durio.model.failure import MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX, storable
from durio.telemetry.log import PLAIN_RECORD, JobFields, in_job

NOT_EXTRA = PLAIN_RECORD | {"job_id", "task", "queue", "attempt"}
OURS = frozenset({"event", "fields"})
EXTRA_CHARS_MAX = 1_000
PLAIN_TYPES = int | float | bool | None
formatter = logging.Formatter()


class Forwarder(logging.Handler):
    """The only handler of a child."""

    def __init__(self, say: Callable[[Logged], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record on its way."""
        text = "<no message: its arguments cannot be formatted>"
        with suppress(Exception):  # they are the user's, and may raise anything
            text = record.getMessage()
        self._say(
            Logged(
                name=record.name,
                level=record.levelno,
                text=storable(text, MESSAGE_CHARS_MAX),
                created=record.created,
                place=(record.pathname, record.lineno, record.funcName or ""),
                error=storable(_error_of(record), TRACEBACK_CHARS_MAX),
                extra=_extra_of(record),
                in_job=in_job.get() is not None,
            )
        )


def _error_of(record: logging.LogRecord) -> str:
    with suppress(Exception):
        if record.exc_info:
            return formatter.formatException(record.exc_info)
    return record.exc_text or ""


def _extra_of(record: logging.LogRecord) -> dict[str, Any]:
    """What `extra=` gave it, as plain data; our own emissions are that already."""
    told: dict[str, Any] = {}
    for name, value in record.__dict__.items():
        if name in OURS or (name not in NOT_EXTRA and isinstance(value, PLAIN_TYPES)):
            told[name] = value
        elif name not in NOT_EXTRA:
            with suppress(Exception):  # a repr may raise anything too
                text = value if isinstance(value, str) else repr(value)
                told[name] = storable(text, EXTRA_CHARS_MAX)
    return told


def forward_all(say: Callable[[Logged], None], level: int) -> None:
    """Let every logger of this process hand its records to `say`, and to nobody else."""
    root = logging.getLogger()
    for logger in list(root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.handlers.clear()
            logger.propagate = True
    root.handlers[:] = [Forwarder(say)]
    root.setLevel(level)


def wanted_level() -> int:
    """The lowest level that this process listens to at its root."""
    return logging.getLogger().getEffectiveLevel()


def replay(logged: Logged, fields: JobFields | None) -> None:
    """A child's record once more, here; it also counts as one of its job."""
    logger = logging.getLogger(logged.name)
    file, line, function = logged.place
    # Whoever makes records gives those of a job its fields.
    token = in_job.set(fields if logged.in_job else None)
    record = logger.makeRecord(
        logged.name, logged.level, file, line, logged.text, (), None, function
    )
    in_job.reset(token)
    record.created = logged.created
    record.msecs = (logged.created % 1) * 1000
    record.exc_text = logged.error or None
    record.__dict__.update(logged.extra)
    if logger.isEnabledFor(logged.level):
        logger.handle(record)
