"""Retry policies: again, when, or dead; exact with jitter off."""

import pickle  # noqa: TID251 - a policy may travel in a traceback of other tools
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy, deepcopy

import msgspec
import pytest

from durio.model.errors import (
    Cancel,
    Control,
    DeadLetter,
    DurioError,
    InvalidOption,
    InvalidResult,
    JobNotFound,
    Permanent,
    QueueFull,
    StoreError,
    UsageError,
    WrongState,
)
from durio.model.outcome import OutcomeKind, Reason
from durio.model.retry import SNOOZES_MAX, Decision, Retry, Snooze, as_retry, classify


def sequence(policy: Retry, length: int) -> list[float]:
    return [policy.delay_seconds(n) for n in range(1, length + 1)]


@pytest.mark.proves("M59", "M61", "M62", "M63", "M64", "M65", "M66")
@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (Retry(5, base=30, jitter=False), [30, 60, 120, 240, 480]),
        (Retry(3, base=60, jitter=False), [60, 120, 240]),
        (Retry(3, base=1, jitter=False), [1, 2, 4]),
        (Retry(jitter=False), [60, 120, 240, 480, 960, 1920, 3600, 3600]),
        (Retry(base=7, factor=1, jitter=False), [7, 7, 7]),
        (Retry(delays=(1, "5s", 10), jitter=False), [1, 5, 10, 10]),
        (Retry(delays=("2h",), jitter=False), [3600]),
    ],
    ids=str,
)
def test_sequences_are_exact(policy: Retry, delays: list[float]) -> None:
    assert sequence(policy, len(delays)) == delays


def test_no_retry_number_overflows() -> None:
    assert Retry(factor=100, jitter=False).delay_seconds(10_000) == 3600
    assert Retry(factor=1, jitter=False).delay_seconds(10_000) == 60


@pytest.mark.proves("M67")
def test_jitter_is_an_even_share_of_the_whole() -> None:
    policy = Retry(base=10)
    assert policy.delay_seconds(1, 0.0) == 0
    assert policy.delay_seconds(1, 0.25) == 2.5
    assert policy.delay_seconds(2, 0.5) == 10


@pytest.mark.parametrize(
    "bad",
    [
        {"retries": -1},
        {"retries": True},
        {"retries": 10_001},
        {"retries": 1.5},
        {"base": -1},
        {"max_delay": "soon"},
        {"factor": 0.5},
        {"factor": 101},
        {"factor": "2"},
        {"delays": (-1,)},
        {"delays": 5},
        {"jitter": 0.5},
        {"on": int},
        {"on": [OSError]},
        {"on": ("OSError",)},
        {"never": (int,)},
    ],
    ids=str,
)
def test_bad_policies_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidOption):
        Retry(**bad)  # pyright: ignore[reportArgumentType]


@pytest.mark.proves("M20", "M60")
def test_short_forms_and_overrides() -> None:
    assert as_retry(3) == Retry(3)
    assert as_retry(Retry(2)).max_attempts == 3
    for bad in (True, "3", None):
        with pytest.raises(InvalidOption):
            as_retry(bad)  # pyright: ignore[reportArgumentType]
    policy = Retry(5, base=30)
    assert policy.overridden({}) is policy
    assert policy.overridden({"retries": 1}) == Retry(1, base=30)


@pytest.mark.proves("M77")
@pytest.mark.parametrize(
    ("policy", "loops"),
    [
        (Retry(3), False),
        (Retry(0, base=0), False),
        (Retry(3, base=0), True),
        (Retry(3, max_delay=0), True),
        (Retry(3, delays=(0, "0s")), True),
        (Retry(3, delays=(0, 1)), False),
    ],
    ids=str,
)
def test_a_loop_without_a_pause_is_seen(policy: Retry, *, loops: bool) -> None:
    assert policy.has_no_backoff is loops


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
    assert classify(error, POLICY, retried=used, snoozed=0, share=1.0) == decision


