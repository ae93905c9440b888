"""The function and policies that a worker runs for one kind of job."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from durio.model.argument_codec import ArgumentCodec
from durio.model.job import PRIORITY_DEFAULT
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
    queue: str = DEFAULT_QUEUE
    priority: int = PRIORITY_DEFAULT
    retry: Retry
    limits: TimeLimits
    keep: KeepRule | None = (
        None  # for done and cancelled jobs; None: the store's default
    )
    result_seconds: float
