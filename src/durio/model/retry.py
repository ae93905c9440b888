"""Retry policies: how often and when to try again; jitter is passed in."""

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

from durio.model.errors import Control, InvalidOption, RetryAfter
from durio.model.quantities import Duration, format_duration, seconds

RETRIES_MAX = 10_000
DELAYS_SHOWN_MAX = 3

Errors = tuple[type[BaseException], ...]


class Snooze(Control):
    """Raise it to run the job again after `delay`, without a retry; at most 10,000 times."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"snooze {delay}")
        self.delay_seconds = seconds(delay, "snooze")


class Retry(Control):
    """A retry policy: how often, when and for which errors a job is tried again.

    The k-th retry waits `base * factor ** (k - 1)`, at most `max_delay`. A policy cannot be
    changed after it is made.

        policy = Retry(8, base="10s", max_delay="1h", never=ValueError)
        print([policy.delay_seconds(retry) for retry in (1, 2, 3)])

    A task may raise a policy: the attempt has failed, and the raised policy's numbers
    decide whether and when the job is tried again.
    """

    __module__ = "durio"

    # Assigned once: `__setattr__` refuses a change. It must let Python itself set
    # `__traceback__` and the like, which a frozen dataclass refuses.
    retries: int
    base: Duration
    factor: float
    max_delay: Duration
    jitter: bool
    delays: tuple[Duration, ...] | None
    on: Errors
    never: Errors

    def __init__(  # noqa: PLR0913 - the fields of a policy, all keywords but the first
        self,
        retries: int = 5,  # retries after the first attempt, 0 to 10,000
        *,
        base: Duration = 60,  # delay before the first retry
        factor: float = 2,  # each delay is this many times the last; from 1 to 100
        max_delay: Duration = 3600,  # longest delay
        # True: each delay is a random time between 0 and its full length, so that jobs
        # which fail together are not retried together.
        jitter: bool = True,
        delays: Sequence[Duration] | None = None,  # the delays; the last one repeats
        # Errors that are retried, all others are not; a class or a tuple of classes.
        on: type[BaseException] | Errors = (),
        never: type[BaseException] | Errors = (),  # errors that are not retried
    ) -> None:
        super().__init__()
        _check_count(retries)
        seconds(base, "retry base")
        seconds(max_delay, "retry max_delay")
        if not isinstance(factor, int | float) or not 1 <= factor <= 100:  # noqa: PLR2004
            raise _refused("factor", factor, "a number from 1 to 100")
        if not isinstance(jitter, bool):
            raise _refused("jitter", jitter, "True or False")
        self.retries = retries
        self.base = base
        self.factor = factor
        self.max_delay = max_delay
        self.jitter = jitter
        self.delays = None if delays is None else _delays(delays)
        self.on = _errors("on", on)
        self.never = _errors("never", never)

    def __setattr__(self, name: str, value: object) -> None:
        is_new_field = name in FIELDS and name not in self.__dict__
        if not is_new_field and not name.startswith("__"):
            raise AttributeError(
                f"a Retry cannot be changed ({name}): make another one"
            )
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if not name.startswith("__"):
            raise AttributeError(f"a Retry cannot be changed ({name})")
        super().__delattr__(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Retry) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(tuple(self._fields().values()))

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_fields, (type(self), self._fields())

    def __repr__(self) -> str:
        given = {k: v for k, v in self._fields().items() if v != DEFAULTS.get(k)}
        parts = [str(given.pop("retries", self.retries))]
        return f"Retry({', '.join(parts + [f'{k}={v!r}' for k, v in given.items()])})"

    def __str__(self) -> str:
        return f"the task asked for {self!r}"

    def _fields(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in FIELDS}

    @staticmethod
    def after(delay: Duration, *, cause: BaseException | None = None) -> RetryAfter:
        """Return an exception: a task that raises it is retried after `delay`.

        It counts as a retry. `cause` is the error behind it, for the traceback.
        """
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
        """Return the seconds before retry number `retry`, from 1.

        With jitter they are multiplied by `share`, a random number from 0 to 1.
        """
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
        return type(self)(**{**self._fields(), **changes}) if changes else self


def retry_in_words(retry: Retry) -> str:
    """Return a policy as text: `5 retries, after 60 s, 2 min, ... at most 60 min`."""
    shown = [
        format_duration(retry.delay_seconds(number))
        for number in range(1, min(retry.retries, DELAYS_SHOWN_MAX) + 1)
    ]
    if not shown:
        return retries_text(0)
    longest = ""
    if retry.retries > len(shown):
        longest = f", ... at most {format_duration(seconds(retry.max_delay))}"
    jitter = ", with jitter" if retry.jitter else ""
    return f"{retries_text(retry.retries)}, after {', '.join(shown)}{longest}{jitter}"


def retries_text(retries: int) -> str:
    return f"{retries or 'no'} {'retry' if retries == 1 else 'retries'}"


FIELDS = tuple(Retry.__annotations__)
DEFAULTS: dict[str, object] = dict(Retry.__init__.__kwdefaults__ or {})


def _from_fields(kind: type[Retry], fields: Mapping[str, Any]) -> Retry:
    return kind(**fields)


def _check_count(retries: object) -> None:
    if (
        not isinstance(retries, int)
        or isinstance(retries, bool)
        or not 0 <= retries <= RETRIES_MAX
    ):
        raise _refused("retries", retries, f"a number from 0 to {RETRIES_MAX}")


def _delays(delays: object) -> tuple[Duration, ...]:
    if not isinstance(delays, tuple | list):
        raise _refused("delays", delays, "a tuple of durations")
    given = cast("Sequence[Duration]", delays)
    for delay in given:
        seconds(delay, "retry delays")
    return tuple(given)


def _errors(name: str, errors: object) -> Errors:
    given = (errors,) if isinstance(errors, type) else errors
    if not isinstance(given, tuple) or not all(
        isinstance(e, type) and issubclass(e, BaseException)
        for e in cast("tuple[object, ...]", given)
    ):
        raise _refused(name, errors, "an exception class or a tuple of them")
    return cast("Errors", given)


def as_retry(value: Retry | int) -> Retry:
    """Convert `retry=5` to `Retry(5)`."""
    if isinstance(value, Retry):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Retry(value)
    raise _refused("retry", value, "a Retry or a number of retries")


def _refused(what: str, value: object, wanted: str) -> InvalidOption:
    return InvalidOption(
        f"retry: {what} cannot be {value!r}",
        cure=f"Give {wanted}.",
        option=what,
        value=value,
    )