def test_without_a_list_every_error_is_retried() -> None:
    told = classify(KeyError(), Retry(1, jitter=False), retried=0, snoozed=0, share=1.0)
    assert told.kind is OutcomeKind.RETRY


@pytest.mark.proves("M73")
def test_invalid_data_is_dead_at_once_unless_the_policy_lists_errors() -> None:
    for wanted, on in ((DEAD, ()), (OutcomeKind.RETRY, (ValueError,))):
        error = msgspec.ValidationError("no such field")
        told = classify(error, Retry(3, on=on), retried=0, snoozed=0, share=1.0)
        assert told.kind is wanted


def test_snoozes_are_bounded() -> None:
    told = classify(Snooze(1), POLICY, retried=0, snoozed=SNOOZES_MAX, share=1.0)
    assert told == Decision(DEAD, reason=Reason.EXHAUSTED)


# --- a policy that is raised


def test_a_class_is_short_for_a_tuple_of_one() -> None:
    assert Retry(on=OSError) == Retry(on=(OSError,))
    assert Retry(never=OSError).never == (OSError,)


def test_a_policy_is_a_value() -> None:
    policy = Retry(3, base="10s", delays=[1, 2], on=OSError)
    assert policy == Retry(3, base="10s", delays=(1, 2), on=(OSError,))
    assert policy != Retry(3)
    assert policy != 3
    assert len({policy, copy(policy), deepcopy(policy), Retry(3)}) == 2
    assert pickle.loads(pickle.dumps(policy)) == policy  # noqa: S301
    assert repr(Retry(3, base=10)) == "Retry(3, base=10)"
    assert repr(Retry()) == "Retry(5)"


@pytest.mark.parametrize("name", ["retries", "base", "on", "args", "retires"])
def test_a_policy_cannot_be_changed(name: str) -> None:
    policy = Retry(3)
    with pytest.raises(AttributeError, match=rf"cannot be changed \({name}\)"):
        setattr(policy, name, 4)
    with pytest.raises(AttributeError):
        delattr(policy, name)
    assert policy == Retry(3)


def test_a_policy_can_be_raised_through_a_context_manager() -> None:
    @contextmanager
    def block() -> Iterator[None]:
        yield

    policy = Retry(3)
    with pytest.raises(Retry) as caught, block():
        raise policy from KeyError("x")
    assert caught.value is policy
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_raised_policy_decides_by_its_own_numbers() -> None:
    raised = Retry(2, base=7, jitter=False, never=Retry)

    def decide(retried: int) -> Decision:
        return classify(
            raised, Retry(0, never=Retry), retried=retried, snoozed=0, share=1.0
        )

    assert decide(0) == Decision(OutcomeKind.RETRY, 7)
    assert decide(1) == Decision(OutcomeKind.RETRY, 14)
    assert decide(2) == Decision(OutcomeKind.DEAD, reason=Reason.EXHAUSTED)


FAMILIES: dict[str, tuple[DurioError, OutcomeKind]] = {
    "usage": (UsageError("x"), OutcomeKind.DEAD),
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
    decision = classify(error, Retry(3), retried=0, snoozed=0, share=1.0)
    assert decision.kind is kind
    assert decision.reason == (Reason.PERMANENT if kind is OutcomeKind.DEAD else None)
    listed = classify(error, Retry(3, on=DurioError), retried=0, snoozed=0, share=1.0)
    assert listed.kind is OutcomeKind.RETRY


def test_a_wrong_result_has_its_own_reason() -> None:
    decision = classify(InvalidResult("x"), Retry(3), retried=0, snoozed=0, share=1.0)
    assert decision == Decision(OutcomeKind.DEAD, reason=Reason.BAD_RESULT)


def test_the_fields_of_a_policy_cannot_be_deleted() -> None:
    policy = Retry(3)
    with pytest.raises(AttributeError, match="cannot be changed"):
        del policy.retries
    policy.__notes__ = ["of the exception"]
    del policy.__notes__
    assert policy == Retry(3)
