"""Read breakers, and force them open or closed: for `durio breakers`."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from durio.model.breaker import (
    BreakerRecord,
    ForcedState,
    breaker_gate,
    breakers_kind,
    forced_closed,
    forced_open,
    load_breaker,
    new_breaker,
    reset,
)
from durio.model.breaker_rule import Breaker, unknown_breaker
from durio.model.errors import WrongState
from durio.ports.breaker_change import change_breaker
from durio.ports.control import AuditNote
from durio.ports.store import Store

BREAKERS_MAX = 1000  # of one App that are read

FORCED_CHANGES: dict[str, Callable[[BreakerRecord, ForcedState], BreakerRecord]] = {
    "open": forced_open,
    "close": forced_closed,
    "reset": reset,
}


class ShownBreaker(NamedTuple):
    """A breaker of an App, with the jobs before its gate."""

    namespace: str
    name: str
    record: BreakerRecord
    waiting: int  # jobs that the breaker keeps back


async def list_breakers(store: Store, namespace: str) -> list[ShownBreaker]:
    """Return the breakers of an App by name; those that cannot be read are left out."""
    records = await store.list_records(breakers_kind(namespace), limit=BREAKERS_MAX)
    gates = await store.gates(breaker_gate(namespace, ""), limit=BREAKERS_MAX)
    waiting = {row.name: row.waiting for row in gates}
    return [
        ShownBreaker(
            namespace,
            one.name,
            record,
            waiting.get(breaker_gate(namespace, one.name), 0),
        )
        for one in records
        if (record := load_breaker(one.body)) is not None
    ]


async def find_breaker(
    store: Store, namespace: str, name: str, declared: Mapping[str, Breaker], now: float
) -> ShownBreaker:
    """Return one breaker; a declared one that no worker has stored is closed."""
    found = await list_breakers(store, namespace)
    for one in found:
        if one.name == name:
            return one
    if name in declared:
        return ShownBreaker(namespace, name, new_breaker(declared[name].rule, now), 0)
    raise unknown_breaker(name, [*declared, *(one.name for one in found)])


async def force_breaker(
    store: Store,
    shown: ShownBreaker,
    verb: str,
    force: ForcedState,
    note: AuditNote | None = None,  # None: who, verb, breaker and reason
) -> ShownBreaker:
    """Open or close a breaker until a reset, or reset it; return it as it is then."""

    def change(record: BreakerRecord | None) -> BreakerRecord:
        return FORCED_CHANGES[verb](record or shown.record, force)

    target = f"breaker {shown.name}" + (f" ({force.reason})" if force.reason else "")
    note = note or AuditNote(shown.namespace, force.by, verb, target)
    changed = await change_breaker(store, shown.namespace, shown.name, change, note)
    if changed is None or changed.after is None:
        raise WrongState(
            f"breaker {shown.name!r} changes all the time: nothing was changed",
            cure="Try again.",
        )
    return shown._replace(record=changed.after)
