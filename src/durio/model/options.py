"""Options of a task and of one call; later ones win: app, task, each `.options()`."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, cast

import msgspec

from durio.model.codec import encode, encoder
from durio.model.errors import InvalidOption
from durio.model.job import PRIORITY_MAX
from durio.model.keys import KeyPolicy
from durio.model.names import check_key, check_name, did_you_mean
from durio.model.outcome import Keep
from durio.model.quantities import Duration, seconds
from durio.model.retry import Retry, as_retry
from durio.model.timeout import TimeLimits, Timeout, time_limits
from durio.model.tx import Joinable, check_tx


class Unset:
    """The value of an option that was not given; None is a value of its own."""

    def __repr__(self) -> str:
        return "..."


UNSET: Final[Any] = Unset()
YEAR_MAX = 9000  # a stored time beyond it may not fit a datetime
Retention = int | str | timedelta


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one enqueue. Immutable and reusable."""

    queue: str = UNSET
    priority: int = UNSET
    retry: Retry | int = UNSET
    timeout: Timeout = UNSET
    delay: Duration = UNSET
    at: datetime = UNSET
    key: str | None = UNSET
    unique: KeyPolicy = UNSET
    meta: Mapping[str, Any] | None = UNSET
    retention: Retention = UNSET
    result_ttl: Duration = UNSET
    tx: Joinable | None = UNSET

    def with_changes(self, changes: Mapping[str, Any]) -> "CallOptions":
        """A copy with these changes; refuses unknown names and bad values."""
        for name, value in changes.items():
            check_option(name)(value)
        if self.meta is not UNSET and changes.get("meta"):
            changes = {**changes, "meta": {**(self.meta or {}), **changes["meta"]}}
        changed = msgspec.structs.replace(self, **changes)
        if changed.delay is not UNSET and changed.at is not UNSET:
            raise InvalidOption(
                "delay and at are both given", cure="Give one: after, or when."
            )
        if changed.unique is not UNSET and not _is_set(changed.key):
            raise InvalidOption(
                f"unique={changed.unique.name} needs a key", cure="Add key=..."
            )
        return changed


NO_OPTIONS = CallOptions()


