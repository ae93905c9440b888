"""Leases in SQLite: one row per worker, judged by the monotonic clock of one boot.

A worker may renew an expired lease while its row exists unmarked. A rescue marks or deletes
the row in the same transaction that takes the first job, so an unmarked row means that no
job was taken. Claims need a lease that has not expired.

A life lock is taken and a wakeup registered before the worker's row becomes visible, and
released after the row is deleted. So a process that sees the row can trust both.
"""

from collections.abc import Sequence
from typing import Any

from durio.model.codec import json_text
from durio.model.effects import Put
from durio.model.names import namespace_span
from durio.model.outcome import Outcome, OutcomeKind
from durio.model.worker_commands import COMMANDS_MAX, commands_kind
from durio.ports.lease import Renewed, Vitals, WorkerInfo, command_of
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
        context = self.context
        vitals_json = None if vitals is None else json_text(vitals)
        return await context.writer.write(
            lambda tx: renew_worker(tx, context, worker, lease_seconds, vitals_json),
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


async def is_contested(context: SqliteContext, worker: int) -> bool:
    """Whether another process has committed since this worker's last renewal or last call.

    This reads the writer's connection, where `data_version` changes only with commits of
    others. While the writer waits for its turn or cannot write, the connection is idle and
    can be read. Only during a transaction this waits, at most 1 s.
    """
    for _ in range(PEEKS_MAX):
        renewed = context.renewed_versions.get(worker)
        if renewed is None:
            return True
        seen = context.writer.peek(data_version)
        if seen is not None:
            context.renewed_versions[worker] = seen
            return seen != renewed
        await context.clock.sleep(PEEK_SECONDS)
    return True


def register_worker(
    tx: SqliteTransaction,
    context: SqliteContext,
    info: WorkerInfo,
    lease_seconds: float,
    puts: Sequence[Put],
) -> int:
    """Insert the row and the records; take life lock and wakeup before others see them."""
    shown: dict[str, Any] = {**info._asdict(), "started_at": tx.now}
    shown["synchronous"] = context.synchronous
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
    remember_data_version(tx, context, worker)
    return worker


def renew_worker(
    tx: SqliteTransaction,
    context: SqliteContext,
    worker: int,
    lease_seconds: float,
    vitals: str | None,
) -> Renewed:
    """Extend the lease of a worker that is not marked; return the commands for it."""
    values = (worker, tx.monotonic_seconds + lease_seconds, tx.boot, vitals)
    rows = tx.db.rows(RENEW_WORKER, values)
    if not rows:
        return Renewed(alive=False, cancels=[])
    remember_data_version(tx, context, worker)
    cancels = tx.db.rows(FIND_CANCEL_REQUESTS, (worker,))
    paused = tx.db.rows(FIND_PAUSED_LANES, namespace_span(rows[0][0]))
    commands = list_records(tx.db, commands_kind(worker), "", "", tx.now, COMMANDS_MAX)
    return Renewed(
        alive=True,
        cancels=cancels,
        commands=[command_of(record) for record in commands],
        paused=frozenset(name for (name,) in paused),
    )


def remember_data_version(
    tx: SqliteTransaction, context: SqliteContext, worker: int
) -> None:
    """Remember, after the commit, which state of the file our renewal was written on."""
    seen = data_version(tx.db)
    tx.after_commit.append(lambda: context.renewed_versions.update({worker: seen}))


def data_version(db: Database) -> int:
    """Return a number that changes when another connection has committed."""
    return db.value("pragma data_version")


def remove_worker(tx: SqliteTransaction, context: SqliteContext, worker: int) -> None:
    """Give jobs back, delete the row, and release the locks after the commit."""
    held = tx.db.rows(FIND_HELD_JOBS, (worker, NO_LIMIT))
    for job_id, claim_no, _, _ in held:
        leave_running(tx, worker, Outcome(job_id, claim_no, OutcomeKind.RELEASE))
    tx.db.rows(DELETE_WORKER, (worker,))
    tx.after_commit.append(lambda: release_worker_files(context, worker))


def release_worker_files(context: SqliteContext, worker: int) -> None:
    context.renewed_versions.pop(worker, None)
    context.wakeups.remove(worker)
    if context.life_locks is not None:
        context.life_locks.end(worker)
