"""Retry policies: whether and when to try again; jitter is passed in."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple, Self

from durio.model.errors import (
    Cancel,
    Control,
    DeadLetter,
    InvalidOption,
    Permanent,
    RetryAfter,
)
from durio.model.outcome import OutcomeKind, Reason
from durio.model.quantities import Duration, seconds

RETRIES_MAX = 10_000
SNOOZES_MAX = 10_000

Errors = tuple[type[BaseException], ...]


class Snooze(Control):
    """Run again later; this costs no attempt, and is allowed at most 10,000 times."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"snooze {delay}")
        self.delay_seconds = seconds(delay, "snooze")


@dataclass(frozen=True, slots=True)
class Retry:
    """`Retry(n)` allows n retries after the first attempt, with exponential backoff.

    The k-th retry waits base * factor ** (k - 1) seconds, at most `max_delay`. `delays`
    gives the sequence explicitly; its last value repeats. Jitter draws each delay evenly
    between zero and that value, so that jobs that fail together do not return together.
    """

    __module__ = "durio"

    retries: int = 5
    _: KW_ONLY
    base: Duration = 60
    factor: float = 2
    max_delay: Duration = 3600
    jitter: bool = True
    delays: tuple[Duration, ...] | None = None
    on: Errors = ()
    never: Errors = ()

    def __post_init__(self) -> None:
        if (
            not isinstance(self.retries, int)
            or isinstance(self.retries, bool)
            or not 0 <= self.retries <= RETRIES_MAX
        ):
            raise _refused("retries", self.retries, f"a number from 0 to {RETRIES_MAX}")
        seconds(self.base, "retry base")
        seconds(self.max_delay, "retry max_delay")
        if not isinstance(self.factor, int | float) or not 1 <= self.factor <= 100:  # noqa: PLR2004
            raise _refused("factor", self.factor, "a number from 1 to 100")
        if not isinstance(self.jitter, bool):
            raise _refused("jitter", self.jitter, "True or False")
        if self.delays is not None and not isinstance(self.delays, tuple | list):
            raise _refused("delays", self.delays, "a tuple of durations")
        for delay in self.delays or ():
            seconds(delay, "retry delays")
        for name, errors in (("on", self.on), ("never", self.never)):
            if not isinstance(errors, tuple) or not all(
                isinstance(e, type) and issubclass(e, BaseException) for e in errors
            ):
                raise _refused(name, errors, "a tuple of exception classes")

    @staticmethod
    def after(delay: Duration, *, cause: BaseException | None = None) -> RetryAfter:
        """Raise this to retry after `delay`; it counts as a retry."""
        return RetryAfter(seconds(delay, "retry delay"), cause)

    @property
    def max_attempts(self) -> int:
        """The number of attempts: the first one and every retry."""
        return self.retries + 1

    @property
    def has_no_backoff(self) -> bool:
        """Whether all delays are zero; the doctor and the declaration warn about it."""
        if self.retries == 0:
            return False
        if self.delays:
            return all(seconds(d) == 0 for d in self.delays)
        return seconds(self.base) == 0 or seconds(self.max_delay) == 0

    def delay_seconds(self, retry: int, share: float = 1.0) -> float:
        """Return the pause before retry number `retry` (from 1); `share` is the jitter."""
        if self.delays:
            whole = seconds(self.delays[min(retry, len(self.delays)) - 1])
        else:
            # The exponent is bounded so that a float never overflows.
            exponent = min(retry - 1, 1000) if self.factor == 1 else min(retry - 1, 60)
            whole = seconds(self.base) * self.factor**exponent
        whole = min(whole, seconds(self.max_delay))
        return whole * share if self.jitter else whole

    def overridden(self, changes: Mapping[str, Any]) -> Self:
        """Return this policy with some fields changed, from a stored row."""
        return replace(self, **changes) if changes else self


def as_retry(value: Retry | int) -> Retry:
    """Convert `retry=5` to `Retry(5)`."""
    if isinstance(value, Retry):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Retry(value)
    raise _refused("retry", value, "a Retry or a number of retries")


class Decision(NamedTuple):
    """What happens after a failed attempt."""

    kind: OutcomeKind
    delay_seconds: float = 0.0
    reason: str | None = None


def classify(
    error: BaseException, policy: Retry, *, retried: int, snoozed: int, share: float
) -> Decision:
    """Decide: control exceptions first, then `never`, then `on` if given, else retry."""
    if isinstance(error, Control):
        return _controlled(error, policy, retried=retried, snoozed=snoozed)
    if isinstance(error, policy.never):
        return Decision(OutcomeKind.DEAD, reason=Reason.PERMANENT)
    if policy.on and not isinstance(error, policy.on):
        return Decision(OutcomeKind.DEAD, reason=Reason.PERMANENT)
    if not policy.on and is_validation_error(error):
        return Decision(OutcomeKind.DEAD, reason=Reason.PERMANENT)
    if retried >= policy.retries:
        return Decision(OutcomeKind.DEAD, reason=Reason.EXHAUSTED)
    return Decision(OutcomeKind.RETRY, policy.delay_seconds(retried + 1, share))


def is_validation_error(error: BaseException) -> bool:
    """Whether a class named ValidationError is among the error's bases.

    Such an error (msgspec, pydantic, Django) is not retried, because the data stays wrong.
    """
    return any(kind.__name__ == "ValidationError" for kind in type(error).__mro__)


def _controlled(
    error: Control, policy: Retry, *, retried: int, snoozed: int
) -> Decision:
    exhausted = Decision(OutcomeKind.DEAD, reason=Reason.EXHAUSTED)
    match error:
        case Snooze():
            again = Decision(OutcomeKind.SNOOZE, error.delay_seconds)
            return exhausted if snoozed >= SNOOZES_MAX else again
        case RetryAfter():
            again = Decision(OutcomeKind.RETRY, error.delay_seconds)
            return exhausted if retried >= policy.retries else again
        case Cancel():
            return Decision(OutcomeKind.CANCEL)
        case DeadLetter():
            return Decision(OutcomeKind.DEAD, reason=Reason.REQUESTED)
        case Permanent() | _:
            return Decision(OutcomeKind.DEAD, reason=Reason.PERMANENT)


def _refused(what: str, value: object, wanted: str) -> InvalidOption:
    return InvalidOption(
        f"retry: {what} cannot be {value!r}",
        cure=f"Give {wanted}.",
        option=what,
        value=value,
    )