class RowOptions(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Overrides and meta as stored with the job, in JSON."""

    retry: dict[str, Any] | None = None  # fields of Retry, without classes
    timeout: tuple[float, float] | msgspec.UnsetType | None = msgspec.UNSET
    meta: dict[str, Any] | None = None
    keep: tuple[float, int | None, str | None] | None = None
    result_seconds: float | None = None
    key: str | None = None  # as the caller gave it, for people

    def __post_init__(self) -> None:
        """Refuse what no enqueue would have stored: a row may come from any program."""
        if self.retry is not None:
            Retry(**self.retry)
        if isinstance(self.timeout, tuple):
            time_limits(self.timeout)

    def limits(self, default: TimeLimits) -> TimeLimits:
        if self.timeout is msgspec.UNSET:
            return default
        if self.timeout is None:
            return TimeLimits(None, None)
        return TimeLimits(*self.timeout)


NO_ROW_OPTIONS = RowOptions()
_decoder = msgspec.json.Decoder(RowOptions)


def row_options(stored: bytes | None) -> RowOptions:
    """The stored options of a job; None: nothing is overridden."""
    if stored is None:
        return NO_ROW_OPTIONS
    try:
        return _decoder.decode(stored)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidOption(
            f"the stored options of the job are damaged: {error}",
            cure="Cancel it, and enqueue it anew through Durio.",
        ) from None


def stored_options(
    options: CallOptions, bucket: str, meta_bytes_max: int
) -> bytes | None:
    """The options that are stored with the job; None if it has none."""
    values: dict[str, Any] = {}
    if _is_set(options.retry):
        values["retry"] = retry_fields(as_retry(options.retry))
    if options.timeout is not UNSET:
        limits = time_limits(options.timeout)
        values["timeout"] = None if limits.hard_seconds is None else tuple(limits)
    if _is_set(options.meta) and options.meta:
        _bounded_meta(options.meta, meta_bytes_max)
        values["meta"] = dict(options.meta)
    if _is_set(options.retention):
        values["keep"] = tuple(keep_of(options.retention, bucket))
    if _is_set(options.result_ttl):
        values["result_seconds"] = seconds(options.result_ttl, "result_ttl")
    if _is_set(options.key):
        values["key"] = options.key
    return encoder.encode(RowOptions(**values)) if values else None


def retry_fields(policy: Retry) -> dict[str, Any]:
    """A policy as plain data; exception classes cannot be stored."""
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


def keep_of(retention: Retention, bucket: str, longest: float = 365 * 86400.0) -> Keep:
    """An int keeps the newest jobs of `bucket`, that many; anything else is an age."""
    check_retention(retention)
    if isinstance(retention, int):
        return Keep(0.0) if retention == 0 else Keep(longest, retention, bucket)
    return Keep(seconds(retention, "retention"))


def _bounded_meta(meta: Mapping[str, Any], bytes_max: int) -> None:
    size = len(encode(meta, "meta"))
    if size > bytes_max:
        raise InvalidOption(
            f"meta is {size} bytes, over the bound of {bytes_max}",
            cure="Keep ids in meta and the data elsewhere.",
        )


# --- checks of each option


def _is_set(value: Any) -> bool:
    return value is not UNSET and value is not None


def check_priority(priority: Any) -> None:
    """0 to 9; 9 is most urgent."""
    if (
        not isinstance(priority, int)
        or isinstance(priority, bool)
        or not 0 <= priority <= PRIORITY_MAX
    ):
        raise InvalidOption(
            f"priority cannot be {priority!r}",
            cure="Give 0 to 9; 9 is most urgent, 5 the default.",
        )


def check_at(at: Any) -> None:
    """An aware datetime."""
    if not isinstance(at, datetime) or at.utcoffset() is None or at.year > YEAR_MAX:
        raise InvalidOption(
            f"at cannot be {at!r}",
            cure="Give an aware datetime such as datetime.now(UTC) + timedelta(hours=1).",
        )


def check_retention(retention: Any) -> None:
    """A count (int) or an age."""
    if isinstance(retention, bool) or not isinstance(retention, int | str | timedelta):
        raise InvalidOption(
            f"retention cannot be {retention!r}",
            cure="Give a count such as 100, or an age such as '48h'.",
        )
    if isinstance(retention, int) and retention < 0:
        raise InvalidOption(
            f"retention cannot be {retention}", cure="Give 0 or more, or an age."
        )
    if not isinstance(retention, int):
        seconds(retention, "retention")


def check_meta(meta: Any) -> None:
    """A mapping with text keys."""
    if meta is None:
        return
    keys = list(cast("Mapping[Any, Any]", meta)) if isinstance(meta, Mapping) else [0]
    if not all(isinstance(key, str) for key in keys):
        raise InvalidOption("meta must be a dict", cure="Give a dict with str keys.")


def check_unique(policy: Any) -> None:
    """One of the policies of durio.keys."""
    if not isinstance(policy, KeyPolicy):
        raise InvalidOption(
            f"unique cannot be {policy!r}",
            cure="Use while_waiting, while_active, window(), replace or debounce() "
            "from durio.keys.",
        )


def _checker(check: Callable[..., object], *more: Any) -> Callable[[Any], object]:
    return lambda value: check(value, *more)


def _check_queue(name: Any) -> None:
    check_name("queue", name)


def _check_key(key: Any) -> None:
    if key is not None:
        check_key(key)


def _check_retry(retry: Any) -> None:
    retry_fields(as_retry(retry))


def check_option(name: str) -> Callable[[Any], object]:
    """The check of this option; refuses an unknown name."""
    check = CHECKS.get(name)
    if check is None:
        raise InvalidOption(
            f"there is no option {name!r}",
            cure=f"Options: {', '.join(CHECKS)}.{did_you_mean(name, CHECKS)}",
        )
    return check


CHECKS: dict[str, Callable[[Any], object]] = {
    "queue": _check_queue,
    "priority": check_priority,
    "retry": _check_retry,
    "timeout": time_limits,
    "delay": _checker(seconds, "delay"),
    "at": check_at,
    "key": _check_key,
    "unique": check_unique,
    "meta": check_meta,
    "retention": check_retention,
    "result_ttl": _checker(seconds, "result_ttl"),
    "tx": check_tx,
}
