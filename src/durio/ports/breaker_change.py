"""Read breakers and change them: the record and its gate in one transaction.

A change needs the version that was read, so one of several workers that see the same calls
fail opens the breaker, and the others find it open.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from durio.model.breaker import (
    BreakerRecord,
    breaker_put,
    breakers_kind,
    due_after_change,
    gate_of,
    load_breaker,
)
from durio.model.effects import Effects
from durio.ports.control import AuditNote
from durio.ports.records import Record
from durio.ports.store import Store

TRIES_MAX = 20  # against other writers of the same record

Change = Callable[[BreakerRecord | None], BreakerRecord | None]


class StoredBreaker(NamedTuple):
    """A breaker as it is stored."""

    record: BreakerRecord | None  # None: absent, or it cannot be read
    version: int = 0
    due_at: float | None = None


class ChangedBreaker(NamedTuple):
    """A breaker before and after a change, or as it stands if nothing was to be changed."""

    before: BreakerRecord | None
    after: BreakerRecord | None
    version: int

    @property
    def has_new_state(self) -> bool:
        """Whether this change has begun a period."""
        before, after = self.before, self.after
        old = 0 if before is None else before.period
        return after is not None and after.period != old


async def read_breakers(
    store: Store, namespace: str, names: Sequence[str]
) -> dict[str, StoredBreaker]:
    """Return these breakers of an App; the absent ones have no record."""
    found = {name: StoredBreaker(None) for name in names}
    for record in await store.records(breakers_kind(namespace), names):
        found[record.name] = stored_breaker(record)
    return found


def stored_breaker(record: Record) -> StoredBreaker:
    return StoredBreaker(load_breaker(record.body), record.version, record.due_at)


async def change_breaker(
    store: Store,
    namespace: str,
    name: str,
    change: Change,
    note: AuditNote | None = None,
) -> ChangedBreaker | None:
    """Write what `change` makes of the breaker; None if other writers were faster each time.

    `change` may be called again with a newer record. If it returns None, or the record that
    it got, nothing is written.
    """
    found = (await read_breakers(store, namespace, [name]))[name]
    for _ in range(TRIES_MAX):
        before, after = found.record, change(found.record)
        if after is None or after == before:
            return ChangedBreaker(before, before, found.version)
        due_at = due_after_change(before, after, found.due_at)
        effects = effects_of(namespace, name, found, after, due_at)
        answer = await store.commit(effects, note=note)
        if answer.conflict is None:
            return ChangedBreaker(before, after, answer.versions[0])
        other = answer.conflict.record
        found = StoredBreaker(None) if other is None else stored_breaker(other)
    return None


def effects_of(
    namespace: str,
    name: str,
    found: StoredBreaker,
    after: BreakerRecord,
    due_at: float | None,
) -> Effects:
    """Return the write of a breaker, with the change of its gate if its state asks for one."""
    before = found.record
    put = breaker_put(namespace, name, after, found.version, due_at)
    same_gate = (
        before is not None
        and before.period == after.period
        and before.forced == after.forced
        and before.rule == after.rule
    )
    gates = () if same_gate else (gate_of(namespace, name, after),)
    return Effects(puts=[put], gates=gates)
