"""Leases in PostgreSQL: one row per worker, judged by the server's clock.

A worker may renew an expired lease while its row exists unmarked. A rescue marks or deletes
the row in the same transaction that takes the first job, so an unmarked row means that no
job was taken. Claims need a lease that has not expired.

A life socket is bound before the worker's row becomes visible, and released after the row
is deleted. So a process that sees the row can trust the socket.
"""

from collections.abc import Sequence
from typing import Any

from durio.model.codec import json_text
from durio.model.effects import Put
from durio.model.outcome import Outcome, OutcomeKind
from durio.model.worker_commands import COMMANDS_MAX, commands_kind
from durio.ports.lease import Renewed, Vitals, WorkerInfo, command_of
from durio.stores.browsing import vitals_text
from durio.stores.commit_rules import check_puts
from durio.stores.postgres.context import PostgresCapability, PostgresContext
from durio.stores.postgres.driver import Row
from durio.stores.postgres.exit import leave_running, lock_bounded
from durio.stores.postgres.life_sockets import LifeAddress
from durio.stores.postgres.logs import write_entries
from durio.stores.postgres.records import list_records, write_puts
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

REGISTER_WORKER = statement("register_worker")
RENEW_WORKER = statement("renew_worker")
LOCK_WORKERS = statement("mark_rescued")
FIND_HELD = statement("find_held_jobs")
READ_HELD = statement("lock_held_jobs")
DELETE_WORKERS = statement("delete_worker")
TAKE_LEASE = statement("take_lease")
FIND_OLD_WORKERS = statement("find_old_workers")
LOCK_REGISTRATIONS = statement("lock_registrations")
READ_PROTOCOL = statement("read_protocol")
REQUIRE_PROTOCOL = statement("require_protocol")


class PostgresLease(PostgresCapability):
    async def register(
        self, info: WorkerInfo, lease_seconds: float, puts: Sequence[Put] = ()
    ) -> int:
        check_puts(puts)
        context = self.context
        bound = context.process.life_sockets.bind()
        mark, sign = bound if bound is not None else (None, None)
        try:
            worker = await context.connections.write(
                lambda tx: register_worker(tx, context, info, lease_seconds, mark, puts)
            )
        except BaseException:
            if sign is not None:
                sign.close()
            raise
        if sign is not None:
            context.process.life_sockets.begin(worker, sign)
        await context.wakeups.register(worker, info.namespace, info.queues)
        return worker

    async def renew(
        self, worker: int, lease_seconds: float, vitals: Vitals | None = None
    ) -> Renewed:
        """Extend the lease of a worker that no rescue has marked."""
        context = self.context
        context.wakeups.on_renewal()
        vitals_json = None if vitals is None else vitals_text(vitals)
        return await context.connections.write(
            lambda tx: renew_worker(tx, context, worker, lease_seconds, vitals_json)
        )

    async def require_protocol(
        self, namespace: str, protocol: int, *, only_look: bool = False
    ) -> list[str]:
        known = self.context.protocols
        if known.get(namespace, 0) >= protocol:
            return []
        now = self.context.process.lease_time.now()

        async def work(tx: PostgresTransaction) -> list[str]:
            rows = await tx.rows(READ_PROTOCOL, namespace)
            if rows and rows[0][0] >= protocol:
                return []
            if not only_look:
                await tx.rows(LOCK_REGISTRATIONS)
            found = await tx.rows(FIND_OLD_WORKERS, namespace, protocol, now)
            if not found and not only_look:
                await tx.rows(REQUIRE_PROTOCOL, namespace, protocol)
            return [name for (name,) in found]

        old = await self.context.connections.write(work)
        if not old and not only_look:
            known[namespace] = protocol  # a store never requires less again
        return old

    async def leave(self, worker: int) -> None:
        context = self.context
        await context.connections.write(lambda tx: remove_worker(tx, context, worker))

    async def lead(self, name: str, worker: int, seconds: float) -> int | None:
        now = self.context.process.lease_time.now()
        rows = await self.context.connections.write_one(
            TAKE_LEASE, name, worker, seconds, now
        )
        return rows[0][0] if rows else None


async def register_worker(
    tx: PostgresTransaction,
    context: PostgresContext,
    info: WorkerInfo,
    lease_seconds: float,
    mark: LifeAddress | None,
    puts: Sequence[Put],
) -> int:
    shown: dict[str, Any] = {**info._asdict(), "started_at": await tx.now()}
    shown["lease_seconds"] = lease_seconds
    shown["life"] = None if mark is None else mark._asdict()
    queues = None if info.queues is None else json_text(list(info.queues))
    await write_puts(tx, puts)
    return await tx.value(
        REGISTER_WORKER,
        info.namespace,
        queues,
        json_text(shown),
        lease_seconds,
        context.process.lease_time.now(),
    )


async def renew_worker(
    tx: PostgresTransaction,
    context: PostgresContext,
    worker: int,
    lease_seconds: float,
    vitals: str | None,
) -> Renewed:
    """Extend the lease; return the commands for the worker."""
    now = context.process.lease_time.now()
    rows = await tx.rows(RENEW_WORKER, worker, lease_seconds, now, vitals)
    if not rows:
        return Renewed(alive=False, cancels=[])
    ids, claim_nos, paused = rows[0]
    commands = await list_records(tx, commands_kind(worker), COMMANDS_MAX)
    return Renewed(
        alive=True,
        cancels=list(zip(ids, claim_nos, strict=True)),
        commands=[command_of(record) for record in commands],
        paused=frozenset(paused),
    )


async def remove_worker(
    tx: PostgresTransaction, context: PostgresContext, worker: int
) -> None:
    """Give jobs back, delete the row, and release the life socket after the commit."""
    await tx.rows(LOCK_WORKERS, [worker])
    held = await lock_held(tx, [worker], await find_held(tx, [worker], None))
    outcomes = [
        Outcome(job_id, claim_no, OutcomeKind.RELEASE) for job_id, claim_no, *_ in held
    ]
    if outcomes:
        await leave_running(tx, [worker] * len(outcomes), outcomes)
        await write_entries(tx, context)
    await tx.rows(DELETE_WORKERS, [worker])
    tx.after_commit.append(lambda: context.process.life_sockets.end(worker))
    tx.after_commit.append(lambda: context.wakeups.remove(worker))


async def find_held(
    tx: PostgresTransaction, workers: Sequence[int], limit: int | None
) -> list[tuple[int, bytes]]:
    """Return (worker, id) of the jobs that these workers hold, grouped by worker."""
    rows = await tx.rows(FIND_HELD, workers, limit)
    return [(worker, job_id) for worker, job_id in rows]


async def lock_held(
    tx: PostgresTransaction, workers: Sequence[int], held: Sequence[tuple[int, bytes]]
) -> list[Row]:
    """Lock the jobs of these workers by id; return (id, claim_no, retried, losses, worker).

    One statement locks the jobs of all workers, so that queues and jobs are locked in the
    order that every transaction keeps.
    """
    if not held:
        return []
    ids = [job_id for _, job_id in held]
    await lock_bounded(tx, ids)
    return list(await tx.rows(READ_HELD, workers, ids))
