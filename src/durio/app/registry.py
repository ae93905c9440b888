"""The tasks of an App by name: handlers for its workers, defaults for its producers."""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from durio.app.context_parameter import takes_context
from durio.app.declared_limits import DeclaredLimits
from durio.app.tasks import function_location, function_name
from durio.model.argument_codec import ArgumentCodec
from durio.model.batch_function import item_codec
from durio.model.breaker_rule import Breaker, unknown_breaker
from durio.model.error_rules import NO_RULES, ErrorRules, error_rules
from durio.model.errors import DuplicateTask, InvalidName, InvalidOption, UsageError
from durio.model.expiry import published_expiry
from durio.model.gate_rule import published_rule
from durio.model.names import check_task, is_prefix, lane
from durio.model.option_values import keep_of
from durio.model.options import UNSET, CallOptions
from durio.model.outcome import KeepRule
from durio.model.queues import Queue
from durio.model.retry import Retry, as_retry, retry_in_words
from durio.model.settings import Settings
from durio.model.system_tasks import join, join_task
from durio.model.timeout import DEFAULT_LIMITS, time_limits
from durio.ports.handler import Handler, TaskHandlers
from durio.telemetry.emit import Emit


class Registry:
    def __init__(
        self,
        namespace: str,
        settings: Settings,
        emit: Emit,
        retry: Any,
        timeout: Any,
        errors: Any = UNSET,
        breakers: Mapping[str, Breaker] = MappingProxyType({}),
    ) -> None:
        self.namespace = namespace
        self.breakers = breakers
        self._emit = emit
        self.retry = Retry(5) if retry is UNSET else as_retry(retry)
        # Fields of Handler that a task's options may replace.
        self._defaults: dict[str, Any] = {
            "retry": self.retry,
            "errors": NO_RULES if errors is UNSET else error_rules(errors),
            "limits": DEFAULT_LIMITS if timeout is UNSET else time_limits(timeout),
            "result_seconds": settings.retention.result_seconds,
        }
        self.handlers: dict[str, Handler] = {}
        self.by_name = TaskHandlers()  # the same, and each by its aliases
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
        self.limits = DeclaredLimits()

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
        given = options.policies(task)
        policies = {**self._defaults, **given}
        rules: ErrorRules = given.get("errors", NO_RULES)
        policies["errors"] = rules.over(
            self._defaults["errors"], has_retry="retry" in given
        )
        if given.get("breaker") is not None:
            self._check_breaker(task, given)
        if policies["retry"].has_no_backoff or policies["errors"].has_no_backoff:
            self._emit("retry.unpaused", task=task, place=function_location(function))
        new_codec = item_codec if self._is_batch(task, policies) else ArgumentCodec
        codec = new_codec(function, task, skip_first=context)
        handler = Handler(
            task=task,
            function=function,
            codec=codec,
            gate_rule=self.limits.rule_of(task, options, codec),
            takes_context=context,
            is_async=inspect.iscoroutinefunction(function),
            **policies,
        )
        self.handlers[task] = handler
        self.by_name.update(dict.fromkeys((task, *aliases), handler))
        return handler

    def _is_batch(self, task: str, policies: Mapping[str, Any]) -> bool:
        """Whether the task has batches; refuse them in a child process."""
        is_batch = policies.get("batch") is not None
        if is_batch and policies.get("is_process"):
            raise InvalidOption(
                f"task {task} has both batch= and process=True",
                cure="Leave one of them out: a child process runs one job at a time.",
                option="batch",
                value=policies["batch"],
            )
        return is_batch

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
                "retry": retry_in_words(handler.retry),  # for people
                "timeout_seconds": handler.limits.hard_seconds,
                **published_expiry(handler.expires),
                **published_rule(handler.gate_rule),
                **({} if handler.breaker is None else {"breaker": handler.breaker}),
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
        if given and is_prefix(task):
            raise InvalidOption(
                f"task {task} is for many names, and has aliases too",
                cure="Declare another task for each earlier name.",
            )
        aliases = [self._full_name(name) for name in given]
        if task in aliases:
            raise InvalidOption(
                f"task {task} has its own name as an alias",
                cure="Aliases are earlier names of the task: remove this one.",
            )
        return aliases

    def _check_breaker(self, task: str, given: Mapping[str, Any]) -> None:
        if given["breaker"] not in self.breakers:
            raise unknown_breaker(given["breaker"], self.breakers)
        if given.get("is_process"):
            raise InvalidOption(
                f"task {task} has breaker= and process=True",
                cure="A breaker counts calls in the worker: leave one of them out.",
                option="breaker",
                value=given["breaker"],
            )

    def _full_name(self, given: str) -> str:
        name = check_task(given)
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
