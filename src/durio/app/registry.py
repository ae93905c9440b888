"""The tasks of an App by name: handlers for its workers, defaults for its producers."""

import inspect
from collections.abc import Callable
from typing import Any

from durio.app.context_parameter import takes_context
from durio.app.tasks import function_location, function_name
from durio.model.argument_codec import ArgumentCodec
from durio.model.errors import DuplicateTask, InvalidName, InvalidOption, UsageError
from durio.model.names import check_name, lane
from durio.model.option_values import keep_of
from durio.model.options import UNSET, CallOptions
from durio.model.outcome import KeepRule
from durio.model.queues import Queue
from durio.model.retry import Retry, as_retry
from durio.model.settings import Settings
from durio.model.system_tasks import join, join_task
from durio.model.timeout import DEFAULT_LIMITS, time_limits
from durio.ports.handler import Handler
from durio.telemetry.emit import Emit


class Registry:
    def __init__(
        self, namespace: str, settings: Settings, emit: Emit, retry: Any, timeout: Any
    ) -> None:
        self.namespace = namespace
        self._emit = emit
        self.retry = Retry(5) if retry is UNSET else as_retry(retry)
        # Fields of Handler that a task's options may replace.
        self._defaults: dict[str, Any] = {
            "retry": self.retry,
            "limits": DEFAULT_LIMITS if timeout is UNSET else time_limits(timeout),
            "result_seconds": settings.retention.result_seconds,
        }
        self.handlers: dict[str, Handler] = {}
        self.by_name: dict[str, Handler] = {}  # the same, and each by its aliases
        # Tasks that every worker has; only workers may know them.
        task = join_task(namespace)
        codec = ArgumentCodec(join, task, skip_first=False)
        self.system: dict[str, Handler] = {
            task: Handler(
                task=task,
                function=join,
                codec=codec,
                takes_context=False,
                is_async=True,
                **self._defaults,
            )
        }
        self.by_name |= self.system
        self.queues: dict[str, Queue] = {}  # as declared, in that order

    def add(self, function: Callable[..., Any], options: CallOptions) -> Handler:
        """Register a function as the handler of its task name."""
        if not callable(function):
            raise UsageError(
                f"{function!r} is not a function", cure="Decorate a def or async def."
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(
            function
        ):
            raise UsageError(
                f"{function_location(function)} is a generator: a job has one result",
                cure="Return a list, or report progress with ctx.progress.",
            )
        task = self._name(function, options)
        aliases = self._aliases(task, options)
        for name in (task, *aliases):
            self._refuse_duplicate(name, function)
        context = takes_context(function, task)
        policies = {**self._defaults, **options.policies(task)}
        if policies["retry"].has_no_backoff:
            self._emit("retry.unpaused", task=task, place=function_location(function))
        handler = Handler(
            task=task,
            function=function,
            codec=ArgumentCodec(function, task, skip_first=context),
            takes_context=context,
            is_async=inspect.iscoroutinefunction(function),
            **policies,
        )
        self.handlers[task] = handler
        self.by_name.update(dict.fromkeys((task, *aliases), handler))
        return handler

    def add_queue(self, queue: Queue) -> None:
        """Declare a queue; a second declaration changes only the options that it gives."""
        if not isinstance(queue, Queue):
            raise InvalidOption(
                f"queues cannot hold {queue!r}",
                cure="Give durio.queues.TIERS, or durio.queues.Queue(...) for each.",
            )
        before = self.queues.get(queue.name)
        self.queues[queue.name] = queue if before is None else before.changed_by(queue)

    def queue_keeps(self) -> dict[str, KeepRule]:
        """Return the retention by lane, for queues that set their own."""
        lanes = {lane(self.namespace, name): q for name, q in self.queues.items()}
        return {
            name: keep_of(queue.retention, name)
            for name, queue in lanes.items()
            if queue.retention is not UNSET
        }

    def queue_names(self) -> set[str]:
        """Return the queues that the code declares or that a task names."""
        return {*self.queues, *(h.queue for h in self.handlers.values())}

    def published(self) -> dict[str, dict[str, Any]]:
        """Return a description of each task by name, for programs without its code."""
        return {
            name: {
                **({} if name == handler.task else {"task": handler.task}),
                "queue": handler.queue,
                "priority": handler.priority,
                "retries": handler.retry.retries,
                "parameters": handler.codec.parameters(),
            }
            for name, handler in self.by_name.items()
            if name not in self.system
        }

    def _name(self, function: Callable[..., Any], options: CallOptions) -> str:
        if options.name is UNSET:
            return f"{self.namespace}.{function_name(function)}"
        return self._full_name(options.name)

    def _aliases(self, task: str, options: CallOptions) -> list[str]:
        given = () if options.aliases is UNSET else options.aliases
        aliases = [self._full_name(name) for name in given]
        if task in aliases:
            raise InvalidOption(
                f"task {task} has its own name as an alias",
                cure="Aliases are earlier names of the task: remove this one.",
            )
        return aliases

    def _full_name(self, given: str) -> str:
        name = check_name("task", given)
        own = name.removeprefix(f"{self.namespace}.")
        if "." in own:
            raise InvalidName(
                f"a task of app {self.namespace!r} cannot be named {name!r}",
                cure="The part before a dot is the app's name: leave the dot out.",
            )
        return f"{self.namespace}.{own}"

    def _refuse_duplicate(self, task: str, function: Callable[..., Any]) -> None:
        other = self.by_name.get(task)
        if other is not None:
            raise DuplicateTask(
                f"two functions are named {task!r}: {function_location(other.function)} and "
                f"{function_location(function)}",
                cure="Rename one, or give it name='...'; an alias is a name too.",
                task=task,
            )
