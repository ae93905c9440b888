"""What happens after a failed attempt: the order of what decides, and the numbers."""

import httpx
import msgspec
import pytest
import redis

from durio.model.decision import SNOOZES_MAX, Decision, DecisionInputs, decide
from durio.model.error_rules import NO_RULES, ErrorRules, error_rules
from durio.model.errors import (
    Cancel,
    Control,
    DeadLetter,
    DurioError,
    InvalidResult,
    JobNotFound,
    KeyConflict,
    Permanent,
    QueueFull,
    StoreError,
    UsageError,
    WrongState,
)
from durio.model.outcome import OutcomeKind, Reason
from durio.model.retry import Retry, Snooze

FIRST = DecisionInputs(retried=0, snoozed=0)

POLICY = Retry(2, base=10, jitter=False, on=(OSError,), never=(FileNotFoundError,))
DEAD = OutcomeKind.DEAD


@pytest.mark.proves("M68", "M69", "M70", "M83")
@pytest.mark.parametrize(
    ("error", "used", "decision"),
    [
        (OSError(), 0, Decision(OutcomeKind.RETRY, 10)),
        (OSError(), 1, Decision(OutcomeKind.RETRY, 20)),
        (OSError(), 2, Decision(DEAD, reason=Reason.EXHAUSTED)),
        (FileNotFoundError(), 0, Decision(DEAD, reason=Reason.PERMANENT)),
        (ValueError(), 0, Decision(DEAD, reason=Reason.PERMANENT)),
        (Permanent("x"), 0, Decision(DEAD, reason=Reason.PERMANENT)),
        (Control("of a kind unknown here"), 0, Decision(DEAD, reason=Reason.PERMANENT)),
        (DeadLetter("why"), 0, Decision(DEAD, reason=Reason.REQUESTED)),
        (Cancel(), 0, Decision(OutcomeKind.CANCEL)),
        (Snooze("1m"), 2, Decision(OutcomeKind.SNOOZE, 60)),
        (Retry.after("30s"), 1, Decision(OutcomeKind.RETRY, 30)),
        (Retry.after("30s"), 2, Decision(DEAD, reason=Reason.EXHAUSTED)),
    ],
    ids=repr,
)
def test_what_becomes_of_a_failure(
    error: BaseException, used: int, decision: Decision
) -> None:
    counts = DecisionInputs(used, snoozed=0)
    assert decide(error, POLICY, counts)[:3] == decision[:3]


def test_without_a_list_every_error_is_retried() -> None:
    told = decide(KeyError(), Retry(1, jitter=False), FIRST)
    assert told.kind is OutcomeKind.RETRY


@pytest.mark.proves("M73")
def test_invalid_data_is_dead_at_once_unless_the_policy_lists_errors() -> None:
    for wanted, on in ((DEAD, ()), (OutcomeKind.RETRY, (ValueError,))):
        error = msgspec.ValidationError("no such field")
        told = decide(error, Retry(3, on=on), FIRST)
        assert told.kind is wanted


def test_snoozes_are_bounded() -> None:
    told = decide(Snooze(1), POLICY, DecisionInputs(0, SNOOZES_MAX))
    assert told[:3] == (DEAD, 0, Reason.EXHAUSTED)
    assert told.keeps_error
    assert told.text == "dead after 10,000 snoozes: the task raised Snooze"


def test_a_raised_policy_decides_by_its_own_numbers() -> None:
    raised = Retry(2, base=7, jitter=False, never=Retry)

    def after(retried: int) -> tuple[object, ...]:
        return decide(raised, Retry(0, never=Retry), DecisionInputs(retried, 0))[:3]

    assert after(0) == (OutcomeKind.RETRY, 7, None)
    assert after(1) == (OutcomeKind.RETRY, 14, None)
    assert after(2) == (OutcomeKind.DEAD, 0, Reason.EXHAUSTED)


