"""A queue's declared options, and the queues that a worker serves.

A worker's arguments override declarations in code, which override the defaults. A glob
with `*`, `?` or `[...]` means every queue that matches, also future ones.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec

from durio.model.errors import InvalidName, InvalidOption
from durio.model.names import check_name, did_you_mean
from durio.model.option_values import Retention, check_retention
from durio.model.options import UNSET
from durio.model.quantities import Duration, seconds
from durio.model.settings import JOBS_MAX

DEFAULT_QUEUE = "default"
WEIGHT_MAX = 1000
MAXSIZE_MAX = 1_000_000_000
# Brackets must be closed; all other characters must be valid in a name.
GLOB_SHAPE = re.compile(r"(?:[\w.:*?-]|\[!?[\w.:-]+\])+", re.ASCII)
GLOB_LENGTH_MAX = 128


class Queue(msgspec.Struct, frozen=True):
    """The declaration of a queue, for `App(queues=[...])`; a queue needs none."""

    __module__ = "durio.queues"

    name: str  # without the App's name
    retention: Retention = UNSET  # of done and cancelled jobs; the task's comes first
    maxsize: int | None = UNSET  # most jobs that wait; None: no bound
    full_wait: Duration = UNSET  # how long an enqueue waits for room; default 5 s
    weight: int = UNSET  # share of a worker among its queues; default 1
    slots: int | None = UNSET  # most running jobs in one worker; None: all slots
    prefetch: int | None = UNSET  # most claimed jobs that wait for a slot

    def __post_init__(self) -> None:
        """Refuse invalid values at declaration."""
        check_name("queue", self.name)
        if self.retention is not UNSET:
            check_retention(self.retention)
        if self.full_wait is not UNSET:
            seconds(self.full_wait, f"queue {self.name!r}: full_wait")
        where = f"queue {self.name!r}"
        check_number(f"{where}: weight", self.weight, 1, WEIGHT_MAX)
        for option, least, most in BOUNDS:
            value = getattr(self, option)
            if value is not None:
                check_number(f"{where}: {option}", value, least, most)

    def changed_by(self, other: "Queue") -> "Queue":
        """Return this queue with the options that a later declaration gives."""
        fields = msgspec.structs.asdict(other)
        said = {name: value for name, value in fields.items() if value is not UNSET}
        return msgspec.structs.replace(self, **said)


BOUNDS = (
    ("maxsize", 1, MAXSIZE_MAX),
    ("slots", 1, JOBS_MAX),
    ("prefetch", 0, JOBS_MAX),
)


def check_number(what: str, value: Any, least: int, most: int) -> None:
    """Refuse anything but a whole number in this range; UNSET is allowed."""
    if value is UNSET:
        return
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:
        raise InvalidOption(
            f"{what} cannot be {value!r}",
            cure=f"Give a whole number from {least} to {most}.",
        )


UNDECLARED = Queue(DEFAULT_QUEUE)

# Five queues for `App(queues=TIERS)`: critical, high, default, low and bulk. Each gets
# twice the share of a worker that the next one gets.
TIERS = (
    Queue("critical", weight=16, slots=8, prefetch=1),
    Queue("high", weight=8, slots=4, prefetch=2),
    Queue(DEFAULT_QUEUE, weight=4, slots=4, prefetch=4),
    Queue("low", weight=2, slots=2, prefetch=8),
    Queue("bulk", weight=1, slots=2, prefetch=8),
)


# --- a worker's arguments


def is_glob(pattern: str) -> bool:
    """Whether this may match several queues.

    A queue's name cannot contain these characters.
    """
    return any(character in pattern for character in "*?[]")


def matches(pattern: str, queue: str) -> bool:
    """Whether a name or glob matches this queue."""
    return pattern == queue or (is_glob(pattern) and fnmatchcase(queue, pattern))


def serves(patterns: Sequence[str] | None, queue: str) -> bool:
    """Whether a worker with these names and globs serves a queue; None: all queues."""
    return patterns is None or any(matches(pattern, queue) for pattern in patterns)


def check_pattern(pattern: str) -> str:
    """Refuse what is neither the name of a queue nor a glob."""
    if not isinstance(pattern, str) or not is_glob(pattern):
        return check_name("queue", pattern)
    if GLOB_SHAPE.fullmatch(pattern) is None or len(pattern) > GLOB_LENGTH_MAX:
        raise InvalidName(
            f"{pattern[:GLOB_LENGTH_MAX]!r} can match no queue",
            cure="Use * for any text, ? for one character, [abc] for one of these.",
        )
    return pattern


class QueueArgument(NamedTuple):
    """One argument about a queue or glob, such as `high=4`."""

    pattern: str
    number: int | None = None


def parse_queue_argument(text: str, what: str, least: int, most: int) -> QueueArgument:
    """Parse `high` or `high=4`; `what` is the flag or parameter, for errors."""
    pattern, equals, number = str(text).partition("=")
    check_pattern(pattern if isinstance(text, str) else text)
    if not equals:
        return QueueArgument(pattern)
    try:
        value: Any = int(number)
    except ValueError:
        value = number
    check_number(f"{what} {text}: the number", value, least, most)
    return QueueArgument(pattern, value)


def refuse_repeated(what: str, given: Sequence[QueueArgument]) -> None:
    seen: set[str] = set()
    for pattern, _ in given:
        if pattern in seen:
            raise InvalidOption(
                f"{what} names {pattern!r} twice", cure="Name each queue once."
            )
        seen.add(pattern)


class QueueRule(NamedTuple):
    """How a worker serves one queue."""

    weight: int = 1
    slots: int | None = None  # None: all slots of the worker
    prefetch: int | None = None  # None: the worker's


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Which queues a worker serves, and how."""

    queues: tuple[QueueArgument, ...] | None = (
        None  # names and globs with their slots; None: every queue of the App
    )
    weights: tuple[QueueArgument, ...] = ()
    prefetches: tuple[QueueArgument, ...] = ()
    declared: Mapping[str, Queue] = {}
    is_strict: bool = False

    @property
    def patterns(self) -> tuple[str, ...] | None:
        """Names and globs; None means every queue."""
        return None if self.queues is None else tuple(t.pattern for t in self.queues)

    @property
    def names(self) -> list[str]:
        """Queues named without a glob, which are served whether they exist or not."""
        return [pattern for pattern in self.patterns or () if not is_glob(pattern)]

    @property
    def is_open(self) -> bool:
        """Whether it may serve queues that are not named in full."""
        return self.queues is None or any(is_glob(t.pattern) for t in self.queues)

    def serves(self, queue: str) -> bool:
        return serves(self.patterns, queue)

    def rule_of(self, queue: str) -> QueueRule:
        declared = self.declared.get(queue, UNDECLARED)
        return QueueRule(
            _number_for(self.weights, queue, declared.weight) or 1,
            _number_for(self.queues or (), queue, declared.slots),
            _number_for(self.prefetches, queue, declared.prefetch),
        )

    @property
    def rules(self) -> dict[str, QueueRule]:
        """The rules of all queues and globs that arguments or declarations name."""
        arguments = (*(self.queues or ()), *self.weights, *self.prefetches)
        served = filter(self.serves, self.declared)
        named = dict.fromkeys([*(t.pattern for t in arguments), *served])
        return {queue: self.rule_of(queue) for queue in named}

    @property
    def has_quotas(self) -> bool:
        """Whether any queue has its own slots or prefetch."""
        return self.has_prefetch or any(
            rule.slots is not None for rule in self.rules.values()
        )

    @property
    def has_prefetch(self) -> bool:
        """Whether any queue has its own prefetch."""
        return any(rule.prefetch is not None for rule in self.rules.values())

    def is_reserved(self, concurrency: int) -> bool:
        """Whether each queue's slots are reserved, so that no other queue can take them."""
        slots = [self.rule_of(name).slots or concurrency + 1 for name in self.names]
        return not self.is_open and sum(slots) <= concurrency

    @property
    def as_arguments(self) -> list[str]:
        """Return the queues as command-line arguments."""
        arguments = self.queues or ()
        return [p if n is None else f"{p}={n}" for p, n in arguments]

    def shown(self) -> dict[str, Any]:
        """Return the rules, for people who inspect a worker."""
        rules = self.rules
        return {
            "slots": {q: r.slots for q, r in rules.items() if r.slots is not None},
            "weights": {q: r.weight for q, r in rules.items() if r.weight > 1},
            "prefetch": {
                q: r.prefetch for q, r in rules.items() if r.prefetch is not None
            },
            "strict": self.is_strict,
        }

    def position_of(self, queue: str) -> tuple[int, int, str]:
        """Return a sort key: by argument, then by declaration, then by name."""
        patterns = self.patterns or ()
        fits = [place for place, p in enumerate(patterns) if matches(p, queue)]
        exact = [place for place in fits if patterns[place] == queue]
        order = dict(zip(self.declared, range(len(self.declared)), strict=True))
        return (*exact, *fits, 0)[0], order.get(queue, len(order)), queue

    def concurrency(self, given: int | None, default: int) -> int:
        """Return `given`, else the sum if every named queue has slots, else `default`."""
        total = default if given is None else given
        slots = [self.rule_of(name).slots for name in self.names]
        if given is None and slots and not self.is_open and None not in slots:
            total = sum(number for number in slots if number is not None)
        for pattern, number in self.queues or ():
            if number is not None and number > total:
                raise InvalidOption(
                    f"queue {pattern!r} cannot have {number} slots: the worker has "
                    f"{total}",
                    cure=f"Give it at most {total}, or the worker more: -c {number}.",
                )
        return total

    def check(self, known: Iterable[str]) -> None:
        """Refuse unknown queues, and options of queues that are not served."""
        existing = {DEFAULT_QUEUE, *self.declared, *known}
        for pattern in self.patterns or ():
            if not is_glob(pattern) and pattern not in existing:
                raise InvalidOption(
                    f"there is no queue {pattern!r}: it holds no job, and no task of "
                    "the App names it",
                    cure="Declare a queue that is only used from elsewhere: "
                    f'app.queue("{pattern}", weight=1).{did_you_mean(pattern, existing)}',
                )
        for what, given in (("weight", self.weights), ("prefetch", self.prefetches)):
            for pattern, _ in given:
                self._check_served(what, pattern, existing)
        if self.is_strict and self.queues is None and not self.declared:
            raise InvalidOption(
                "strict needs an order of queues",
                cure="Name them in order: -q high -q default -q low; or "
                "declare them in that order, with options: app.queue('high', weight=1).",
            )

    def _check_served(self, what: str, pattern: str, existing: set[str]) -> None:
        served = existing if self.queues is None else {*self.names}
        if is_glob(pattern) or pattern in served:
            return
        if self.queues is not None and self.serves(pattern):
            return
        raise InvalidOption(
            f"{what} of queue {pattern!r}: this worker does not serve it",
            cure=f"It serves {', '.join(sorted(served)) or 'what matches its globs'}."
            f"{did_you_mean(pattern, served)}",
        )


