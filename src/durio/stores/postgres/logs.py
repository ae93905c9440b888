"""Logs: append entries, and let jobs go that have waited for them.

A transaction collects its entries in `tx.entries`: what jobs append when they end, and what
effects append. `write_entries` writes all of them in one call at the end of the transaction,
because the heads of logs are locked last, in the order of their names. No transaction waits
for a log that another one has locked, except a commit and an enqueue: what belongs to a
locked log is stored in `deferred`, and the next transaction that locks the log appends it.
A transaction that may be long, a caller's or a task's own, always defers.

Jobs that begin to wait name their logs in `tx.entries`, without a tag: see waits.py.
"""

from collections.abc import Iterable, Mapping, Sequence

from durio.model.effects import Append, Extend
from durio.model.ids import id_text
from durio.model.job import DONE
from durio.model.ties import (
    EndedJob,
    Ties,
    dump_ties,
    entries_at_end,
    entry_uid,
    load_ties,
)
from durio.ports.conflicts import Conflict, EffectsRefused
from durio.ports.logs import Entry
from durio.ports.records import is_storable
from durio.ports.upkeep import Settled
from durio.stores.postgres.admission import StaleRead
from durio.stores.postgres.context import PostgresCapability, PostgresContext
from durio.stores.postgres.ended_waits import (
    LIMIT_REACHED,
    LOCKED,
    LOCKED_SECONDS,
    NOTHING_ENDED,
    NOW_SECONDS,
    WaitsEnded,
    decode_ended,
    joined,
)
from durio.stores.postgres.gates import pass_gates, settle_gates
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import NO_WORKER, LogRow, PostgresTransaction

APPEND_ENTRIES = statement("append_entries")
DEFER_ENTRIES = statement("defer_entries")
SETTLE_LOGS = statement("settle_logs")
READ_LENGTHS = statement("read_lengths")
READ_ENTRIES = statement("read_entries")
READ_LOGS = statement("read_logs")
TRIM_LOG = statement("trim_log")
LOCK_LOGS = statement("lock_logs")
DROP_LOGS = statement("drop_log")
FIND_EXPIRED_LOGS = statement("find_expired_logs")
DELETE_ENTRIES = statement("delete_entries")
READ_TIES = statement("read_ties")
LOCK_KEPT_TIES = statement("lock_kept_ties")
WRITE_TIES = statement("write_ties")
WRITE_KEPT_TIES = statement("write_kept_ties")
EXTEND_WAIT = statement("extend_wait")

LOGS_MAX = 100  # expired logs of one call
SETTLED_MAX, LOCKED_TRIES = 1000, 5


class PostgresLogs(PostgresCapability):
    async def read_log(
        self, log: str, start: int = 0, *, limit: int = 1000
    ) -> list[Entry]:
        if not is_storable(log):
            return []
        read = self.context.connections.read
        rows = await read(READ_ENTRIES, log, start, max(0, limit))
        return [Entry(*row) for row in rows]

    async def read_logs(
        self, logs: Sequence[str], *, limit: int
    ) -> dict[str, list[Entry]]:
        named = sorted({log for log in logs if is_storable(log)})
        found: dict[str, list[Entry]] = {}
        for log, *row in await self.context.connections.read(READ_LOGS, named, limit):
            found.setdefault(log, []).append(Entry(*row))
        return found

    async def log_lengths(self, logs: Sequence[str]) -> dict[str, int]:
        named = [log for log in logs if is_storable(log)]
        rows = await self.context.connections.read(READ_LENGTHS, named)
        return dict(rows)

    async def trim_log(self, log: str, before: int) -> None:
        if is_storable(log):
            await self.context.connections.write_one(TRIM_LOG, log, before)

    async def drop_logs(self, logs: Sequence[str]) -> None:
        named = [log for log in logs if is_storable(log)]
        if named:
            await self.context.connections.write(lambda tx: drop_logs(tx, named))

    async def settle(self, limit: int) -> Settled:
        context = self.context
        rows = await context.connections.write_one(
            SETTLE_LOGS, limit, context.connections.now
        )
        ended = decode_ended(rows[0][0])
        passed = await settle_gates(context, max(0, limit - ended.jobs))
        both = joined(ended, passed)
        after_ended_waits(context, both)
        left = None if both.gate_due is None else max(0.0, both.gate_due)
        if both.rest:
            left = NOW_SECONDS if both.rest == LIMIT_REACHED else LOCKED_SECONDS
        return Settled(both.jobs + ended.removed, left, both.rest == LOCKED)


async def settle_gates_after(context: PostgresContext, ended: WaitsEnded) -> None:
    """Go on at gates that other transactions had locked, for a caller that is no worker.

    They hold a gate for one commit. What is left after some tries is for the leader.
    """
    for _ in range(LOCKED_TRIES):
        if ended.rest != LOCKED:
            return
        ended = await settle_gates(context, SETTLED_MAX)
        after_ended_waits(context, ended)


async def drop_logs(tx: PostgresTransaction, logs: Sequence[str]) -> None:
    await tx.rows(LOCK_LOGS, logs)
    await tx.rows(DROP_LOGS, logs)


# --- collecting entries


