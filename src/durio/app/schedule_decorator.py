"""`@app.cron("0 2 * * *")` and `@app.every("5m")`: a task that runs by a schedule."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from durio.app.task_decorator import TaskDecorator
from durio.app.task_signatures import TaskSignatures
from durio.app.tasks import function_location
from durio.client.schedules import Schedules
from durio.model.errors import InvalidSchedule
from durio.model.options import NO_OPTIONS, CallOptions


class ScheduleDecorator(TaskDecorator):
    """Schedules a task, or makes a function a task and schedules it."""

    __module__ = "durio"

    def __init__(
        self,
        schedules: Schedules,
        declare_task: Callable[[Callable[..., Any], CallOptions], Any],
        name: str | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        choices: Mapping[str, Any],
    ) -> None:
        def declare(function: Any, options: CallOptions) -> Any:
            if options != NO_OPTIONS:
                raise InvalidSchedule(
                    "a schedule takes no options of a task",
                    cure="Write @app.task(...) below it, with these options.",
                )
            task: Any = function
            if not isinstance(function, TaskSignatures):
                task = declare_task(function, options)
            own = task.name.partition(".")[2]
            schedules.declare(
                own if name is None else name,
                task,
                args=args,
                kwargs=kwargs,
                place=function_location(task.__wrapped__),
                **choices,
            )
            return task

        super().__init__(declare)
