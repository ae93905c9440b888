"""What happens after a failed attempt: retry, snooze, dead or cancelled, and why.

The order: an exception that the task raised to choose its end; `never` of the retry policy;
`on`, if the policy has it; the table of error classes, as the App and the task changed it;
and for all other errors the policy's number of retries.
"""

from typing import NamedTuple, cast

from durio.model.error_classes import RecognisedError, recognise, shown_name
from durio.model.error_rules import NO_RULES, ErrorRule, ErrorRules
from durio.model.errors import (
    Cancel,
    Control,
    DeadLetter,
    InvalidResult,
    Permanent,
    RetryAfter,
)
from durio.model.failure import errors_in
from durio.model.outcome import OutcomeKind, Reason
from durio.model.poll import PollSnooze
from durio.model.quantities import format_duration
from durio.model.retry import Retry, Snooze

SNOOZES_MAX = 10_000
RETRY_AFTER_MIN_SECONDS = 1.0  # `Retry-After: 0` must not run a job in a loop
POOL_RETRY = Retry(3, delays=("5s",), jitter=False)
GROUP_MAX = 100  # errors of a group that are looked at


class Decision(NamedTuple):
    """What happens after a failed attempt."""

    kind: OutcomeKind
    delay_seconds: float = 0.0
    reason: str | None = None
    text: str = ""  # for people: what was decided, and why
    max_attempts: int = 0  # by the numbers that decided; 0: no retry policy did
    keeps_error: bool = True  # False: the task chose to end without an error


class DecisionInputs(NamedTuple):
    """What a decision depends on, beside the error."""

    retried: int  # retries that the job has used
    snoozed: int
    share: float = 1.0  # a random number from 0 to 1, for jitter
    now: float = 0.0  # seconds since 1970
    retry_after_max_seconds: float = 3600.0  # a longer Retry-After is cut to it


def decide(
    error: BaseException,
    policy: Retry,
    counts: DecisionInputs,
    rules: ErrorRules = NO_RULES,
) -> Decision:
    """Return what happens to the job, by the order above."""
    if isinstance(error, Retry):
        # Its numbers; what it says about classes does not matter here.
        return _retried(error, counts)
    if isinstance(error, Control):
        return _controlled(error, policy, counts)
    if isinstance(error, InvalidResult):
        return _dead(Reason.BAD_RESULT, "dead at once: the result is not valid")
    decision = _by_policy(error, policy, counts) or _by_rules(
        error, policy, counts, rules
    )
    if decision is None and isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return _group(group, policy, counts, rules)
    return decision or _retried(policy, counts)


def _by_policy(
    error: BaseException, policy: Retry, counts: DecisionInputs
) -> Decision | None:
    """Return the decision of `never` and `on`; None if they do not decide."""
    name = type(error).__qualname__
    if isinstance(error, policy.never):
        return _dead(
            Reason.PERMANENT, f"dead at once: `never` of the retry policy has {name}"
        )
    if not policy.on:
        return None
    if isinstance(error, policy.on):
        return _retried(policy, counts, f"`on` of the retry policy has {name}")
    if isinstance(error, BaseExceptionGroup):
        return None  # the errors in it are judged
    return _dead(
        Reason.PERMANENT, f"dead at once: {name} is not in `on` of the retry policy"
    )


def _by_rules(
    error: BaseException, policy: Retry, counts: DecisionInputs, rules: ErrorRules
) -> Decision | None:
    """Return the decision of the table of error classes; None for the class `other`."""
    found = recognise(error, counts.now)
    rule = rules.find(error, found)
    if rule is not None:
        why = found.why or shown_name(error)
        return _ruled(rule, policy, counts, f"{why}, by a rule of errors=")
    match found.kind:
        case "permanent":
            return _ruled("dead", policy, counts, found.why)
        case "transient":
            return _ruled("retry", policy, counts, found.why)
        case "pool_exhausted":
            # The policy's number of retries is an upper bound.
            numbers = POOL_RETRY.overridden({"retries": min(3, policy.retries)})
            return _ruled(numbers, policy, counts, found.why)
        case "retry_after":
            return _ruled(_wait(found, counts), policy, counts, found.why)
        case _:
            return None


