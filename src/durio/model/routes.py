"""Routes: which queue and priority a job gets where it is enqueued.

A route is chosen by a rule: a glob of task names with its route, or a router, which is a
function that also sees the arguments. The first rule that gives a route decides.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast

import msgspec

from durio.model.errors import InvalidName, InvalidOption
from durio.model.names import check_name, task_name
from durio.model.option_values import check_priority
from durio.model.options import UNSET
from durio.model.queues import GLOB_LENGTH_MAX, GLOB_SHAPE, is_glob

ROUTES_MAX = 1000


class Route(msgspec.Struct, frozen=True):
    """Where a job goes: `Route("critical")`, `Route("bulk", priority=2)`.

    A field that is not given stays as the task declares it. Options of the call come first.
    """

    __module__ = "durio.queues"

    queue: str = UNSET  # without the App's name; declared, or named by a task
    priority: int = UNSET  # 0 to 9; 9 is most urgent

    def __post_init__(self) -> None:
        """Refuse invalid values where the route is written."""
        if self.queue is not UNSET:
            check_name("queue", self.queue)
        if self.priority is not UNSET:
            check_priority(self.priority)
        if self.queue is UNSET and self.priority is UNSET:
            raise InvalidOption(
                "a route has neither a queue nor a priority",
                cure='Write Route("critical"), or return None from a router.',
            )


# A router gets the task's full name, its arguments by parameter, and the job's meta.
Router = Callable[[str, dict[str, Any], dict[str, object]], Route | None]
RouteRule = tuple[str, Route] | Router


class GlobRoute(NamedTuple):
    pattern: str  # of full names of tasks
    route: Route

    def matches(self, task: str) -> bool:
        return fnmatchcase(task, self.pattern)


def checked_rules(
    namespace: str, given: Sequence[RouteRule]
) -> list[GlobRoute | Router]:
    """Return the rules of an App in order; refuse what is no rule."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise _not_a_rule(given)
    rules = [_checked_rule(namespace, rule) for rule in given]
    if len(rules) > ROUTES_MAX:
        raise InvalidOption(
            f"the App has {len(rules):,} routes",
            cure=f"Give at most {ROUTES_MAX:,}: a router may look up its route in a dict.",
        )
    return rules


def _checked_rule(namespace: str, rule: object) -> GlobRoute | Router:
    if isinstance(rule, tuple):
        pair = cast("tuple[Any, ...]", rule)
        if len(pair) != 2 or not isinstance(pair[1], Route):  # noqa: PLR2004 - a pair
            raise _not_a_rule(pair)
        return GlobRoute(_checked_glob(namespace, pair[0]), pair[1])
    if not callable(rule) or isinstance(rule, type):
        raise _not_a_rule(rule)
    router = cast("Router", rule)
    is_async: bool = inspect.iscoroutinefunction(rule)
    if is_async or inspect.iscoroutinefunction(getattr(router, "__call__", None)):  # noqa: B004
        raise InvalidOption(
            f"router {name_of_router(router)} is async",
            cure="Write it with def: a router decides from what it is given.",
        )
    try:
        inspect.signature(router).bind("", {}, {})
    except TypeError:
        raise InvalidOption(
            f"router {name_of_router(router)} does not take three positional arguments",
            cure="Write def router(task, arguments, meta).",
        ) from None
    except ValueError:
        pass  # a callable of C without a signature
    return router


def _not_a_rule(given: object) -> InvalidOption:
    return InvalidOption(
        f"routes cannot hold {given!r:.80}",
        cure='Give a list of pairs ("payment:*", Route("critical")) and of functions '
        "router(task, arguments, meta).",
    )


def _checked_glob(namespace: str, pattern: object) -> str:
    """Return the pattern for full names of tasks; without a dot it is of this App."""
    if not isinstance(pattern, str) or not is_glob(pattern):
        return task_name(namespace, check_name("task", cast("str", pattern)))
    if GLOB_SHAPE.fullmatch(pattern) is None or len(pattern) > GLOB_LENGTH_MAX:
        raise InvalidName(
            f"a route for tasks {pattern[:GLOB_LENGTH_MAX]!r} can match no task",
            cure="Use * for any text, ? for one character, [abc] for one of these.",
        )
    if pattern.count(".") > 1:
        raise InvalidName(
            f"a route for tasks {pattern!r} can match no task: a name has one dot",
            cure="The part before the dot is the App's name: write "
            f'"{pattern.rpartition(".")[2]}", or "payment:*" for tasks with such names.',
        )
    return task_name(namespace, pattern)


def name_of_router(router: Router) -> str:
    return getattr(router, "__qualname__", None) or repr(router)
