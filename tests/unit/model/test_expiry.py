"""When a job expires: the option, its published form, the time, and the record."""

from datetime import UTC, datetime, timedelta

import pytest

from durio.model.effects import Put
from durio.model.errors import InvalidOption
from durio.model.expiry import (
    checked_expiry,
    expires_of_published,
    expiry_put,
    expiry_time,
    job_expired,
    job_of_expiry,
    parse_expires,
    published_expiry,
)
from durio.model.job import NewJob

NOW = 1_800_000_000.0
LATER = datetime.fromtimestamp(NOW + 60, UTC)
ID = bytes(range(16))


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        (None, None),
        (90, 90.0),
        ("5m", 300.0),
        (timedelta(hours=1), 3600.0),
        (LATER, LATER),
    ],
)
def test_an_expiry_is_a_duration_a_time_or_none(value: object, parsed: object) -> None:
    assert parse_expires(value) == parsed


@pytest.mark.parametrize(
    "value", [0, "0s", -1, "soon", True, [], LATER.replace(tzinfo=None)]
)
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(InvalidOption, match="expires cannot be"):
        parse_expires(value)


@pytest.mark.parametrize("expires", [None, 90.0, LATER])
def test_a_published_expiry_is_read_as_it_was(expires: float | datetime | None) -> None:
    published = published_expiry(expires)
    assert expires_of_published(published.get("expires")) == expires


def test_a_published_value_of_another_release_is_no_expiry() -> None:
    assert expires_of_published("soon") is None
    assert expires_of_published(["5m"]) is None


def test_an_expiry_counts_from_the_enqueue() -> None:
    assert expiry_time(None, NOW) is None
    assert expiry_time(90.0, NOW) == NOW + 90
    assert expiry_time(LATER, NOW) == NOW + 60


def checked(expires: float | datetime | None, starts_in: float = 0.0) -> float | None:
    return checked_expiry(expires, task="shop.send", now=NOW, starts_at=NOW + starts_in)


def test_an_expiry_after_the_start_is_accepted() -> None:
    assert checked(None) is None
    assert checked(60.0, 59.9) == NOW + 60
    assert checked(LATER) == NOW + 60


def test_an_expiry_in_the_past_is_refused() -> None:
    with pytest.raises(InvalidOption, match="passed 60 s ago"):
        checked(LATER - timedelta(minutes=2))
    with pytest.raises(InvalidOption, match="passed 0 s ago"):
        checked(datetime.fromtimestamp(NOW, UTC))


def test_an_expiry_before_the_start_is_refused() -> None:
    with pytest.raises(InvalidOption, match="expire 60 s after its enqueue") as caught:
        checked(LATER, 7200.0)
    assert "before 2 h have passed" in str(caught.value)
    with pytest.raises(InvalidOption):
        checked(60.0, 60.0)


def job(expires_at: float | None) -> NewJob:
    return NewJob(ID, "shop:mail", 4, "shop.send", b"[[],{}]", expires_at=expires_at)


def test_a_record_names_the_job_that_is_stored() -> None:
    """Each expiry of a job has a record of its own."""
    assert expiry_put(job(None), ID) is None
    put = expiry_put(job(NOW), ID)
    assert put is not None
    assert put == Put("expire:shop", put.name, b"{}", due_at=NOW)
    assert job_of_expiry(put.name) == ID
    later = expiry_put(job(NOW + 1), ID)
    assert later is not None
    assert later.name != put.name


def test_a_name_of_another_release_names_no_job() -> None:
    assert job_of_expiry("mail@now") is None


def test_the_error_says_what_to_do() -> None:
    assert "retry it" in job_expired().cure
