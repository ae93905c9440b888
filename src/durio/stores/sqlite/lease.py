"""Leases in SQLite: one row per worker, judged by the monotonic clock of one boot.

A worker may renew an expired lease while its row exists unmarked. A rescue marks or deletes
the row in the same transaction that takes the first job, so an unmarked row means that no
job was taken. Claims need a lease that has not expired.

A life lock is taken and a wakeup registered before the worker's row becomes visible, and
released after the row is deleted. So a process that sees the row can trust both.
"""

import math
from collections.abc import Sequence
from typing import Any

from durio.model.codec import json_text
from durio.model.effects import Put
from durio.model.names import namespace_span
from durio.model.outcome import Outcome, OutcomeKind
from durio.model.worker_commands import COMMANDS_MAX, commands_kind
from durio.ports.lease import Renewed, Vitals, WorkerInfo, command_of
from durio.stores.browsing import vitals_text
from durio.stores.commit_rules import check_puts
from durio.stores.sqlite.context import SqliteCapability, SqliteContext
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.exit import leave_running
from durio.stores.sqlite.records import list_records, write_puts
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

REGISTER_WORKER = statement("register_worker")
SET_WORKER_FLAGS = statement("set_worker_flags")
RENEW_WORKER = statement("renew_worker")
FIND_CANCEL_REQUESTS = statement("find_cancel_requests")
FIND_PAUSED_LANES = statement("find_paused_lanes")
DELETE_WORKER = statement("delete_worker")
FIND_HELD_JOBS = statement("find_held_jobs")
TAKE_LEASE = statement("take_lease")
COMPARE_RENEWALS = statement("compare_renewals")
FIND_OLD_WORKERS = statement("find_old_workers")
REQUIRE_PROTOCOL = statement("require_protocol")

NO_LIMIT = -1  # SQLite's value for no limit
PEEK_SECONDS = 0.01
PEEKS_MAX = 100


class SqliteLease(SqliteCapability):
    async def register(
        self, info: WorkerInfo, lease_seconds: float, puts: Sequence[Put] = ()
    ) -> int:
        check_puts(puts)
        context = self.context
        return await context.writer.write(
            lambda tx: register_worker(tx, context, info, lease_seconds, puts)
        )

    async def renew(
        self, worker: int, lease_seconds: float, vitals: Vitals | None = None
    ) -> Renewed:
        """Extend the lease, before all other requests that wait to be written."""
        vitals_json = None if vitals is None else vitals_text(vitals)
        return await self.context.writer.write(
            lambda tx: renew_worker(tx, worker, lease_seconds, vitals_json),
            urgent=True,
        )

    async def require_protocol(
        self, namespace: str, protocol: int, *, only_look: bool = False
    ) -> list[str]:
        known = self.context.protocols
        if known.get(namespace, 0) >= protocol:
            return []
        clock = self.context.clock

        def look(db: Database) -> list[str]:
            found = (namespace, protocol, clock.boot_id(), clock.monotonic())
            return [name for (name,) in db.rows(FIND_OLD_WORKERS, found)]

        def work(tx: SqliteTransaction) -> list[str]:
            old = look(tx.db)
            if not old:
                tx.db.rows(REQUIRE_PROTOCOL, (namespace, protocol))
            return old

        if only_look:
            return await self.context.reader.read(look)
        old = await self.context.writer.write(work)
        if not old:
            known[namespace] = protocol  # a store never requires less again
        return old

    async def leave(self, worker: int) -> None:
        context = self.context
        await context.writer.write(lambda tx: remove_worker(tx, context, worker))

    async def lead(self, name: str, worker: int, seconds: float) -> int | None:
        def work(tx: SqliteTransaction) -> int | None:
            values = (
                name,
                worker,
                tx.boot,
                tx.monotonic_seconds,
                tx.monotonic_seconds + seconds,
            )
            rows = tx.db.rows(TAKE_LEASE, values)
            return rows[0][0] if rows else None

        return await self.context.writer.write(work)


async def seconds_behind(context: SqliteContext, worker: int) -> float:
    """Return how much later another worker renewed than this one; infinite: unknown.

    This reads on the writer's connection. While the writer waits for its turn or cannot
    write, the connection is idle. Only during a transaction this waits, at most 1 s.
    """

    def look(db: Database) -> float:
        rows = db.rows(COMPARE_RENEWALS, (worker,))
        return rows[0][0] if rows else math.inf

    for _ in range(PEEKS_MAX):
        behind = context.writer.peek(look)
        if behind is not None:
            return behind
        await context.clock.sleep(PEEK_SECONDS)
    return math.inf


def register_worker(
    tx: SqliteTransaction,
    context: SqliteContext,
    info: WorkerInfo,
    lease_seconds: float,
    puts: Sequence[Put],
) -> int:
    """Insert the row and the records; take life lock and wakeup before others see them."""
    shown: dict[str, Any] = {**info._asdict(), "started_at": tx.now}
    shown |= {"lease_seconds": lease_seconds, "synchronous": context.synchronous}
    queues = None if info.queues is None else json_text(list(info.queues))
    values = (
        info.namespace,
        queues,
        json_text(shown),
        tx.boot,
        tx.monotonic_seconds + lease_seconds,
    )
    worker: int = tx.db.value(REGISTER_WORKER, values)
    write_puts(tx, puts)
    tx.after_rollback.append(lambda: release_worker_files(context, worker))
    has_life = context.life_locks is not None and context.life_locks.begin(worker)
    tx.db.rows(SET_WORKER_FLAGS, (worker, context.wakeups.register(worker), has_life))
    return worker


def renew_worker(
    tx: SqliteTransaction, worker: int, lease_seconds: float, vitals: str | None
) -> Renewed:
    """Extend the lease of a worker that is not marked; return the commands for it."""
    values = (worker, tx.monotonic_seconds + lease_seconds, tx.boot, vitals)
    rows = tx.db.rows(RENEW_WORKER, values)
    if not rows:
        return Renewed(alive=False, cancels=[])
    cancels = tx.db.rows(FIND_CANCEL_REQUESTS, (worker,))
    paused = tx.db.rows(FIND_PAUSED_LANES, namespace_span(rows[0][0]))
    commands = list_records(tx.db, commands_kind(worker), "", "", tx.now, COMMANDS_MAX)
    return Renewed(
        alive=True,
        cancels=cancels,
        commands=[command_of(record) for record in commands],
        paused=frozenset(name for (name,) in paused),
    )


def remove_worker(tx: SqliteTransaction, context: SqliteContext, worker: int) -> None:
    """Give jobs back, delete the row, and release the locks after the commit."""
    held = tx.db.rows(FIND_HELD_JOBS, (worker, NO_LIMIT))
    for job_id, claim_no, _, _ in held:
        leave_running(tx, worker, Outcome(job_id, claim_no, OutcomeKind.RELEASE))
    tx.db.rows(DELETE_WORKER, (worker,))
    tx.after_commit.append(lambda: release_worker_files(context, worker))


def release_worker_files(context: SqliteContext, worker: int) -> None:
    context.wakeups.remove(worker)
    if context.life_locks is not None:
        context.life_locks.end(worker)
