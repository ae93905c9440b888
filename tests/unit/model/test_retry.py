"""Retry policies: how often and when; exact with jitter off."""

import pickle  # noqa: TID251 - a policy may travel in a traceback of other tools
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy, deepcopy

import pytest

from durio.model.errors import InvalidOption
from durio.model.retry import Retry, as_retry


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


def test_the_fields_of_a_policy_cannot_be_deleted() -> None:
    policy = Retry(3)
    with pytest.raises(AttributeError, match="cannot be changed"):
        del policy.retries
    policy.__notes__ = ["of the exception"]
    del policy.__notes__
    assert policy == Retry(3)
