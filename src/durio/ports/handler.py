"""The function and policies that a worker runs for one kind of job."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from durio.model.argument_codec import ArgumentCodec
from durio.model.batch import Batch
from durio.model.error_rules import NO_RULES, ErrorRules
from durio.model.expiry import Expires
from durio.model.gate_rule import GateRule
from durio.model.job import PRIORITY_DEFAULT
from durio.model.names import is_prefix, known_as
from durio.model.outcome import KeepRule
from durio.model.queues import DEFAULT_QUEUE
from durio.model.retry import Retry
from durio.model.timeout import TimeLimits


class DepsFactory(Protocol):
    """Makes the shared resources of a worker process: an async context manager."""

    def __call__(self) -> AbstractAsyncContextManager[Any]:
        """Called and entered once per worker."""
        ...


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A function with its codec and policies, under the task name in jobs."""

    task: str
    function: Callable[..., Any]
    codec: ArgumentCodec
    takes_context: bool
    is_async: bool
    is_process: bool = False  # runs in a child process that can be killed
    batch: Batch | None = None  # one call for many jobs; the codec is that of one item
    queue: str = DEFAULT_QUEUE
    priority: int = PRIORITY_DEFAULT
    retry: Retry
    errors: ErrorRules = NO_RULES
    limits: TimeLimits
    expires: Expires = None  # default of its jobs
    gate_rule: GateRule | None = None  # None: its jobs pass no gates
    breaker: str | None = None  # its attempts are calls behind this breaker
    states: tuple[str, ...] = ()  # that its progress may have; empty: all
    keep: KeepRule | None = (
        None  # for done and cancelled jobs; None: the store's default
    )
    result_seconds: float


class TaskHandlers(dict[str, Handler]):
    """Handlers by the names of their tasks, with aliases and prefixes such as `shop.email:*`.

    No job has the name of a prefix, so `get` finds only what has exactly this name.
    """

    _counted = 0
    _found: list[str] = []  # noqa: RUF012 - replaced, never changed

    def find(self, task: str) -> Handler | None:
        """Return the handler that runs jobs of this name: exact, or the longest prefix."""
        handler = self.get(task)
        if handler is None:
            prefix = known_as(task, self._prefixes())
            handler = None if prefix is None else self[prefix]
        return handler

    def _prefixes(self) -> list[str]:
        """Return the names that end in `*`; names are only added, so their number says when."""
        if self._counted != len(self):
            self._counted = len(self)
            self._found = [name for name in self if is_prefix(name)]
        return self._found

    def find_target(self, task: str) -> Handler | None:
        """Return the handler for new jobs; that of a prefix gets the name of the job."""
        handler = self.find(task)
        if handler is None or task in self or not is_prefix(handler.task):
            return handler
        return msgspec.structs.replace(handler, task=task)
