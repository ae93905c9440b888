"""Leases in PostgreSQL: one row per worker, judged by the server's clock.

A lease that is over but whose row still stands may be renewed: rescue marks or deletes the
row in the very transaction that takes the first job, so a row that stands unmarked means
that nobody took any. Claims, on the other hand, need a lease that is not over.

A life mark is bound before the worker's row can be seen, and let go after it is gone:
whoever sees the row can trust it.
"""

from collections.abc import Sequence
from typing import Any

from durio.model.outcome import Kind, Outcome
from durio.ports.lease import Renewed, Vitals, WorkerInfo
from durio.stores.postgres.desk import AtDesk, Desk
from durio.stores.postgres.driver import Row
from durio.stores.postgres.gate import lock_bounded, pass_gate
from durio.stores.postgres.life import Mark
from durio.stores.postgres.orders import answer_order, close_orders, open_orders
from durio.stores.postgres.statements import statement
from durio.stores.postgres.tasks import publish_tasks, to_json
from durio.stores.postgres.transaction import Transaction

REGISTER_WORKER = statement("lease_register")
RENEW_WORKER = statement("lease_renew")
LOCK_WORKERS = statement("lease_lock")
FIND_HELD = statement("lease_find_held")
READ_HELD = statement("lease_read_held")
DELETE_WORKERS = statement("lease_delete")
TAKE_LEASE = statement("lease_lead")


class PostgresLease(AtDesk):
    """Registering, renewing, leaving, leading."""

    async def register(self, info: WorkerInfo, lease_seconds: float) -> int:
        """A new worker id, never used before; its lease starts now."""
        desk = self.desk
        bound = desk.local.lives.bind()
        mark, sign = bound if bound is not None else (None, None)
        try:
            worker = await desk.lines.write(
                lambda tx: register_worker(tx, desk, info, lease_seconds, mark)
            )
        except BaseException:
            if sign is not None:
                sign.close()
            raise
        if sign is not None:
            desk.local.lives.begin(worker, sign)
        await desk.bell.hang(worker, info.namespace, info.queues)
        return worker

    async def renew(
        self, worker: int, lease_seconds: float, vitals: Vitals | None = None
    ) -> Renewed:
        """Extend the lease of a worker that nobody has given up."""
        desk = self.desk
        desk.bell.renewed()
        told = None if vitals is None else to_json(vitals)
        return await desk.lines.write(
            lambda tx: renew_worker(tx, desk, worker, lease_seconds, told)
        )

    async def answer(self, worker: int, order: int, body: str) -> None:
        """The worker's answer to an order; a repeat changes nothing."""
        await self.desk.lines.write(lambda tx: answer_order(tx, worker, order, body))

    async def is_contested(self, worker: int) -> bool:  # noqa: ARG002 - the port's
        """Always: when we cannot reach the server, others may."""
        return True

    async def leave(self, worker: int) -> None:
        """End the lease; jobs it still holds go back uncharged."""
        desk = self.desk
        await desk.lines.write(lambda tx: leave(tx, desk, worker))

    async def lead(self, name: str, worker: int, seconds: float) -> int | None:
        """Become or stay leader of `name`: a token that only grows, or None."""
        now = self.desk.local.lease_time.now()
        rows = await self.desk.lines.write_one(TAKE_LEASE, name, worker, seconds, now)
        return rows[0][0] if rows else None


async def register_worker(
    tx: Transaction,
    desk: Desk,
    info: WorkerInfo,
    lease_seconds: float,
    mark: Mark | None,
) -> int:
    """Insert the row, and publish the tasks that it knows."""
    shown: dict[str, Any] = {**info._asdict(), "started_at": await tx.now()}
    shown["life"] = None if mark is None else mark._asdict()
    del shown["tasks"]
    queues = None if info.queues is None else to_json(list(info.queues))
    await publish_tasks(tx, info)
    return await tx.value(
        REGISTER_WORKER,
        info.namespace,
        queues,
        to_json(shown),
        lease_seconds,
        desk.local.lease_time.now(),
    )


async def renew_worker(
    tx: Transaction, desk: Desk, worker: int, lease_seconds: float, vitals: str | None
) -> Renewed:
    """Extend the lease; bring what was asked of the worker."""
    now = desk.local.lease_time.now()
    rows = await tx.rows(RENEW_WORKER, worker, lease_seconds, now, vitals)
    if not rows:
        return Renewed(alive=False, cancels=[])
    ids, claim_nos, paused = rows[0]
    return Renewed(
        alive=True,
        cancels=list(zip(ids, claim_nos, strict=True)),
        orders=await open_orders(tx, worker),
        paused=frozenset(paused),
    )


async def leave(tx: Transaction, desk: Desk, worker: int) -> None:
    """Give back, delete the row, and only then let the life mark go."""
    await tx.rows(LOCK_WORKERS, [worker])
    held = await lock_held(tx, [worker], await find_held(tx, [worker], None))
    outcomes = [
        Outcome(job_id, claim_no, Kind.RELEASE) for job_id, claim_no, *_ in held
    ]
    if outcomes:
        await pass_gate(tx, [worker] * len(outcomes), outcomes)
    await tx.rows(DELETE_WORKERS, [worker])
    await close_orders(tx, [worker])
    tx.after_commit.append(lambda: desk.local.lives.end(worker))
    tx.after_commit.append(lambda: desk.bell.remove(worker))


async def find_held(
    tx: Transaction, workers: Sequence[int], limit: int | None
) -> list[tuple[int, bytes]]:
    """(worker, id) of jobs that these hold, one worker after the other."""
    rows = await tx.rows(FIND_HELD, workers, limit)
    return [(worker, job_id) for worker, job_id in rows]


async def lock_held(
    tx: Transaction, workers: Sequence[int], held: Sequence[tuple[int, bytes]]
) -> list[Row]:
    """(id, claim_no, retried, losses, worker) of what they still hold, by id and locked.

    All at once, whoever holds them: so queues and jobs are locked in everybody's order.
    """
    if not held:
        return []
    ids = [job_id for _, job_id in held]
    await lock_bounded(tx, ids)
    return list(await tx.rows(READ_HELD, workers, ids))
