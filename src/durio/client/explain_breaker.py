"""The rule for jobs that a breaker holds back."""

from collections.abc import Iterator
from typing import NamedTuple

from durio.model.breaker import CLOSED, OPEN, BreakerRecord
from durio.model.explanation import JobReason, moment
from durio.model.quantities import counted, format_duration
from durio.ports.breaker_change import read_breakers
from durio.ports.store import Store


class BreakerFacts(NamedTuple):
    """The breaker of a job's task, if it is not closed."""

    name: str
    record: BreakerRecord


async def breaker_facts(
    store: Store, namespace: str, name: str | None
) -> BreakerFacts | None:
    """Return the facts about a breaker; None if it holds no job back."""
    if name is None:
        return None
    record = (await read_breakers(store, namespace, [name]))[name].record
    if record is None or record.state == CLOSED:
        return None
    return BreakerFacts(name, record)


def breaker_reasons(
    breaker: BreakerFacts | None, *, is_blocking: bool
) -> Iterator[JobReason]:
    """Yield until when a breaker holds a job back, and why it opened."""
    if breaker is None:
        return
    name, record = breaker
    why = record.changes[-1].why if record.changes else "unknown"
    command = f"durio breakers reset {name}"
    if record.state != OPEN:
        probes, most = len(record.probes), record.rule.probes
        text = (
            f'breaker "{name}" is half open: {probes} of {counted(most, "job")} try '
            "its dependency, and the others wait for the first result"
        )
        listed = ", ".join(record.probes)
        yield JobReason(
            "breaker_half_open",
            f"{text} ({listed})" if listed else text,
            "Wait for the result, or close the breaker.",
            command,
            is_blocking=is_blocking,
        )
        return
    if record.forced is not None:
        until = f"since {moment(record.since)} by {record.forced.by}, until a reset"
        unblock = "Close the breaker."
    else:
        wait = format_duration(record.rule.open_seconds)
        until = (
            f"for {wait}" if record.until is None else f"until {moment(record.until)}"
        )
        unblock = (
            "Repair its dependency: then the breaker closes by itself. Or close it now."
        )
    failed = f"; last failure: {record.last_error}" if record.last_error else ""
    yield JobReason(
        "breaker_open",
        f'breaker "{name}" is open {until}: {why}{failed}',
        unblock,
        command,
        is_blocking=is_blocking,
    )