def collect_end(tx: PostgresTransaction, job: EndedJob) -> str | None:
    """Collect what a job appends in its final state; return the ties that it keeps."""
    due, kept = entries_at_end(load_ties(job.ties), job.state)
    tx.entries += [
        LogRow(
            end.log,
            end.tag,
            state=job.state,
            job=job.id,
            uid=entry_uid(end),
            body=job.body,
        )
        for end in due
    ]
    return None if job.state == DONE else dump_ties(kept)


async def collect_ends(tx: PostgresTransaction, ended: Iterable[EndedJob]) -> None:
    """Collect entries of jobs in `kept` that may be retried, and write what they keep."""
    kept = {job.id: collect_end(tx, job) for job in ended}
    if kept:
        ids = sorted(kept)
        await tx.rows(WRITE_KEPT_TIES, ids, [kept[job_id] for job_id in ids])


def collect_appends(tx: PostgresTransaction, appends: Sequence[Append]) -> None:
    for log, entries, ttl_seconds in appends:
        tx.entries += [
            LogRow(log, entry.tag, ttl_seconds, uid=entry.uid, body=entry.body)
            for entry in entries
        ]


# --- writing them


async def write_entries(
    tx: PostgresTransaction,
    context: PostgresContext,
    *,
    is_patient: bool = False,
    worker: int = NO_WORKER,
    lanes: Sequence[str] = (),
) -> WaitsEnded:
    """Append all entries of the transaction, then pass gates: its last step before counters.

    `is_patient`: wait for locked logs. `worker` is not woken for jobs in `lanes`, which it
    claims from.
    """
    rows, tx.entries = tx.entries, []
    ended = NOTHING_ENDED
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        if tx.may_be_long:
            await tx.rows(DEFER_ENTRIES, *columns)
        else:
            values = (*columns, tx.injected, is_patient)
            ended = decode_ended(await tx.value(APPEND_ENTRIES, *values))
            # A job whose wait is over may have come to a gate.
            tx.gates.is_deferred |= ended.jobs > 0
    ended = joined(ended, await pass_gates(tx))
    for place in ended.places:
        known = place.lane in lanes
        tx.wake(place.lane, except_worker=worker if known else NO_WORKER)
    tx.after_commit.append(lambda: lower_watermarks(context, ended))
    return ended


def after_ended_waits(
    context: PostgresContext,
    ended: WaitsEnded,
    worker: int = NO_WORKER,
    lanes: Sequence[str] = (),
) -> None:
    """Do after a single statement what `write_entries` does after the commit."""
    if ended.places:
        lower_watermarks(context, ended)
        woken = {
            place.lane: worker if place.lane in lanes else NO_WORKER
            for place in ended.places
        }
        context.wakeups.wake(woken, ())


def lower_watermarks(context: PostgresContext, ended: WaitsEnded) -> None:
    """Let claims of this process find jobs that are older than the last claims."""
    for lane, rank, lowest in ended.places:
        job_id = bytes.fromhex(lowest.replace("-", ""))
        context.process.watermarks.lower(lane, rank, job_id)


# --- changing ties


async def mark_quiet(
    tx: PostgresTransaction, texts: Mapping[bytes, str | None], reason: str | None
) -> None:
    """Let running jobs append nothing if they are cancelled."""
    marked = {
        job_id: dump_ties(load_ties(text)._replace(quiet=reason or ""))
        for job_id, text in texts.items()
        if text is not None
    }
    if marked:
        await tx.rows(WRITE_TIES, list(marked), list(marked.values()))


async def extend_waits(tx: PostgresTransaction, extends: Sequence[Extend]) -> None:
    """Let blocked or cancelled jobs wait for more entries; refuse any other job."""
    for extend in sorted(extends):
        await extend_wait(tx, extend)


async def extend_wait(tx: PostgresTransaction, extend: Extend) -> None:
    rows = await tx.rows(READ_TIES, extend.job)
    is_blocked, text = rows[0] if rows else (False, None)
    is_final = not rows
    if is_final:
        text = await tx.value(LOCK_KEPT_TIES, extend.job)
    ties = Ties(None, ()) if text is None else load_ties(text)
    wait = ties.wait
    if not (is_blocked or is_final) or wait is None:
        raise EffectsRefused(Conflict("job_ended", id_text(extend.job)))
    longer = ties._replace(wait=wait._replace(above=wait.above + extend.by))
    values = [extend.job], [dump_ties(longer)]
    if is_final:
        await tx.rows(WRITE_KEPT_TIES, *values)
    elif await tx.rows(EXTEND_WAIT, *wait, extend.job, extend.by):
        await tx.rows(WRITE_TIES, *values)
    else:
        raise StaleRead  # the wait has ended or changed meanwhile


# --- retention


async def prune_logs(tx: PostgresTransaction, limit: int) -> None:
    """Delete at most `limit` entries of expired logs, and the logs without entries."""
    rows = await tx.rows(FIND_EXPIRED_LOGS, await tx.now(), min(limit, LOGS_MAX))
    for (log,) in rows:
        limit -= len(await tx.rows(DELETE_ENTRIES, log, limit))
        if limit <= 0:
            return
        await tx.rows(DROP_LOGS, [log])
