"""Options of a task and of one call; later ones win: app, task, each `.options()`.

`CallOptions` is the table of all options. The annotation of each field says what the value
means, how it is checked and stored, and where it may be given. The checks, the stored form,
flags of `durio enqueue`, the reference page and a test of typed signatures are made from it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, NoReturn, Self

import msgspec

from durio.model.batch import Batch, check_batch
from durio.model.breaker_rule import checked_breaker_name
from durio.model.celery_names import line_for_option
from durio.model.codec import encoder
from durio.model.error_rules import ErrorKey, ErrorRule, error_rules
from durio.model.errors import InvalidOption, UsageError
from durio.model.expiry import ExpiresOption, parse_expires
from durio.model.job_states import parse_states
from durio.model.keys import KeyPolicy
from durio.model.limits import Limit, LimitKey, parse_fair_by, parse_limits
from durio.model.names import check_task, did_you_mean
from durio.model.option_table import (
    APP_TASK,
    APP_TASK_CALL,
    CALL,
    TASK,
    TASK_CALL,
    Flag,
    Option,
    parsed_by,
)
from durio.model.option_values import (
    Retention,
    UniqueName,
    check_aliases,
    check_at,
    check_meta,
    check_meta_size,
    check_priority,
    check_process,
    check_unique,
    keep_of,
    name_of,
    optional_key,
    retry_fields,
    seconds_of,
    stored_limits,
    stored_meta,
)
from durio.model.plan_place import PlanPlace
from durio.model.quantities import Duration
from durio.model.retry import Retry, as_retry
from durio.model.tick import TickPlace
from durio.model.timeout import TimeLimits, Timeout, time_limits
from durio.model.tx import Joinable, check_tx


class Unset:
    """The value of an option that was not given; None is a value of its own."""

    def __repr__(self) -> str:
        return "..."

    def __reduce__(self) -> str:
        return "UNSET"  # a copy is the same object


UNSET: Final[Any] = Unset()


# --- the table


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a task or of one enqueue; immutable and reusable."""

    name: Annotated[
        str,
        Option(
            "the task's name; the part before a dot is the App's; `*` at its end: all names",
            TASK,
            parsed_by(check_task),
            default="the function's name",
        ),
    ] = UNSET
    aliases: Annotated[
        tuple[str, ...],
        Option(
            "earlier names of the task: jobs stored under them run, and an enqueue by "
            "one is stored under the task's name",
            TASK,
            parsed_by(check_aliases),
            default="none",
        ),
    ] = UNSET
    queue: Annotated[
        str,
        Option(
            "the queue in which the job waits",
            TASK_CALL,
            name_of("queue"),
            default="`default`",
            handler="queue",
            flag=Flag("QUEUE", "Queue to use (default: the task's)."),
        ),
    ] = UNSET
    priority: Annotated[
        int,
        Option(
            "0 to 9; 9 is most urgent",
            TASK_CALL,
            parsed_by(check_priority),
            default="5",
            handler="priority",
            flag=Flag(
                "N", "0 to 9, 9 is most urgent (default: the task's, or 5).", "number"
            ),
        ),
    ] = UNSET
    retry: Annotated[
        Retry | int,
        Option(
            "a policy, or a number of retries; `Retry(5)` waits up to 60, 120, 240, 480 "
            "and 960 s, with jitter",
            APP_TASK_CALL,
            parsed_by(as_retry),
            default="`Retry(5)`",
            handler="retry",
            stored="retry",
            store=retry_fields,
        ),
    ] = UNSET
    errors: Annotated[
        Mapping[ErrorKey, ErrorRule],
        Option(
            "what happens after these errors, before the retry policy decides: "
            '`{404: "retry", BadAddress: "dead"}`; see [classes of errors]'
            "(error-classes.md)",
            APP_TASK,
            parsed_by(error_rules),
            default="none",
            handler="errors",
        ),
    ] = UNSET
    timeout: Annotated[
        Timeout,
        Option(
            "soft and hard limit of an attempt; `None` is no limit",
            APP_TASK_CALL,
            parsed_by(time_limits),
            default="(270, 300)",
            handler="limits",
            stored="timeout",
            store=stored_limits,
        ),
    ] = UNSET
    delay: Annotated[
        Duration,
        Option(
            "how long the job waits before it may run; not with `at`",
            CALL,
            seconds_of("delay"),
            default="0",
            flag=Flag("DURATION", "Start after this time: 90s, 5m, 2h, 3d."),
        ),
    ] = UNSET
    at: Annotated[
        datetime,
        Option(
            "when the job may run, an aware datetime; not with `delay`",
            CALL,
            parsed_by(check_at),
            default="now",
            flag=Flag(
                "TIME", "Start at this time, with zone: 2030-01-31T09:00:00Z.", "time"
            ),
        ),
    ] = UNSET
    expires: Annotated[
        ExpiresOption,
        Option(
            "no attempt begins after this time, a duration from the enqueue or an aware "
            "datetime: a job that still waits then is dead",
            TASK_CALL,
            parsed_by(parse_expires),
            default="never",
            handler="expires",
            flag=Flag("DURATION", "Dead if it waits for longer: 90s, 5m, 2h, 3d."),
        ),
    ] = UNSET
    key: Annotated[
        str | None,
        Option(
            "idempotency key: the same key is the same job",
            CALL,
            parsed_by(optional_key),
            default="no key",
            stored="key",
            flag=Flag(
                "KEY", "Idempotency key: for 24h the same key gives the same job."
            ),
        ),
    ] = UNSET
    unique: Annotated[
        KeyPolicy | UniqueName,
        Option(
            "how long the key holds, and what a second enqueue does: see `durio.keys`; "
            'policies without parameters also by name, such as `"while_active"`',
            CALL,
            parsed_by(check_unique),
            default='`window("24h")`',
        ),
    ] = UNSET
    meta: Annotated[
        Mapping[str, object] | None,
        Option(
            "data stored with the job; later options merge by key",
            CALL,
            parsed_by(check_meta),
            default="none",
            stored="meta",
            store=stored_meta,
            flag=Flag("JSON", "JSON object to store with the job.", "json"),
        ),
    ] = UNSET
    retention: Annotated[
        Retention,
        Option(
            'how long the job stays after its end: an age such as `"48h"`, or '
            "`Keep(100)` for the newest 100 of the task",
            TASK_CALL,
            keep_of,
            default="`retention.done_seconds`",
            handler="keep",
            stored="keep",
            store=tuple,
        ),
    ] = UNSET
    result_ttl: Annotated[
        Duration,
        Option(
            "how long the result can be read",
            TASK_CALL,
            seconds_of("result_ttl"),
            default="`retention.result_seconds`",
            handler="result_seconds",
            stored="result_seconds",
        ),
    ] = UNSET
    tx: Annotated[
        Joinable | None,
        Option(
            "the caller's connection, in whose transaction the job is stored",
            CALL,
            parsed_by(check_tx),
            default="a transaction of its own",
        ),
    ] = UNSET
    limits: Annotated[
        Sequence[Limit],
        Option(
            "how many of its jobs run at once, or start in a time: "
            '`[Concurrency(5, key="tenant"), Rate("100/m")]`',
            TASK,
            parsed_by(parse_limits),
            default="none",
        ),
    ] = UNSET
    fair_by: Annotated[
        LimitKey,
        Option(
            "jobs with different values there take turns in the queue: a parameter's name "
            "or a key as limits have",
            TASK,
            parsed_by(parse_fair_by),
            default="none",
        ),
    ] = UNSET
    breaker: Annotated[
        str,
        Option(
            "the breaker that holds its jobs back while a dependency fails; declared with "
            "`App(breakers=[...])`",
            TASK,
            parsed_by(checked_breaker_name),
            default="none",
            handler="breaker",
        ),
    ] = UNSET
    process: Annotated[
        bool,
        Option(
            "run the task in a child process that can be killed",
            TASK,
            parsed_by(check_process),
            default="`False`",
            handler="is_process",
        ),
    ] = UNSET
    states: Annotated[
        Sequence[str],
        Option(
            "the names that `ctx.progress(state=...)` may have",
            TASK,
            parse_states,
            default="all",
            handler="states",
        ),
    ] = UNSET
    batch: Annotated[
        Batch,
        Option(
            "how many jobs one call of the function gets: `durio.limits.Batch(64)`",
            TASK,
            parsed_by(check_batch),
            default="one job",
            handler="batch",
        ),
    ] = UNSET

    @classmethod
    def of_task(cls, given: Mapping[str, Any]) -> Self:
        """Return the options of `@app.task(...)`; refuse unknown names and bad values."""
        for name, value in given.items():
            if name not in TASK_OPTIONS:
                raise _unknown(name, value, TASK_OPTIONS, "a task has no option")
            OPTIONS[name].parse(value, "")
        return cls(**given)

    def policies(self, task: str) -> dict[str, Any]:
        """Return the fields of a Handler that these options of a task set."""
        return {
            option.handler: option.parse(value, task)
            for name, option in OPTIONS.items()
            if option.handler and (value := getattr(self, name)) is not UNSET
        }

    def __call__(self, **_options: object) -> NoReturn:
        """Refuse `signature.options(...)`: options come before the arguments."""
        raise UsageError(
            "a signature has its options already",
            cure="Write task.options(queue=..., delay=...).s(...), or plan.options(...).",
        )

    def with_changes(self, changes: Mapping[str, Any]) -> "CallOptions":
        """Return a copy with these changes; refuse unknown names and bad values."""
        if not changes:
            return self
        for name, value in changes.items():
            check_option(name, value)
        if self.meta is not UNSET and changes.get("meta"):
            changes = {**changes, "meta": {**(self.meta or {}), **changes["meta"]}}
        changed = msgspec.structs.replace(self, **changes)
        if changed.delay is not UNSET and changed.at is not UNSET:
            raise InvalidOption(
                "delay and at are both given",
                cure="Use either delay= or at=, not both.",
            )
        if changed.unique is not UNSET and changed.key in (UNSET, None):
            raise InvalidOption(
                f"unique={check_unique(changed.unique).name} needs a key",
                cure="Add key=...",
            )
        return changed


