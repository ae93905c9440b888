"""Values of options: their checks, and the plain data that is stored."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, cast

import msgspec

from durio.model.codec import encode
from durio.model.errors import InvalidOption
from durio.model.job import PRIORITY_MAX
from durio.model.keys import KeyPolicy, replace, while_active, while_waiting
from durio.model.names import check_key, check_name
from durio.model.outcome import KeepRule
from durio.model.quantities import seconds
from durio.model.retry import Retry
from durio.model.timeout import TimeLimits

YEAR_MAX = 9000  # a later time may not fit a datetime
COUNT_MAX = 2**31 - 1


class Keep(msgspec.Struct, frozen=True):
    """A retention by number: `retention=Keep(100)` keeps the newest 100 ended jobs.

    They are counted for each task, or for each queue if the queue declares it.
    """

    __module__ = "durio"

    count: int  # jobs that stay; 0: a job is deleted when it is done

    def __post_init__(self) -> None:
        """Refuse a value that is not a count."""
        is_count = isinstance(self.count, int) and not isinstance(self.count, bool)
        if not is_count or not 0 <= self.count <= COUNT_MAX:
            raise InvalidOption(
                f"Keep cannot take {self.count!r}",
                cure="Give the number of jobs that stay, such as Keep(100); Keep(0) "
                "deletes a job when it is done.",
                option="retention",
                value=self.count,
            )


Retention = Keep | str | timedelta
# The policies that have no parameters may be given by name.
UniqueName = Literal["while_waiting", "while_active", "replace"]
POLICIES = {policy.name: policy for policy in (while_waiting, while_active, replace)}


def check_priority(priority: Any) -> int:
    """Accept 0 to 9; 9 is most urgent."""
    if (
        not isinstance(priority, int)
        or isinstance(priority, bool)
        or not 0 <= priority <= PRIORITY_MAX
    ):
        raise InvalidOption(
            f"priority cannot be {priority!r}",
            cure="Give 0 to 9; 9 is most urgent, 5 the default.",
        )
    return priority


def check_aliases(aliases: Any) -> tuple[str, ...]:
    """Return earlier names of a task as a tuple; refuse anything but a list or tuple."""
    if not isinstance(aliases, tuple | list):
        raise InvalidOption(
            f"aliases cannot be {aliases!r:.80}",
            cure="Give a tuple of earlier names: aliases=('old_name',).",
        )
    return tuple(check_name("task", name) for name in cast("list[Any]", aliases))


def check_at(at: Any) -> None:
    """Refuse anything but an aware datetime."""
    check_moment(at, "at")


def check_moment(moment: Any, option: str) -> None:
    """Refuse anything but an aware datetime, as the value of this option."""
    if (
        not isinstance(moment, datetime)
        or moment.utcoffset() is None
        or moment.year > YEAR_MAX
    ):
        raise InvalidOption(
            f"{option} cannot be {moment!r}",
            cure="Give an aware datetime such as datetime.now(UTC) + timedelta(hours=1).",
        )


def check_retention(retention: Any) -> None:
    """Refuse anything but a Keep or an age; a bare number could mean either."""
    if isinstance(retention, int | float) and not isinstance(retention, bool):
        # The spellings of a number that can be a count; else those of an example.
        shown = retention if isinstance(retention, int) and retention >= 0 else 100
        raise InvalidOption(
            f"retention cannot be the number {retention!r}",
            cure=f"Write Keep({shown}) to keep this number of jobs, or "
            f'"{shown}s" for an age in seconds.',
            option="retention",
            value=retention,
        )
    if not isinstance(retention, Keep | str | timedelta):
        raise InvalidOption(
            f"retention cannot be {retention!r}",
            cure="Give an age such as '48h', or Keep(100) for the newest 100 jobs.",
            option="retention",
            value=retention,
        )
    if not isinstance(retention, Keep):
        seconds(retention, "retention")


def check_meta(meta: Any) -> None:
    """Refuse anything but a mapping with text keys."""
    if meta is None:
        return
    keys = list(cast("Mapping[Any, Any]", meta)) if isinstance(meta, Mapping) else [0]
    if not all(isinstance(key, str) for key in keys):
        raise InvalidOption("meta must be a dict", cure="Give a dict with str keys.")


def check_meta_size(meta: Mapping[str, Any], bytes_max: int) -> None:
    size = len(encode(meta, "meta"))
    if size > bytes_max:
        raise InvalidOption(
            f"meta is {size} bytes, over the bound of {bytes_max}",
            cure="Keep ids in meta and the data elsewhere.",
        )


def check_unique(policy: Any) -> KeyPolicy:
    """Return a policy of durio.keys; one without parameters may be given by name."""
    if isinstance(policy, str) and policy in POLICIES:
        return POLICIES[policy]
    if not isinstance(policy, KeyPolicy):
        raise InvalidOption(
            f"unique cannot be {policy!r}",
            cure="Use while_waiting, while_active, window(), replace or debounce() "
            "from durio.keys; three of them also by name: "
            f"{', '.join(map(repr, POLICIES))}.",
        )
    return policy


def check_process(process: Any) -> bool:
    """Refuse anything but True or False."""
    if not isinstance(process, bool):
        raise InvalidOption(
            f"process cannot be {process!r}",
            cure="Give True to run the task in a child process, or leave it out.",
            option="process",
            value=process,
        )
    return process


def retry_fields(policy: Retry) -> dict[str, Any]:
    """Return a policy as plain data; exception classes cannot be stored."""
    if policy.on or policy.never:
        raise InvalidOption(
            "retry: `on` and `never` cannot be given at call time",
            cure="Put them on @app.task(retry=...): rows keep numbers, not classes.",
        )
    delays = policy.delays
    return {
        "retries": policy.retries,
        "base": seconds(policy.base),
        "factor": policy.factor,
        "max_delay": seconds(policy.max_delay),
        "jitter": policy.jitter,
        "delays": None if delays is None else tuple(seconds(d) for d in delays),
    }


def name_of(kind: str) -> Callable[[Any, str], str]:
    """Return the `parse` of an option that is a name of this kind."""
    return lambda value, _task: check_name(kind, value)


def seconds_of(option: str) -> Callable[[Any, str], float]:
    """Return the `parse` of an option that is a duration."""
    return lambda value, _task: seconds(value, option)


def optional_key(key: Any) -> str | None:
    return None if key is None else check_key(key)


def stored_limits(limits: TimeLimits) -> tuple[float | None, ...] | None:
    return None if limits.hard_seconds is None else tuple(limits)


def stored_meta(meta: Mapping[str, object] | None) -> dict[str, object] | None:
    return dict(meta) if meta else None


def keep_of(
    retention: Retention, bucket: str, longest: float = 365 * 86400.0
) -> KeepRule:
    """Parse a retention: a Keep is for the newest jobs of `bucket`, else it is an age."""
    check_retention(retention)
    if isinstance(retention, Keep):
        count = retention.count
        return KeepRule(longest, count, bucket) if count else KeepRule(0.0)
    return KeepRule(seconds(retention, "retention"))
