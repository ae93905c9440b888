"""Tasks for many names: `@app.task(name="email:*")`."""

from typing import Any, ParamSpec, TypeVar

from durio.app.batch_tasks import BatchTask, SyncBatchTask
from durio.app.tasks import SyncTask, Task, TaskCalls, TaskClient
from durio.model.errors import InvalidName
from durio.model.names import is_prefix
from durio.ports.handler import Handler

P = ParamSpec("P")
R = TypeVar("R")


class ManyNames(TaskCalls[P, R]):
    """The calls of a task for many names: a job needs one of these names."""

    def _job_builder(self, options: Any = None, target: Any = None) -> Any:
        del options, target
        raise no_name(self.name)

    def _signature(self, args: Any, kwargs: Any, **fields: Any) -> Any:
        del args, kwargs, fields
        raise no_name(self.name)

    def _with_changes(self, given: Any) -> Any:
        del given
        raise no_name(self.name)


class AsyncTaskOfManyNames(ManyNames[P, R], Task[P, R]):
    """An async function for all names that begin so."""


class SyncTaskOfManyNames(ManyNames[P, R], SyncTask[P, R]):
    """A sync function for all names that begin so."""


def task_of(client: TaskClient, handler: Handler) -> Any:
    """Return the task of a handler."""
    if is_prefix(handler.task):
        kind: Any = AsyncTaskOfManyNames if handler.is_async else SyncTaskOfManyNames
    elif handler.batch is not None:
        kind = BatchTask if handler.is_async else SyncBatchTask
    else:
        kind = Task if handler.is_async else SyncTask
    return kind(client, handler)


def no_name(task: str) -> InvalidName:
    example = f"{task[:-1]}example"
    return InvalidName(
        f"task {task} is for many names, and a job has one",
        cure=f'Name it: app.enqueue("{example}", ...), app.named("{example}") for options, '
        f'or app.s("{example}", ...) in a plan or a schedule.',
    )
