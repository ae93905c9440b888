"""Limits of tasks, as users declare them: `limits=[...]` and `fair_by=` of `@app.task`.

Each becomes a gate that the jobs pass before they are ready: see model/gate_rule.py.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, NoReturn, cast

from durio.model.errors import InvalidOption
from durio.model.names import check_name
from durio.model.quantities import DURATION_UNITS, Duration, seconds

COUNT_MAX = 2**31 - 1
LIMITS_CURE = 'Give a list: limits=[Concurrency(5, key="tenant"), Rate("100/m")].'
FAIR_WIDTH = 16  # ready jobs of one key, for `fair_by`
RATE_SHAPE = re.compile(
    r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*/\s*(\d{1,9}(?:\.\d{1,9})?)?\s*(s|m|h|d)\s*",
    re.ASCII,
)
PATH_SHAPE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")

# Which jobs share a limit: those whose arguments have the same value there. A parameter's
# name, a dotted path into it, a tuple of these, or a function of the arguments by name.
KeyFunction = Callable[[Mapping[str, Any]], object]
LimitKey = str | tuple[str, ...] | KeyFunction | None


@dataclass(frozen=True, slots=True)
class Concurrency:
    """A limit of jobs that run at the same time: `limits=[Concurrency(5, key="tenant")]`.

    A job takes a place before it is ready, and gives it back when its attempt ends. With
    `key` each value has places of its own; a job whose value is missing or None has no
    limit. A worker that dies gives its places back with its jobs.
    """

    __module__ = "durio"

    count: int  # jobs at the same time; 1: one after the other
    _: KW_ONLY
    # Jobs with the same value share the limit: a parameter's name, a dotted path such as
    # `"order.tenant"`, a tuple of these, or a function of the arguments by name.
    key: LimitKey = None
    # The limit's name, for `durio limits`; default: the task's. Tasks that give the same
    # name share one limit.
    name: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot limit anything."""
        count = cast("object", self.count)
        is_count = isinstance(count, int) and not isinstance(count, bool)
        if not is_count or not 0 < self.count <= COUNT_MAX:
            refuse(
                f"Concurrency cannot take {count!r}",
                "Give the number of jobs that run at the same time, 1 or more. To stop "
                "them all, pause the queue.",
            )
        check_key_and_name(self.key, self.name)


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit of jobs that start in a time: `limits=[Rate("100/m")]`.

    Jobs become ready at an even pace: with `"100/m"` one each 0.6 s. `burst` is how
    many may do so at once after a pause.
    """

    __module__ = "durio"

    rate: str  # number and time: `"100/m"`, `"5/s"`, `"1000/d"`, `"3/10m"`
    _: KW_ONLY
    key: LimitKey = None  # as for `Concurrency`
    burst: float = 1  # jobs at once after a pause, 1 or more
    name: str | None = None  # as for `Concurrency`

    def __post_init__(self) -> None:
        """Refuse what cannot limit anything."""
        rate_per_second(self.rate)
        if not is_number(self.burst) or not 1 <= self.burst < math.inf:
            refuse(
                f"Rate({self.rate!r}) cannot have burst={self.burst!r}",
                "Give 1 or more: a job takes 1, and would never start.",
            )
        check_key_and_name(self.key, self.name)


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit of what jobs spend in a time: `Budget("tokens", 1_000_000, per="1d")`.

    A job takes its estimate before it is ready. The task reports what it has really spent
    by `ctx.spend(n)`, and the difference is given back or taken when the attempt ends. An
    attempt that is lost with its worker keeps its estimate spent. The budget fills up all
    the time, not at midnight: with a full day's amount unspent it is full.
    """

    __module__ = "durio.limits"

    name: str  # of the budget; tasks that give the same name share it
    amount: float  # what can be spent in the time, and at once when it is full
    per: Duration = "1d"  # the time
    _: KW_ONLY
    # What one job takes before it starts: a number, a parameter's name or a dotted path, or
    # a function of the arguments by name.
    estimate: float | str | KeyFunction = 1
    key: LimitKey = None  # as for `Concurrency`

    def __post_init__(self) -> None:
        """Refuse what cannot limit anything."""
        check_name("limit", self.name)
        check_key_and_name(self.key, None)
        if not is_number(self.amount) or not 0 < self.amount < math.inf:
            refuse(
                f"Budget({self.name!r}) cannot have the amount {self.amount!r}",
                "Give a number above 0.",
            )
        if not seconds(self.per, "per"):
            refuse(
                f"Budget({self.name!r}) cannot have per={self.per!r}",
                'Give a time above 0, such as "1d".',
            )
        estimate = self.estimate
        if isinstance(estimate, str):
            check_path(estimate)
        elif is_number(estimate):
            check_cost(f"Budget({self.name!r})", cast("float", estimate), self.amount)
        elif not callable(estimate):
            refuse(
                f"Budget({self.name!r}) cannot have estimate={estimate!r:.80}",
                "Give a number, a parameter's name, or a function of the arguments.",
            )