def _wait(found: RecognisedError, counts: DecisionInputs) -> Snooze:
    bounded = min(found.wait_seconds, counts.retry_after_max_seconds)
    return Snooze(max(bounded, RETRY_AFTER_MIN_SECONDS))


def _ruled(
    rule: ErrorRule, policy: Retry, counts: DecisionInputs, why: str
) -> Decision:
    if rule == "dead":
        return _dead(Reason.PERMANENT, f"dead at once: {why}")
    if policy.retries == 0:
        # One attempt is one attempt, whatever a table says.
        return _retried(policy, counts, why)
    if isinstance(rule, Snooze):
        return _snoozed(rule.delay_seconds, counts, why)
    return _retried(rule if isinstance(rule, Retry) else policy, counts, why)


def _group(
    group: BaseExceptionGroup[BaseException],
    policy: Retry,
    counts: DecisionInputs,
    rules: ErrorRules,
) -> Decision:
    """Return the decision that the errors of a group ask for together.

    If one of them is dead the job is dead: that part of its work fails again. Else one
    that is retried comes before one that is snoozed.
    """
    decisions = [
        decide(error, policy, counts, rules) for error in errors_in(group)[:GROUP_MAX]
    ]
    order = (OutcomeKind.SNOOZE, OutcomeKind.RETRY, OutcomeKind.DEAD)
    return max(decisions, key=lambda d: (order.index(d.kind), d.delay_seconds))


def _controlled(error: Control, policy: Retry, counts: DecisionInputs) -> Decision:
    match error:
        case Snooze():
            delay = error.delay_seconds
            if isinstance(error, PollSnooze):
                delay = error.seconds_until_next(snoozed=counts.snoozed, now=counts.now)
            decision = _snoozed(delay, counts, "the task raised Snooze")
            is_dead = decision.kind is OutcomeKind.DEAD
            return decision._replace(keeps_error=is_dead)
        case RetryAfter():
            why = "the task raised Retry.after"
            return _retried(policy, counts, why, error.delay_seconds)
        case Cancel():
            return Decision(OutcomeKind.CANCEL, keeps_error=False)
        case DeadLetter():
            return _dead(Reason.REQUESTED, "dead at once: the task raised DeadLetter")
        case Permanent() | _:
            return _dead(Reason.PERMANENT, "dead at once: the task raised Permanent")


def _dead(reason: str, text: str) -> Decision:
    return Decision(OutcomeKind.DEAD, reason=reason, text=text)


def _snoozed(delay_seconds: float, counts: DecisionInputs, why: str) -> Decision:
    if counts.snoozed >= SNOOZES_MAX:
        text = f"dead after {SNOOZES_MAX:,} snoozes: {why}"
        return _dead(Reason.EXHAUSTED, text)
    text = f"snoozed for {format_duration(delay_seconds)}: {why}"
    return Decision(OutcomeKind.SNOOZE, delay_seconds, text=text)


def _retried(
    numbers: Retry,
    counts: DecisionInputs,
    why: str = "",
    delay_seconds: float | None = None,
) -> Decision:
    """Return a retry by these numbers, or dead if they are used up."""
    why = f": {why}" if why else ""
    most = numbers.retries
    if counts.retried >= most:
        tries = "1 attempt" if most == 0 else f"{most + 1} attempts"
        dead = _dead(Reason.EXHAUSTED, f"dead after {tries}, the most allowed{why}")
        return dead._replace(max_attempts=numbers.max_attempts)
    retry = counts.retried + 1
    if delay_seconds is None:
        delay_seconds = numbers.delay_seconds(retry, counts.share)
    text = f"retry {retry} of {most} in {format_duration(delay_seconds)}{why}"
    return Decision(
        OutcomeKind.RETRY, delay_seconds, text=text, max_attempts=numbers.max_attempts
    )