OPTIONS: dict[str, Option] = {
    name: annotation.__metadata__[0]
    for name, annotation in CallOptions.__annotations__.items()
}
TASK_OPTIONS = [name for name, option in OPTIONS.items() if "task" in option.places]
CHECKS: dict[str, Callable[[Any], None]] = {
    name: option.check for name, option in OPTIONS.items() if "call" in option.places
}
# Options that only a call has are stored as given, because `with_changes` has checked them.
STORED = [
    (name, option.stored, option.parse if option.handler else None, option.store)
    for name, option in OPTIONS.items()
    if option.stored
]
FLAGS = {name: option.flag for name, option in OPTIONS.items() if option.flag}
NO_OPTIONS = CallOptions()


def check_option(name: str, value: Any) -> None:
    """Refuse an unknown option of a call, or a value that it cannot have."""
    if name not in CHECKS:
        raise _unknown(name, value, CHECKS, "there is no option")
    CHECKS[name](value)


def _unknown(name: str, value: Any, known: Collection[str], what: str) -> InvalidOption:
    line = line_for_option(name, value)
    listed = f"Options: {', '.join(known)}.{did_you_mean(name, known)}"
    return InvalidOption(f"{what} {name!r}", cure=line or listed)


# --- the stored form


class RowOptions(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Overrides and meta as stored with the job, in JSON."""

    retry: dict[str, Any] | None = None  # fields of Retry, without classes
    timeout: tuple[float, float] | msgspec.UnsetType | None = msgspec.UNSET
    meta: dict[str, Any] | None = None
    keep: tuple[float, int | None, str | None] | None = None
    result_seconds: float | None = None
    key: str | None = None  # as the caller gave it, for people
    plan: PlanPlace | None = None  # the job is a node of a plan
    is_chunk: bool = False  # the payload is a list of calls, each `[args, kwargs]`
    tick: TickPlace | None = None  # the job was made by a schedule
    expires: float | None = None  # no attempt begins after it; seconds since 1970
    # By name: the gate of a budget, and the estimate that the job takes there.
    budgets: dict[str, tuple[str, float]] | None = None

    def __post_init__(self) -> None:
        """Refuse values that no enqueue stores: any program may have written the row."""
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
    """Return the stored options of a job; without any, an empty RowOptions."""
    if stored is None:
        return NO_ROW_OPTIONS
    try:
        return _decoder.decode(stored)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidOption(
            f"the stored options of the job are damaged: {error}",
            cure="Cancel it, and enqueue it again through Durio.",
        ) from None


def stored_options(
    options: CallOptions,
    task: str,
    meta_bytes_max: int,
    plan: PlanPlace | None = None,
    *,
    is_chunk: bool = False,
    expires_at: float | None = None,
) -> bytes | None:
    """Return the options that are stored with a job of this task; None if it has none."""
    if options is NO_OPTIONS:
        if plan is None and expires_at is None:
            return None
        row = RowOptions(plan=plan, is_chunk=is_chunk, expires=expires_at)
        return encoder.encode(row)
    values: dict[str, Any] = {"plan": plan, "is_chunk": is_chunk, "expires": expires_at}
    for name, field, parse, store in STORED:
        value = getattr(options, name)
        if value is not UNSET:
            parsed = parse(value, task) if parse else value
            values[field] = store(parsed) if store else parsed
    row = RowOptions(**values)
    if row.meta is not None:
        check_meta_size(row.meta, meta_bytes_max)
    return None if row == NO_ROW_OPTIONS else encoder.encode(row)