Limit = Concurrency | Rate | Budget


def parse_limits(given: object) -> tuple[Limit, ...]:
    """Return the limits of a task; refuse anything but a list or tuple of them."""
    if not isinstance(given, list | tuple):
        refuse(f"limits cannot be {given!r:.80}", LIMITS_CURE)
    limits = tuple(cast("list[Limit]", given))
    for limit in limits:
        if not isinstance(cast("object", limit), Limit):
            refuse(f"limits cannot hold {limit!r:.80}", LIMITS_CURE)
    return limits


def parse_fair_by(given: object) -> LimitKey:
    """Return the key of `fair_by`; refuse what is no key."""
    check_key_and_name(given, None)
    return cast("LimitKey", given)


def rate_per_second(text: object) -> float:
    """Return jobs per second of a rate such as `100/m`."""
    return parse_rate(text)[1]


def parse_rate(text: object) -> tuple[float, float]:
    """Return the number of a rate such as `100/m`, and how many that are per second."""
    found = RATE_SHAPE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        refuse(
            f"Rate cannot take {text!r:.80}",
            'Write a number and a time: "100/m", "5/s", "1000/d" or "3/10m".',
        )
    number, times, unit = found.groups()
    span = float(times or 1) * DURATION_UNITS[unit]
    if not float(number) or not span:
        refuse(
            f"Rate cannot take {text!r}: no job would ever start",
            "Give a rate above 0. To stop all jobs, pause the queue.",
        )
    return float(number), float(number) / span


def check_cost(what: str, cost: float, amount: float) -> None:
    """Refuse the estimate of a job that could never start."""
    if not 0 <= cost < math.inf:
        refuse(f"{what} cannot have the estimate {cost!r}", "Give 0 or more.")
    if cost > amount:
        refuse(
            f"{what}: the estimate {cost:g} is above the whole budget {amount:g}: the job "
            "could never start",
            "Estimate less, or raise the budget.",
        )


def check_key_and_name(key: object, name: object) -> None:
    if name is not None:
        check_name("limit", cast("str", name))
    if key is None or callable(cast("Any", key)):
        return
    paths = cast("tuple[object, ...]", key if isinstance(key, tuple) else (key,))
    if not paths:
        refuse(
            "a limit cannot have key=()",
            "Name one parameter or more, or leave out key=.",
        )
    for path in paths:
        check_path(path)


def check_path(path: object) -> None:
    if not isinstance(path, str) or PATH_SHAPE.fullmatch(path) is None:
        refuse(
            f"a limit cannot have the key {path!r:.80}",
            'Give a parameter\'s name, a dotted path such as "order.tenant", a tuple of '
            "these, or a function of the arguments.",
        )


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def refuse(what: str, cure: str) -> NoReturn:
    raise InvalidOption(what, cure=cure, option="limits")
