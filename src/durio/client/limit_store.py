"""Read and change what the store knows about limits: records, and gates by prefix."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from durio.model.effects import Effects, Put
from durio.model.errors import InvalidName, InvalidOption, UsageError
from durio.model.gate_rule import GateChoice, GateTemplate
from durio.model.limit_records import (
    CODE_LIMIT_TTL_SECONDS,
    CodeLimit,
    KnownLimit,
    ManualLimit,
    change_of,
    code_limit,
    code_limits_kind,
    gates_of_queue_limit,
    known_limits,
    manual_limits_kind,
)
from durio.model.limits import COUNT_MAX, parse_rate
from durio.model.names import did_you_mean
from durio.model.settings import DAY
from durio.ports.commit import ROWS_MAX
from durio.ports.control import AuditNote
from durio.ports.store import Store

T = TypeVar("T", CodeLimit, ManualLimit)
LIMITS_MAX = 1000  # of an App


async def declare_limits(
    store: Store,
    namespace: str,
    templates: Mapping[str, GateTemplate],
    tasks: Mapping[str, Iterable[str]],
    now: float,
) -> None:
    """Write the limits of a worker's code; existing gates get their numbers.

    Most workers declare nothing new. What was set by hand stays.
    """
    day = int(now // DAY)
    wanted = {
        name: code_limit(template, tuple(sorted(tasks[name])), day)
        for name, template in sorted(templates.items())
    }
    if not wanted:
        return
    stored = await read_kind(store, code_limits_kind(namespace), CodeLimit)
    changed = {name: new for name, new in wanted.items() if stored.get(name) != new}
    puts = [
        Put(
            code_limits_kind(namespace),
            name,
            msgspec.json.encode(new),
            ttl_seconds=CODE_LIMIT_TTL_SECONDS,
        )
        for name, new in changed.items()
    ]
    for start in range(0, len(puts), ROWS_MAX):
        await store.commit(Effects(puts=puts[start : start + ROWS_MAX]))
    manual = await read_kind(store, manual_limits_kind(namespace), ManualLimit)
    for name, new in changed.items():
        old = stored.get(name)
        if name not in manual and (old is None or old.choice != new.choice):
            await change_gates(store, new.gates, new.choice)


async def change_gates(store: Store, gates: str, choice: GateChoice) -> None:
    """Give all gates of a limit these numbers, also those that are more than a call changes."""
    change = change_of(gates, choice)
    while (await store.commit(Effects(gates=[change]))).gates[0] >= ROWS_MAX:
        pass


async def read_limits(store: Store, namespace: str) -> list[KnownLimit]:
    """Return every limit that the code declares or that was set by hand, by name."""
    code = await read_kind(store, code_limits_kind(namespace), CodeLimit)
    manual = await read_kind(store, manual_limits_kind(namespace), ManualLimit)
    return known_limits(code, manual)


async def read_kind(store: Store, kind: str, struct: type[T]) -> dict[str, T]:
    records = await store.list_records(kind, limit=LIMITS_MAX)
    return {
        record.name: msgspec.json.decode(record.body, type=struct) for record in records
    }


# --- by hand


async def find_limit(store: Store, namespace: str, name: str) -> KnownLimit:
    """Return a limit; `queue:<name>` and `fair:<name>` need no declaration."""
    known = {limit.name: limit for limit in await read_limits(store, namespace)}
    if name in known:
        return known[name]
    gates = gates_of_queue_limit(namespace, name)
    if gates is None:
        listed = ", ".join(sorted(known)[:8]) or "none"
        raise InvalidName(
            f"App {namespace} has no limit {name!r}",
            cure=f"Known: {listed}. A worker declares the limits of its tasks at its start. "
            f"For all jobs of a queue: queue:NAME.{did_you_mean(name, known)}",
        )
    return KnownLimit(name, gates, None, None)


async def set_limit(
    store: Store, namespace: str, limit: KnownLimit, choice: GateChoice, note: AuditNote
) -> None:
    """Set a limit by hand: for the gates that exist, and for jobs from now on."""
    manual = ManualLimit(limit.gates, *choice)
    kind = manual_limits_kind(namespace)
    put = Put(kind, limit.name, msgspec.json.encode(manual))
    await store.commit(Effects(puts=[put]), note=note)
    await change_gates(store, limit.gates, choice)


async def reset_limit(
    store: Store, namespace: str, limit: KnownLimit, note: AuditNote
) -> GateChoice:
    """Forget what was set by hand; return the numbers in force then."""
    put = Put(manual_limits_kind(namespace), limit.name, None)
    await store.commit(Effects(puts=[put]), note=note)
    choice = limit._replace(manual=None).choice
    await change_gates(store, limit.gates, choice)
    return choice


def parse_choice(
    limit: KnownLimit, values: Iterable[str], burst: float | None
) -> GateChoice:
    """Return the numbers of texts such as `5` or `100/m`, if the limit can have them."""
    cap: int | None = None
    rate: float | None = None
    for text in values:
        if "/" in text:
            if rate is not None:
                raise twice(limit.name, "rate")
            amount, rate = parse_rate(text)
            if limit.kind == "budget":
                burst = amount if burst is None else burst
        elif cap is not None:
            raise twice(limit.name, "number of jobs")
        else:
            cap = parse_count(text, limit.name)
    wanted = {"concurrency": "cap", "fairness": "cap", "rate": "rate", "budget": "rate"}
    only = wanted.get(limit.kind)
    if (only == "cap" and rate is not None) or (only == "rate" and cap is not None):
        needs = (
            "a number of jobs, such as 5" if only == "cap" else "a rate, such as 100/m"
        )
        raise InvalidOption(
            f"limit {limit.name} is a {limit.kind}, and needs {needs}",
            cure=f"durio limits set {limit.name} {'5' if only == 'cap' else '100/m'}",
            option="limits",
        )
    if burst is not None and (rate is None or not 1 <= burst < float("inf")):
        raise InvalidOption(
            f"limit {limit.name} cannot have the burst {burst:g}",
            cure="Give a rate, and a burst of 1 or more.",
            option="limits",
        )
    return GateChoice(cap, rate, 1.0 if rate is not None and burst is None else burst)


def parse_count(text: str, name: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text[:20]) <= COUNT_MAX:
        return int(text)
    raise InvalidOption(
        f"limit {name} cannot be {text[:40]!r}",
        cure="Give a number of jobs, 1 or more, or a rate such as 100/m. To stop all "
        "jobs: durio queues pause. To take the limit away: durio limits set --off.",
        option="limits",
    )


def twice(name: str, what: str) -> UsageError:
    return UsageError(
        f"limit {name}: two values, each a {what}", cure="Give each of them once."
    )
