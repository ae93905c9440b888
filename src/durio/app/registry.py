"""The tasks of an App by name: handlers for its workers, defaults for its producers."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Self

import msgspec

from durio.app.tasks import function_location, function_name, takes_context
from durio.model.argument_codec import ArgumentCodec
from durio.model.errors import DuplicateTask, InvalidName, InvalidOption, UsageError
from durio.model.job import PRIORITY_DEFAULT
from durio.model.names import check_name, did_you_mean, lane
from durio.model.options import UNSET, check_priority, keep_of
from durio.model.outcome import Keep
from durio.model.quantities import seconds
from durio.model.queues import DEFAULT_QUEUE, Queue
from durio.model.retry import Retry, as_retry
from durio.model.settings import Settings
from durio.model.timeout import DEFAULT_LIMITS, time_limits
from durio.ports.handler import Handler
from durio.telemetry.emit import Emit


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `@app.task(...)`."""

    name: str = UNSET
    queue: str = DEFAULT_QUEUE
    priority: int = PRIORITY_DEFAULT
    retry: Retry | int = UNSET
    timeout: Any = UNSET
    retention: Any = UNSET
    result_ttl: Any = UNSET
    process: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Check the options at declaration; a misspelt one gets a suggestion."""
        known = list(cls.__struct_fields__)
        for name in given:
            if name not in known:
                raise InvalidOption(
                    f"a task has no option {name!r}",
                    cure=f"Options: {', '.join(known)}.{did_you_mean(name, known)}",
                )
        chosen = cls(**given)
        check_name("queue", chosen.queue)
        check_priority(chosen.priority)
        if not isinstance(chosen.process, bool):
            raise InvalidOption(
                f"process cannot be {chosen.process!r}",
                cure="Give True to run the task in a child process, or leave it out.",
                option="process",
                value=chosen.process,
            )
        return chosen


class Registry:
    def __init__(
        self, namespace: str, settings: Settings, emit: Emit, retry: Any, timeout: Any
    ) -> None:
        self.namespace = namespace
        self._settings = settings
        self._emit = emit
        self.retry = Retry(5) if retry is UNSET else as_retry(retry)
        self._limits = DEFAULT_LIMITS if timeout is UNSET else time_limits(timeout)
        self.handlers: dict[str, Handler] = {}
        self.queues: dict[str, Queue] = {}  # as declared, in that order

    def add(self, function: Callable[..., Any], options: TaskOptions) -> Handler:
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
                cure="Return a list, or report on the way with ctx.progress.",
            )
        task = self._name(function, options)
        self._refuse_duplicate(task, function)
        context = takes_context(function)
        policy = self.retry if options.retry is UNSET else as_retry(options.retry)
        if policy.has_no_backoff:
            self._emit("retry.unpaused", task=task, place=function_location(function))
        result_seconds = self._settings.retention.result_seconds
        if options.result_ttl is not UNSET:
            result_seconds = seconds(options.result_ttl, "result_ttl")
        handler = Handler(
            task=task,
            function=function,
            codec=ArgumentCodec(function, task, skip_first=context),
            takes_context=context,
            is_async=inspect.iscoroutinefunction(function),
            is_process=options.process,
            queue=options.queue,
            priority=options.priority,
            retry=policy,
            limits=self._limits
            if options.timeout is UNSET
            else time_limits(options.timeout),
            keep=self._keep(task, options),
            result_seconds=result_seconds,
        )
        self.handlers[task] = handler
        return handler

    def add_queue(self, queue: Queue) -> None:
        """Declare a queue; a second declaration changes only what it names."""
        if not isinstance(queue, Queue):
            raise InvalidOption(
                f"queues cannot hold {queue!r}",
                cure="Give durio.queues.TIERS, or durio.queues.Queue(...) for each.",
            )
        before = self.queues.get(queue.name)
        self.queues[queue.name] = queue if before is None else before.changed_by(queue)

    def queue_keeps(self) -> dict[str, Keep]:
        """Retention by lane, for queues that set their own."""
        lanes = {lane(self.namespace, name): q for name, q in self.queues.items()}
        return {
            name: keep_of(queue.retention, name)
            for name, queue in lanes.items()
            if queue.retention is not UNSET
        }

    def queue_names(self) -> set[str]:
        """The queues that the code declares or that a task names."""
        return {*self.queues, *(h.queue for h in self.handlers.values())}

    def published(self) -> dict[str, dict[str, Any]]:
        """What producers without the task's code may know about each task."""
        return {
            task: {
                "queue": handler.queue,
                "priority": handler.priority,
                "parameters": handler.codec.parameters(),
            }
            for task, handler in self.handlers.items()
        }

    def _name(self, function: Callable[..., Any], options: TaskOptions) -> str:
        if options.name is UNSET:
            return f"{self.namespace}.{function_name(function)}"
        name = check_name("task", options.name)
        own = name.removeprefix(f"{self.namespace}.")
        if "." in own:
            raise InvalidName(
                f"a task of app {self.namespace!r} cannot be named {name!r}",
                cure="What stands before a dot is the app's name: leave the dot out.",
            )
        return f"{self.namespace}.{own}"

    def _refuse_duplicate(self, task: str, function: Callable[..., Any]) -> None:
        other = self.handlers.get(task)
        if other is not None:
            raise DuplicateTask(
                f"two functions are named {task!r}: {function_location(other.function)} and "
                f"{function_location(function)}",
                cure="Rename one, or give it name='...'.",
                task=task,
            )

    def _keep(self, task: str, options: TaskOptions) -> Keep | None:
        if options.retention is UNSET:
            return None
        return keep_of(options.retention, task)
