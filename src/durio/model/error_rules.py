"""The table of error classes as an App and its tasks change it: `errors={...}`.

A key says which errors are meant: an exception class, its name, an HTTP status, or one of
the classes in `model/error_classes.py`. The value says what happens.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, cast, get_args

from durio.model.error_classes import (
    ERROR_CLASSES,
    ErrorClass,
    RecognisedError,
    short_name,
)
from durio.model.errors import InvalidOption
from durio.model.names import did_you_mean
from durio.model.retry import Retry, Snooze

RuleName = Literal["dead", "retry"]
ErrorRule = RuleName | Retry | Snooze
ErrorKey = type[BaseException] | int | str
STATUSES = range(300, 600)


class ErrorRules(NamedTuple):
    """What an App or a task says about errors; the first entry that fits decides."""

    # Entries for exceptions and statuses, which come before those for classes.
    named: tuple[tuple[ErrorKey, ErrorRule], ...] = ()
    classes: Mapping[ErrorClass, ErrorRule] = MappingProxyType({})

    def over(self, others: "ErrorRules", *, has_retry: bool) -> "ErrorRules":
        """Return the rules of a task, with those of its App below them.

        A task that `has_retry` has its own numbers for transient errors.
        """
        if has_retry:
            others = others.without_transient()
        classes: dict[ErrorClass, ErrorRule] = {**others.classes, **self.classes}
        return ErrorRules(self.named + others.named, classes)

    def without_transient(self) -> "ErrorRules":
        """Return the rules without the entry for transient errors, if there is one."""
        if "transient" not in self.classes:
            return self
        others = {k: v for k, v in self.classes.items() if k != "transient"}
        return self._replace(classes=others)

    def find(self, error: BaseException, found: RecognisedError) -> ErrorRule | None:
        """Return the rule for an error; None if none is about it."""
        for key, rule in self.named:
            if isinstance(key, int):
                fits = key == found.status
            elif isinstance(key, str):
                fits = any(key in names_of(kind) for kind in type(error).__mro__)
            else:
                fits = isinstance(error, key)
            if fits:
                return rule
        if found.kind == "other" and isinstance(error, BaseExceptionGroup):
            return None  # the errors in it are judged
        return self.classes.get(found.kind)

    @property
    def has_no_backoff(self) -> bool:
        """Whether a rule runs a job again without a delay."""
        rules = [rule for _, rule in self.named] + list(self.classes.values())
        return any(
            (isinstance(rule, Retry) and rule.has_no_backoff)
            or (isinstance(rule, Snooze) and rule.delay_seconds == 0)
            for rule in rules
        )


NO_RULES = ErrorRules()


def names_of(kind: type) -> tuple[str, str]:
    """Return the names of a class: `requests.Timeout`, `requests.exceptions.Timeout`."""
    return short_name(kind), f"{kind.__module__}.{kind.__qualname__}"


def error_rules(given: Any) -> ErrorRules:
    """Check the value of `errors=` and return its rules."""
    if not isinstance(given, Mapping):
        raise _refused(given, "a dict such as {404: 'retry', BadAddress: 'dead'}")
    named: list[tuple[ErrorKey, ErrorRule]] = []
    classes: dict[ErrorClass, ErrorRule] = {}
    for key, value in cast("Mapping[Any, Any]", given).items():
        rule = _rule(value)
        if key in ERROR_CLASSES:
            classes[key] = rule
        else:
            named.append((_key(key), rule))
    return ErrorRules(tuple(named), classes)


def _key(key: Any) -> ErrorKey:
    if isinstance(key, type):
        kind = cast("type[object]", key)
        if issubclass(kind, BaseException):
            return kind
        raise _refused(kind, "a class of exceptions")
    if isinstance(key, int) and not isinstance(key, bool):
        if key in STATUSES:
            return key
        raise _refused(key, "an HTTP status from 300 to 599")
    if isinstance(key, str):
        if "." in key:
            return key
        known = ", ".join(ERROR_CLASSES)
        wanted = (
            f"a name with its package, such as 'httpx.ReadError', or one of {known}"
        )
        raise _refused(key, wanted, did_you_mean(key, ERROR_CLASSES))
    raise _refused(key, "an exception class, its name, or an HTTP status")


def _rule(value: Any) -> ErrorRule:
    if isinstance(value, Retry):
        if value.on or value.never:
            raise _refused(value, "a Retry without `on` and `never`")
        return value
    if isinstance(value, Snooze) or (
        isinstance(value, str) and value in get_args(RuleName)
    ):
        return cast("ErrorRule", value)
    raise _refused(value, "'dead', 'retry', Retry(...) or Snooze(...)")


def _refused(value: object, wanted: str, hint: str = "") -> InvalidOption:
    return InvalidOption(
        f"errors: cannot take {value!r:.200}",
        cure=f"Give {wanted}.{hint}",
        option="errors",
        value=value,
    )
