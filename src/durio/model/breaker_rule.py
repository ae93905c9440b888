"""What an App says about a breaker: `durio.limits.Breaker`, and what counts as a failure."""

from collections.abc import Collection, Sequence
from typing import cast

from durio.model.breaker import BreakerRule
from durio.model.error_classes import recognise
from durio.model.error_rules import ErrorRules
from durio.model.errors import Control, DurioError, InvalidOption, UnknownBreaker
from durio.model.failure import errors_in
from durio.model.names import check_name, did_you_mean
from durio.model.quantities import Duration, seconds
from durio.model.retry import Snooze

NAME_CHARS_MAX = 60  # the name of its gate has the App's name, too
CALLS_MAX = 1_000_000
OPEN_MIN_SECONDS = 1.0  # until then every worker knows that it is open
WINDOW_MIN_SECONDS, SPAN_MAX_SECONDS = 1.0, 86400.0
PROBES_MAX = 2
FAILURE_CLASSES = frozenset({"transient", "retry_after", "pool_exhausted"})
RATE_DEFAULT = 0.5

Errors = tuple[type[BaseException], ...]


class Breaker:
    """A circuit breaker: when calls of a dependency fail, none is made for a while.

    It opens when the share `failure_rate` of at least `calls_min` calls within `window`
    have failed, or `failures` calls. Then jobs of its tasks wait, and use no attempt. After
    `open_for` up to `probes` calls are made. The first result closes it, or opens it again.

        from durio.limits import Breaker

        smtp = Breaker("smtp", failures=5, window="30s", open_for="1m")
        mailer = App("sqlite:///jobs.db", name="mailer", breakers=[smtp])

    Failures are errors of the network and of servers: timeouts, refused connections, HTTP
    5xx and 429, exhausted pools, a time limit of the task; and errors of the classes in
    `on`. An error that says nothing about the dependency, such as invalid data, is not
    counted.
    """

    __module__ = "durio.limits"

    def __init__(  # noqa: PLR0913 - the numbers of a breaker, all keywords but the first
        self,
        name: str,  # unique in the App, at most 60 characters
        *,
        # Opens when this share of the calls fail, above 0 and up to 1. Default: 0.5, or none
        # if `failures` is given.
        failure_rate: float | None = None,
        failures: int | None = None,  # opens at this number of failures
        calls_min: int = 10,  # fewer calls have no rate
        window: Duration = "60s",  # the time in which calls are counted, 1 s to 1 day
        open_for: Duration = "30s",  # until the first probe, 1 s to 1 day
        probes: int = 2,  # calls at a time while it is half open: 1 or 2
        # Errors that count as failures, too: a class or a tuple of classes.
        on: type[BaseException] | Errors = (),
    ) -> None:
        self.name = checked_breaker_name(name)
        if failure_rate is None and failures is None:
            failure_rate = RATE_DEFAULT
        if failure_rate is not None and not is_share(failure_rate):
            wanted = "a number above 0 and up to 1, such as 0.5"
            raise wrong(name, "failure_rate", failure_rate, wanted)
        for field, number in (("failures", failures), ("calls_min", calls_min)):
            if number is not None and not is_count(number, CALLS_MAX):
                wanted = f"a whole number from 1 to {CALLS_MAX:,}"
                raise wrong(name, field, number, wanted)
        if not is_count(probes, PROBES_MAX):
            raise wrong(name, "probes", probes, "1 or 2")
        self.on = checked_classes(name, on)
        self.rule = BreakerRule(
            failure_rate=None if failure_rate is None else float(failure_rate),
            failures=failures,
            calls_min=calls_min,
            window_seconds=checked_span(name, "window", window, WINDOW_MIN_SECONDS),
            open_seconds=checked_span(name, "open_for", open_for, OPEN_MIN_SECONDS),
            probes=probes,
        )

    def __repr__(self) -> str:
        return f"Breaker({self.name!r}, {self.rule.in_words()})"


class BreakerOpen(Snooze):
    """Raised by `app.breaker(...)` while no call is made: the job runs again later.

    It counts as a snooze, not as a failed attempt. A task may catch it to do something else.
    """

    def __init__(self, name: str, delay_seconds: float, until: str = "") -> None:
        super().__init__(delay_seconds)
        self.name = name  # of the breaker
        self._text = f"breaker {name} is open{until}"

    def __str__(self) -> str:
        return self._text


# --- what counts


def failed_call(
    error: BaseException, on: Errors, rules: ErrorRules, now: float
) -> bool | None:
    """Whether the error of a call is one of the dependency.

    False: the dependency has answered. None: the error says nothing about it.
    """
    if isinstance(error, on):
        return True
    if isinstance(error, Control):
        cause = error.__cause__
        return None if cause is None else failed_call(cause, on, rules, now)
    if isinstance(error, DurioError):
        return None  # of Durio itself, such as a lock that another job holds
    found = recognise(error, now)
    rule = rules.find(error, found)
    if rule is None and isinstance(error, BaseExceptionGroup):
        inner = errors_in(cast("BaseException", error))
        results = [failed_call(one, on, rules, now) for one in inner]
        return True if True in results else None
    is_failure = found.kind in FAILURE_CLASSES if rule is None else rule != "dead"
    if is_failure:
        return True
    return None if found.status is None else False


# --- bad input


def unknown_breaker(name: object, known: Collection[str]) -> UnknownBreaker:
    """Return the error for a breaker that nobody has declared."""
    declare = f"Declare it: App(breakers=[Breaker({name!r})])."
    hint = did_you_mean(name, known) if isinstance(name, str) else ""
    return UnknownBreaker(
        f"no breaker {name!r} is declared", cure=f"{declare}{hint}", breaker=name
    )


def declared_breakers(given: object) -> dict[str, Breaker]:
    """Return the breakers of an App by name."""
    if not isinstance(given, list | tuple):
        given = (given,)
    found: dict[str, Breaker] = {}
    for one in cast("Sequence[object]", given):
        if not isinstance(one, Breaker):
            raise InvalidOption(
                f"breakers cannot hold {one!r:.200}",
                cure="Give durio.limits.Breaker(...) for each.",
                option="breakers",
                value=one,
            )
        if one.name in found:
            raise InvalidOption(
                f"breaker {one.name!r} is declared twice",
                cure="Declare it once, or give one of them another name.",
                option="breakers",
                value=one.name,
            )
        found[one.name] = one
    return found


def checked_breaker_name(name: str) -> str:
    check_name("breaker", name)
    if len(name) > NAME_CHARS_MAX:
        raise InvalidOption(
            f"the name of breaker {name!r} has {len(name)} characters",
            cure=f"Use at most {NAME_CHARS_MAX}.",
            option="name",
            value=name,
        )
    return name


def checked_span(name: str, field: str, given: Duration, least: float) -> float:
    span = seconds(given, field)
    if not least <= span <= SPAN_MAX_SECONDS:
        raise wrong(name, field, given, "a duration from 1 s to 1 day")
    return span


def checked_classes(name: str, on: object) -> Errors:
    classes = cast("tuple[object, ...]", on) if isinstance(on, tuple) else (on,)
    found: list[type[BaseException]] = []
    for kind in classes:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            wanted = "a class of exceptions, or a tuple of them"
            raise wrong(name, "on", cast("object", on), wanted)
        found.append(kind)
    return tuple(found)


def is_share(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 < value <= 1
    )


def is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def wrong(name: str, field: str, value: object, wanted: str) -> InvalidOption:
    return InvalidOption(
        f"breaker {name!r}: {field} cannot be {value!r}",
        cure=f"Give {wanted}.",
        option=field,
        value=value,
    )