def _number_for(given: Sequence[QueueArgument], queue: str, declared: Any) -> Any:
    """Return the number for a queue: by its name, by the first glob, as declared, or None."""
    by_name = [t.number for t in given if t.pattern == queue]
    by_glob = [t.number for t in given if matches(t.pattern, queue)]
    for number in (*by_name[:1], *by_glob[:1]):
        if number is not None:
            return number
    return None if declared is UNSET else declared


def parse_serving(
    queues: Sequence[str] | None = None,
    *,
    weights: Sequence[str] = (),
    prefetches: Sequence[str] = (),
    declared: Mapping[str, Queue] | None = None,
    is_strict: bool = False,
) -> Serving:
    """Parse a worker's arguments: `high=4`, weights `high=6`, prefetches `mail=4`."""
    slots = None
    if queues is not None:
        slots = tuple(
            parse_queue_argument(text, "queue", 1, JOBS_MAX) for text in queues
        )
        refuse_repeated("queue", slots)
    shares = tuple(
        parse_queue_argument(text, "weight", 1, WEIGHT_MAX) for text in weights
    )
    ahead = tuple(
        parse_queue_argument(text, "prefetch", 0, JOBS_MAX) for text in prefetches
    )
    for what, given in (("weight", shares), ("prefetch", ahead)):
        refuse_repeated(what, given)
        for pattern, number in given:
            if number is None:
                raise InvalidOption(
                    f"{what} {pattern}: the number is missing",
                    cure=f"Write {what} {pattern}=4.",
                )
    if is_strict and shares:
        raise InvalidOption(
            "strict and weight exclude each other",
            cure="With strict the first queue always comes first: leave weights out.",
        )
    return Serving(
        queues=slots or None,
        weights=shares,
        prefetches=ahead,
        declared=declared or {},
        is_strict=is_strict,
    )
