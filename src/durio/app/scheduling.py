"""What an App has for schedules: `app.cron`, `app.every` and `app.schedules`.

Their modules are loaded on first use: programs that only enqueue need none of them.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from durio.app.mounting import MountingApp
from durio.model.options import CallOptions
from durio.model.quantities import Duration

if TYPE_CHECKING:
    from typing import Unpack

    from durio.app.schedule_decorator import ScheduleDecorator
    from durio.client.schedules import Schedules
    from durio.model.cron import Cron
    from durio.model.schedule_checks import CronChoices, IntervalChoices


class SchedulingApp(MountingApp):
    """The part of an App that declares and stores schedules."""

    _schedules: "Schedules | None" = None

    def _declare_task(self, function: Callable[..., Any], options: CallOptions) -> Any:
        raise NotImplementedError

    def cron(
        self,
        text: "str | Cron",  # such as `"0 2 * * *"`, or a `Cron`
        *,
        name: str | None = None,  # of the schedule; default: the task's
        args: Sequence[Any] = (),  # positional arguments of each job
        kwargs: Mapping[str, Any] | None = None,  # arguments by name
        **choices: "Unpack[CronChoices]",
    ) -> "ScheduleDecorator":
        """Run a task by cron: a decorator for a task, or for a function.

        The schedule is stored when a worker starts. UTC unless `tz=` names a zone.

            @app.cron("0 2 * * *", tz="Europe/Paris")
            @app.task(queue="night")
            async def clean_up() -> None: ...
        """
        return self._scheduled(name, args, kwargs, {"cron": text, **choices})

    def every(
        self,
        interval: Duration,  # such as `"5m"`, at least 100 ms
        *,
        name: str | None = None,  # of the schedule; default: the task's
        args: Sequence[Any] = (),  # positional arguments of each job
        kwargs: Mapping[str, Any] | None = None,  # arguments by name
        **choices: "Unpack[IntervalChoices]",
    ) -> "ScheduleDecorator":
        """Run a task at an interval: a decorator for a task, or for a function.

        With `fixed_delay=True` the interval counts from the end of the run before.
        """
        return self._scheduled(name, args, kwargs, {"every": interval, **choices})

    def _scheduled(self, *given: Any) -> "ScheduleDecorator":
        checks = importlib.import_module("durio.model.schedule_checks")
        checks.rule_of(given[-1], None)  # refuse it where it is written
        decorators = importlib.import_module("durio.app.schedule_decorator")
        return decorators.ScheduleDecorator(self.schedules, self._declare_task, *given)

    @property
    def schedules(self) -> "Schedules":
        """The schedules of this App: those in code, and those in the store."""
        known = self._schedules
        if known is None:
            module = importlib.import_module("durio.client.schedules")
            self._schedules = known = module.Schedules(self)
        return known
