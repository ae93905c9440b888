"""A schedule as it is stored: a record of the kind `schedule:<namespace>`.

The record is due at the time of the next tick. Whoever handles a tick writes the record on
the condition that it still has the version that was read, together with the job of the
tick: so each tick is handled once, by any number of schedulers.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from durio.model.codec import UNREADABLE
from durio.model.effects import Put
from durio.model.errors import InvalidSchedule
from durio.model.schedule_rule import Rule

Overlap = Literal["skip", "queue_one", "queue_all", "cancel_previous", "allow"]
Catchup = Literal["none", "latest", "all"]
Skipped = Literal[
    "catchup",
    "overlap",
    "queue_closed",
    "max_runs",
    "key",
    "invalid",
    "changed",
    "paused",
]

TICKS_KEPT = 10
LIVE_MAX = 100  # runs whose end is watched
LINK_BYTES_MAX = 24 * 1024  # task and arguments
# Those of people and those of the code. A record has 64 KiB, of which 20 are for ticks
# that wait, 10 for excluded dates, and 5 for runs.
LINKS_BYTES_MAX = 28 * 1024
SAME_LINK: dict[str, Any] = {}  # stored for the code, if it is that of the definition
CATCHUP_WINDOW_SECONDS = 86400.0
CATCHUP_MAX = 100


class Definition(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a schedule runs, when, and what it does if it cannot."""

    link: dict[str, Any]  # document of a signature or plan
    rule: Rule
    overlap: Overlap = "skip"
    catchup: Catchup = "latest"
    catchup_window: float = CATCHUP_WINDOW_SECONDS  # older ticks are not made up for
    catchup_max: int = CATCHUP_MAX  # most ticks that `all` makes up for
    jitter: float = 0.0  # seconds; a random delay of the job, not of the tick
    max_runs: int | None = None
    pause_on_failure: bool = False

    def is_same_as(self, other: "Definition") -> bool:
        """Whether both say the same; the anchor of an interval is chosen, not said."""
        rule = replace(other.rule, anchor=self.rule.anchor)
        return self == replace(other, rule=rule)


class TickRun(NamedTuple):
    """A job or plan that a tick has made."""

    id: str
    is_plan: bool = False


class TickNote(NamedTuple):
    """A tick that was handled."""

    due_at: float
    run: TickRun | None = None
    skipped: Skipped | None = None  # why it made no job
    # How the run ended, if a scheduler has looked since: its final state, or `gone`.
    outcome: str | None = None


class Pause(NamedTuple):
    """Who paused a schedule, when and why."""

    by: str
    at: float
    reason: str = ""
    # The code no longer declares it: a declaration resumes it.
    is_undeclared: bool = False


class ScheduleRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The body of the record."""

    definition: Definition
    created_at: float
    code: Definition | None = None  # what the code declares; None: it declares nothing
    is_manual: bool = True  # created or changed by people, so `code` does not count
    # Grows with each change, but not with ticks: milliseconds since 1970, or more.
    version: int = 0
    pause: Pause | None = None
    next_at: float | None = None  # time of the next tick; None: none, or not known yet
    run_count: int = 0  # ticks that made a job
    skipped_count: int = 0
    last_at: float | None = None  # time of the last tick that made a job
    ticks: tuple[TickNote, ...] = ()  # the newest, oldest first
    live: tuple[
        TickRun, ...
    ] = ()  # runs that had not ended when they were last looked at
    # Times of ticks that wait until the run before them ends.
    waiting: tuple[float, ...] = ()

    @property
    def origin(self) -> Literal["code", "manual"]:
        return "manual" if self.is_manual else "code"

    @property
    def is_over(self) -> bool:
        """Whether it will never be due again."""
        watches = self.definition.rule.fixed_delay and bool(self.live)
        return self.next_at is None and not self.waiting and not watches


_decoder = msgspec.json.Decoder(ScheduleRecord)


def default_overlap(catchup: Catchup) -> Overlap:
    """Return the overlap of a schedule that names none."""
    # Late ticks that run one after the other are what `all` is for.
    return "queue_all" if catchup == "all" else "skip"


def schedules_kind(namespace: str) -> str:
    return f"schedule:{namespace}"


@contextmanager
def readable(what: str, cure: str) -> Generator[None]:
    """Raise InvalidSchedule if a record is damaged, or has a rule that is not known here."""
    try:
        yield
    except (*UNREADABLE, InvalidSchedule) as error:
        why = error.what if isinstance(error, InvalidSchedule) else error
        raise InvalidSchedule(
            f"the record of the {what} is damaged: {why}", cure=cure
        ) from None


def load_schedule(body: bytes, name: str) -> ScheduleRecord:
    cure = "Delete the schedule, and create it again."
    with readable(f"schedule {name!r}", cure):
        record = _decoder.decode(body)
        record.definition.rule.check()
    code = record.code
    if code is not None and code.link == SAME_LINK:
        return replace(record, code=replace(code, link=record.definition.link))
    return record


def schedule_put(
    namespace: str,
    name: str,
    record: ScheduleRecord,
    version: int,
    due_at: float | None,
) -> Put:
    """Return the write of a schedule; a schedule that is paused or over is not due."""
    if record.pause is not None or record.is_over:
        due_at = None
    code = record.code
    if code is not None and code.link == record.definition.link:
        record = replace(record, code=replace(code, link=SAME_LINK))
    kind, body = schedules_kind(namespace), msgspec.json.encode(record)
    return Put(kind, name, body, if_version=version, due_at=due_at)


def check_size(record: ScheduleRecord, name: str) -> None:
    """Refuse two links that leave no room for the rest of the record."""
    code, link = record.code, record.definition.link
    if code is None or code.link == link:
        return
    sizes = [len(msgspec.json.encode(each)) for each in (link, code.link)]
    if sum(sizes) > LINKS_BYTES_MAX:
        raise InvalidSchedule(
            f"the schedule {name!r} has {sizes[0]:,} bytes of task and arguments, and "
            f"the code declares {sizes[1]:,} bytes",
            cure=f"Both are stored, in at most {LINKS_BYTES_MAX:,} bytes: store the "
            "data, and pass its id.",
        )