FAMILIES: dict[str, tuple[DurioError, OutcomeKind]] = {
    "usage": (UsageError("x"), OutcomeKind.DEAD),
    "a taken key": (KeyConflict("x"), OutcomeKind.RETRY),
    "wrong state": (WrongState("x"), OutcomeKind.DEAD),
    "no such job": (JobNotFound("x"), OutcomeKind.RETRY),
    "full": (
        QueueFull("x", queue="q", depth=1, limit=1, retry_after=1.0),
        OutcomeKind.RETRY,
    ),
    "store": (StoreError("x"), OutcomeKind.RETRY),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_call_is_permanent_and_trouble_is_not(family: str) -> None:
    error, kind = FAMILIES[family]
    decision = decide(error, Retry(3), FIRST)
    assert decision.kind is kind
    assert decision.reason == (Reason.PERMANENT if kind is OutcomeKind.DEAD else None)
    listed = decide(error, Retry(3, on=DurioError), FIRST)
    assert listed.kind is OutcomeKind.RETRY


def test_a_wrong_result_has_its_own_reason() -> None:
    decision = decide(InvalidResult("x"), Retry(3), FIRST)
    assert decision[:3] == (OutcomeKind.DEAD, 0, Reason.BAD_RESULT)


# --- the table of error classes

DEFAULT = Retry(5, jitter=False)
REQUEST = httpx.Request("GET", "https://example.org")
RETRY, SNOOZE = OutcomeKind.RETRY, OutcomeKind.SNOOZE


def answer(status: int, **headers: str) -> httpx.HTTPStatusError:
    response = httpx.Response(status, headers=headers, request=REQUEST)
    return httpx.HTTPStatusError(str(status), request=REQUEST, response=response)


def busy(seconds: str = "30") -> httpx.HTTPStatusError:
    return answer(429, **{"Retry-After": seconds})


POOL = httpx.PoolTimeout("no connection was free")
NETWORK = httpx.ConnectError("no route to host")


@pytest.mark.proves("M71", "M72", "M73", "M75", "M76", "L8")
@pytest.mark.parametrize(
    ("error", "retried", "kind", "delay", "text"),
    [
        (NETWORK, 0, RETRY, 60, "retry 1 of 5 in 60 s: network (httpx.ConnectError)"),
        (
            NETWORK,
            4,
            RETRY,
            960,
            "retry 5 of 5 in 16 min: network (httpx.ConnectError)",
        ),
        (
            NETWORK,
            5,
            DEAD,
            0,
            "dead after 6 attempts, the most allowed: network (httpx.ConnectError)",
        ),
        (answer(503), 0, RETRY, 60, "retry 1 of 5 in 60 s: HTTP 503"),
        (answer(429), 0, RETRY, 60, "retry 1 of 5 in 60 s: HTTP 429"),
        (busy(), 3, SNOOZE, 30, "snoozed for 30 s: HTTP 429 with Retry-After"),
        (
            busy("86400"),
            0,
            SNOOZE,
            3600,
            "snoozed for 60 min: HTTP 429 with Retry-After",
        ),
        (busy("0"), 0, SNOOZE, 1, "snoozed for 1 s: HTTP 429 with Retry-After"),
        (answer(404), 0, DEAD, 0, "dead at once: HTTP 404"),
        (
            POOL,
            2,
            RETRY,
            5,
            "retry 3 of 3 in 5 s: connection pool exhausted (httpx.PoolTimeout)",
        ),
        (
            POOL,
            3,
            DEAD,
            0,
            (
                "dead after 4 attempts, the most allowed: connection pool exhausted "
                "(httpx.PoolTimeout)"
            ),
        ),
        (ValueError(), 0, RETRY, 60, "retry 1 of 5 in 60 s"),
        (TypeError(), 0, RETRY, 60, "retry 1 of 5 in 60 s"),
    ],
    ids=repr,
)
def test_each_class_has_its_numbers(
    error: Exception, retried: int, kind: OutcomeKind, delay: float, text: str
) -> None:
    decision = decide(error, DEFAULT, DecisionInputs(retried, snoozed=0))
    assert (decision.kind, decision.delay_seconds) == (kind, delay)
    assert decision.text == text


def test_snoozes_by_the_table_have_the_same_bound() -> None:
    last = decide(busy(), DEFAULT, DecisionInputs(0, SNOOZES_MAX - 1))
    over = decide(busy(), DEFAULT, DecisionInputs(0, SNOOZES_MAX))
    assert (last.kind, over.kind, over.reason) == (SNOOZE, DEAD, Reason.EXHAUSTED)


def test_the_longest_wait_is_a_setting() -> None:
    counts = DecisionInputs(0, 0, retry_after_max_seconds=10)
    assert decide(busy(), DEFAULT, counts).delay_seconds == 10


NOT_FOUND_AGAIN = error_rules({404: "retry"})


@pytest.mark.proves("M70", "M76")
@pytest.mark.parametrize(
    ("error", "policy", "rules", "kind"),
    [
        # A control exception comes first, `never` second.
        (Snooze(5), Retry(3, never=Snooze), NO_RULES, SNOOZE),
        (NETWORK, Retry(3, never=httpx.ConnectError), NO_RULES, DEAD),
        (busy(), Retry(3, never=httpx.HTTPError, on=httpx.HTTPError), NO_RULES, DEAD),
        (answer(404), Retry(3, never=httpx.HTTPError), NOT_FOUND_AGAIN, DEAD),
        # Then `on`: it retries what the table has as dead, and nothing else.
        (answer(404), Retry(3, on=httpx.HTTPError), NO_RULES, RETRY),
        (busy(), Retry(3, on=httpx.HTTPError), NO_RULES, RETRY),
        (NETWORK, Retry(3, on=OSError), NO_RULES, DEAD),
        # Then the table, rules of the user before what is built in.
        (answer(404), Retry(3), NOT_FOUND_AGAIN, RETRY),
        (answer(404), Retry(3), NO_RULES, DEAD),
        # One attempt is one attempt.
        (busy(), Retry(0), NO_RULES, DEAD),
        (POOL, Retry(0), NO_RULES, DEAD),
        (POOL, Retry(0), error_rules({"pool_exhausted": Retry(9)}), DEAD),
        (NETWORK, Retry(0), NO_RULES, DEAD),
    ],
    ids=repr,
)
def test_the_order(
    error: Exception, policy: Retry, rules: ErrorRules, kind: OutcomeKind
) -> None:
    assert decide(error, policy, FIRST, rules).kind is kind


def test_a_policy_replaces_the_numbers_of_transient_errors_only() -> None:
    policy = Retry(20, base="5s", jitter=False)
    assert decide(NETWORK, policy, FIRST).delay_seconds == 5
    assert decide(NETWORK, policy, FIRST).max_attempts == 21
    assert decide(POOL, policy, FIRST).max_attempts == 4
    assert decide(POOL, Retry(2), FIRST).max_attempts == 3  # an upper bound
    assert decide(answer(404), policy, FIRST).kind is DEAD


def test_what_an_app_says_about_errors() -> None:
    rules = error_rules(
        {
            ZeroDivisionError: "dead",
            "redis.TimeoutError": Snooze("10s"),
            409: Retry(1, delays=("2s",), jitter=False),
            "other": "dead",
            "permanent": "retry",
        }
    )

    def told(error: Exception) -> tuple[OutcomeKind, float]:
        return decide(error, DEFAULT, FIRST, rules)[:2]

    assert told(ZeroDivisionError()) == (DEAD, 0)
    assert told(redis.TimeoutError()) == (SNOOZE, 10)
    assert told(answer(409)) == (RETRY, 2)
    assert told(KeyError()) == (DEAD, 0)
    assert told(answer(404)) == (RETRY, 60)
    text = decide(KeyError(), DEFAULT, FIRST, rules).text
    assert text == "dead at once: KeyError, by a rule of errors="


@pytest.mark.parametrize(
    ("errors", "policy", "kind", "delay"),
    [
        ([busy("2"), busy("7")], DEFAULT, SNOOZE, 7),
        ([busy("2"), NETWORK], DEFAULT, RETRY, 60),
        ([busy("2"), NETWORK, answer(404)], DEFAULT, DEAD, 0),
        ([KeyError(), ValueError()], DEFAULT, RETRY, 60),
        ([KeyError()], Retry(3, never=KeyError), DEAD, 0),
        (
            [ExceptionGroup("inner", [KeyError()])],
            Retry(3, on=KeyError, jitter=False),
            RETRY,
            60,
        ),
        ([KeyError(), NETWORK], Retry(3, on=KeyError), DEAD, 0),
        ([answer(404)], Retry(3, on=ExceptionGroup, jitter=False), RETRY, 60),
        ([answer(404)], Retry(3, never=ExceptionGroup), DEAD, 0),
    ],
    ids=repr,
)
def test_the_errors_of_a_group_decide_together(
    errors: list[Exception], policy: Retry, kind: OutcomeKind, delay: float
) -> None:
    decision = decide(ExceptionGroup("of a TaskGroup", errors), policy, FIRST)
    assert (decision.kind, decision.delay_seconds) == (kind, delay)


def test_a_rule_for_other_errors_looks_into_groups() -> None:
    group = ExceptionGroup("of a TaskGroup", [busy("2")])
    rules = error_rules({"other": "dead"})
    assert decide(group, DEFAULT, FIRST, rules).kind is SNOOZE


def test_the_cause_of_an_error_does_not_decide() -> None:
    error = RuntimeError("the upload failed")
    error.__cause__ = answer(404)
    assert decide(error, DEFAULT, FIRST).kind is RETRY
