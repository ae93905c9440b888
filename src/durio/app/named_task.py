"""A task that is known by its name only: `app.named("shop.send")`."""

from collections.abc import Iterable, Mapping
from typing import Any

from durio.app.tasks import TaskCalls, TaskClient, TaskWithOptions
from durio.client.handle import Job
from durio.client.plan import NamedSignature
from durio.client.task_by_name import unknown_target
from durio.model.options import NO_OPTIONS, UNSET, CallOptions


class NamedTask(TaskWithOptions[..., Any]):
    """A task that is known by its name only; it has the same calls as a Task.

    Each call reads what workers have published about the task: its queue, priority and
    parameters. Results are not decoded to a type.
    """

    __module__ = "durio"

    def __init__(
        self, client: TaskClient, task: str, options: CallOptions = NO_OPTIONS
    ) -> None:
        super().__init__(client, unknown_target(task), options)

    async def enqueue(self, /, *args: Any, **kwargs: Any) -> Job[Any]:
        """Store a job and return its handle; the job then survives a power failure."""
        return await (await self._found()).enqueue(*args, **kwargs)

    def enqueue_sync(self, /, *args: Any, **kwargs: Any) -> Job[Any]:
        """Enqueue without an event loop, as `enqueue` does."""
        return self._client.run_sync(self._found()).enqueue_sync(*args, **kwargs)

    async def enqueue_many(self, rows: Iterable[Any], /) -> list[Job[Any]]:
        """Store one job per row, as `task.enqueue_many` does."""
        return await (await self._found()).enqueue_many(rows)

    def enqueue_many_sync(self, rows: Iterable[Any], /) -> list[Job[Any]]:
        """Enqueue rows without an event loop, as `enqueue_many` does."""
        return self._client.run_sync(self._found()).enqueue_many_sync(rows)

    def s(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, /, *args: Any, **kwargs: Any
    ) -> NamedSignature:
        """Return the task with its arguments; they are checked when it is enqueued."""
        return self._signature(args, kwargs)

    async def _found(self) -> TaskCalls[..., Any]:
        handler = await self._client.find_task(self.name)
        # The name may be an alias, and a row may be a signature of it.
        return TaskCalls(self._client, handler, self._options, alias=self.name)

    def _with_changes(self, given: Mapping[str, Any]) -> "NamedTask":
        changes = {name: value for name, value in given.items() if value is not UNSET}
        changed = self._options.with_changes(changes)
        return NamedTask(self._client, self.name, changed)
