"""Act on jobs, queues and workers."""

from collections.abc import Sequence

import msgspec

from durio.model.effects import Effects
from durio.model.errors import StoreError
from durio.model.ids import format_ids
from durio.model.job import StoredJob
from durio.model.names import namespace_of
from durio.ports.browse import Query
from durio.ports.control import (
    Acted,
    Action,
    AuditEntry,
    AuditNote,
    Counted,
    QueueChange,
)
from durio.stores.postgres.audit import storable, write_audit_line
from durio.stores.postgres.bounds import recount, set_manual_bound
from durio.stores.postgres.bulk import (
    bulk_mark_from_text,
    count_at_most,
    count_jobs,
)
from durio.stores.postgres.context import PostgresCapability
from durio.stores.postgres.death_counts import NUMBER_DEATHS, next_deaths
from durio.stores.postgres.job_actions import (
    ActionRequest,
    act_on_ids,
    act_with_effects,
)
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

MAKE_LANES = statement("insert_queue")
LOCK_QUEUE = statement("lock_queue")
CHANGE_QUEUE = statement("change_queue")
FIND_WORKERS = statement("find_namespace_workers")
RESTORE_JOB = statement("restore_job")

INT2_MAX, INT4_MAX = 2**15 - 1, 2**31 - 1

_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


async def set_queue(
    tx: PostgresTransaction, lane: str, change: QueueChange, note: AuditNote
) -> None:
    """Apply the change and write it to the audit.

    Settings that already have the value are left out. If the queue gets a new bound, the
    caller counts its jobs after the commit: see bounds.py.
    """
    await tx.rows(MAKE_LANES, [lane])
    # Locked, so that of two concurrent changes the second sees the first.
    paused, closed, manual = (await tx.rows(LOCK_QUEUE, lane))[0]
    news = change.difference_to(paused=paused, closed=closed, manual=manual)
    if (news.paused, news.closed) != (None, None):
        await tx.rows(CHANGE_QUEUE, lane, news.paused, news.closed)
    if change.maxsize is not None:
        await set_manual_bound(tx, lane, change.maxsize)
    if change.paused is not None:
        await wake_workers(tx, lane, paused=change.paused)
    for verb, target in news.in_words(lane):
        await write_audit_line(tx, note.entry_of(lane, verb, target))


async def wake_workers(tx: PostgresTransaction, lane: str, *, paused: bool) -> None:
    """Wake every worker of the namespace, so that it sends an exchange at once."""
    for (worker,) in await tx.rows(FIND_WORKERS, namespace_of(lane)):
        tx.wake_worker(worker)
    if not paused:
        tx.wake(lane)


async def restore_jobs(
    tx: PostgresTransaction, jobs: Sequence[StoredJob], note: AuditNote
) -> int:
    """Insert jobs that are not stored; return their number.

    They are kept as long as new dead letters.
    """
    now = await tx.now()
    await tx.rows(MAKE_LANES, sorted({record.lane for record in jobs}))
    of_apps: dict[str, list[bytes]] = {}
    for r in sorted(jobs, key=lambda record: record.id):
        ended = now if r.finished_at is None else r.finished_at
        if await tx.rows(
            RESTORE_JOB,
            *(r.id, r.lane, r.rank, r.task, r.payload),
            *(clamp(n, INT4_MAX) for n in (r.retried, r.losses, r.snoozed, r.claim_no)),
            clamp(r.lost, INT2_MAX),
            *(r.opts, error_list(r.errors)),
            *(r.created_at, r.started_at, ended, now + tx.retention.dead_seconds),
            None if r.reason is None else storable(r.reason),
        ):
            of_apps.setdefault(namespace_of(r.lane), []).append(r.id)
    ids = [job_id for some in of_apps.values() for job_id in some]
    if ids:
        first = await next_deaths(tx, len(ids))
        await tx.rows(NUMBER_DEATHS, ids, list(range(first, first + len(ids))))
    for namespace, some in sorted(of_apps.items()):
        entry = AuditEntry(
            namespace, note.who, "restore", format_ids(some), len(some), note.details
        )
        await write_audit_line(tx, entry)
    return len(ids)


def clamp(number: int, most: int) -> int:
    """Limit a counter to what its column can hold."""
    return max(0, min(number, most))


def error_list(stored: bytes | None) -> list[bytes] | None:
    """Split a JSON list into its elements; keep anything else as one damaged error."""
    if stored is None:
        return None
    try:
        return [bytes(error) for error in _list_decoder.decode(stored)] or None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [stored]


class PostgresControl(PostgresCapability):
    async def act(
        self,
        ids: Sequence[bytes],
        action: Action,
        *,
        only: tuple[Query, str] | None = None,
        note: AuditNote | None = None,
        effects: Effects | None = None,
    ) -> list[Acted]:
        counted = None if only is None else (only[0], bulk_mark_from_text(only[1]))
        request = ActionRequest(action, counted, note, effects)
        act = act_on_ids if effects is None else act_with_effects
        return await act(self.context, ids, request)

    async def count(self, query: Query, *, most: int | None = None) -> Counted:
        return await self.context.connections.read_many(
            lambda reading: (
                count_jobs(reading, query)
                if most is None
                else count_at_most(reading, query, most)
            )
        )

    async def restore(self, jobs: Sequence[StoredJob], note: AuditNote) -> int:
        if not jobs:
            return 0
        return await self.context.connections.write(
            lambda tx: restore_jobs(tx, jobs, note)
        )

    async def set_queue(self, lane: str, change: QueueChange, note: AuditNote) -> None:
        context = self.context
        await context.connections.write(lambda tx: set_queue(tx, lane, change, note))
        if change.maxsize is not None:
            try:
                await recount(context, [lane])
            except StoreError as error:
                error.unknown = True  # the change itself is committed
                raise
