"""States, priorities and the small conversions of a job."""

from datetime import UTC, datetime

from durio.model import job
from durio.model.job import (
    CODE_BY_STATE,
    STATE_BY_CODE,
    Priority,
    State,
    attempt_number,
    utc_datetime,
)


def test_stored_codes_are_fixed_and_final_ones_are_last() -> None:
    assert [state.value for state in STATE_BY_CODE] == [
        "scheduled",
        "blocked",
        "ready",
        "running",
        "done",
        "dead",
        "cancelled",
    ]
    for code, state in enumerate(STATE_BY_CODE):
        assert CODE_BY_STATE[state] == code == getattr(job, state.name)
        assert state.is_final == (code >= 4)


def test_named_priorities_are_within_bounds() -> None:
    assert all(0 <= priority <= job.PRIORITY_MAX for priority in Priority)
    assert Priority.NORMAL == job.PRIORITY_DEFAULT


def test_moments_are_aware() -> None:
    assert utc_datetime(0.0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert utc_datetime(None) is None


def test_the_attempt_counts_retries_and_losses() -> None:
    assert State("done") is State.DONE
    assert attempt_number(0, 0) == 1
    assert attempt_number(2, 1) == 4


def test_a_time_that_cannot_be_is_no_time() -> None:
    assert utc_datetime(float("inf")) is None
    assert utc_datetime(1e300) is None
