"""Expiry: no attempt of a job begins after its time; a job that still waits then is dead.

The stored options of the job have the time. A record of the kind `expire:<namespace>`, due at
that time, makes the leader look at the job: it is written with the job and deleted when it is
met. Each job and time has a record of its own, so a job that gets another expiry
(`unique=replace`) gets another record, and the earlier one finds nothing to do.
"""

from datetime import datetime

from durio.model.effects import Put
from durio.model.errors import InvalidOption, JobExpired, JobNotFound
from durio.model.ids import id_bytes, id_text
from durio.model.job import NewJob, utc_datetime
from durio.model.names import namespace_of
from durio.model.option_values import check_moment
from durio.model.quantities import Duration, format_duration, seconds

ExpiresOption = Duration | datetime | None
# As it is parsed: seconds from the enqueue, or a time.
Expires = float | datetime | None


def parse_expires(value: object) -> Expires:
    """Return an option as it is parsed; refuse anything but a duration, a time or None."""
    if value is None:
        return None
    if isinstance(value, datetime):
        check_moment(value, "expires")
        return value
    span = seconds(value, "expires")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    if span <= 0:
        raise InvalidOption(
            f"expires cannot be {value!r}: no job starts within 0 s",
            cure="Give a longer time, or None for no expiry.",
            option="expires",
            value=value,
        )
    return span


def published_expiry(expires: Expires) -> dict[str, float | str]:
    """Return the expiry of a task as published, for programs without its code."""
    if expires is None:
        return {}
    is_time = isinstance(expires, datetime)
    return {"expires": expires.isoformat() if is_time else expires}


def expires_of_published(value: object) -> Expires:
    """Return the value that `published_expiry` wrote; None for anything else."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) else None


def expiry_time(expires: Expires, now: float) -> float | None:
    """Return when a job expires that is enqueued now, as seconds since 1970."""
    if isinstance(expires, datetime):
        return expires.timestamp()
    return None if expires is None else now + expires


def checked_expiry(
    expires: Expires, *, task: str, now: float, starts_at: float
) -> float | None:
    """Return when a job expires; refuse a time at which it could not have started."""
    at = expiry_time(expires, now)
    if at is None:
        return None
    if at <= now:
        raise InvalidOption(
            f"{task}: expires={utc_datetime(at)} passed {format_duration(now - at)} ago",
            cure="Give a time in the future.",
            option="expires",
        )
    if at <= starts_at:
        raise InvalidOption(
            f"{task}: the job would expire {format_duration(at - now)} after its enqueue, "
            f"and may not start before {format_duration(starts_at - now)} have passed",
            cure="Give a later expires=, an earlier delay= or at=, or expires=None.",
            option="expires",
        )
    return at


# --- the records


def expiries_kind(namespace: str) -> str:
    return f"expire:{namespace}"


def expiry_put(job: NewJob, holder: bytes) -> Put | None:
    """Return the record for a job that was stored as `holder`; None without an expiry."""
    at = job.expires_at
    if at is None:
        return None
    kind = expiries_kind(namespace_of(job.lane))
    return Put(kind, f"{id_text(holder)}@{at!r}", b"{}", due_at=at)


def job_of_expiry(name: str) -> bytes | None:
    """Return the job of a record; None for a name that `expiry_put` does not write."""
    try:
        return id_bytes(name.partition("@")[0])
    except JobNotFound:
        return None


def job_expired() -> JobExpired:
    return JobExpired(
        "the job expired before a worker could start it",
        cure="If its work is still wanted, retry it: it will not expire again.",
    )
