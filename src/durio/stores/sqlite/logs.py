"""Logs: append entries, and let jobs go that have waited for them.

What a job appends when it ends is data in its row (`ties`), because a rescue or an operator
may end it. Every end calls `append_ends` in its own transaction.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from durio.model.effects import Append, Extend
from durio.model.ids import id_text
from durio.model.job import BLOCKED, CANCELLED, DONE, READY, SCHEDULED
from durio.model.ties import EndedJob, dump_ties, entries_at_end, entry_uid, load_ties
from durio.ports.conflicts import Conflict, EffectsRefused
from durio.ports.logs import Entry
from durio.ports.records import is_storable
from durio.ports.upkeep import Settled
from durio.stores.sqlite.context import SqliteCapability
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.gate_upkeep import seconds_until_due, settle_gates
from durio.stores.sqlite.gates import enter_gates
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

EXTEND_LOGS = statement("extend_logs")
EXPIRE_LOG = statement("expire_log")
APPEND_ENTRY = statement("append_entry")
HAS_ENTRY = statement("has_entry")
READ_LENGTHS = statement("read_lengths")
READ_ENTRIES = statement("read_entries")
TRIM_LOG = statement("trim_log")
DROP_LOG = statement("drop_log")
FIND_WAITERS = statement("find_waiters")
END_WAIT = statement("end_wait")
UNBLOCK_JOB = statement("unblock_job")
MARK_LOG = statement("mark_log")
FIND_MARKED_LOGS = statement("find_marked_logs")
FIND_EXPIRED_LOGS = statement("find_expired_logs")
DELETE_ENTRIES = statement("delete_entries")
READ_TIES = statement("read_ties")
WRITE_TIES = statement("write_ties")
EXTEND_WAIT = statement("extend_wait")

UNBLOCKED_MAX = 1000  # jobs let go by one operation; upkeep goes on with the rest


class EntryRow(NamedTuple):
    """An entry without its log, offset and time."""

    tag: int
    state: int | None
    job: bytes | None
    uid: str | None
    body: bytes | None


class SqliteLogs(SqliteCapability):
    async def read_log(
        self, log: str, start: int = 0, *, limit: int = 1000
    ) -> list[Entry]:
        if not is_storable(log):
            return []
        rows = await self.context.reader.read(
            lambda db: db.rows(READ_ENTRIES, (log, start, max(0, limit)))
        )
        return [Entry(*row) for row in rows]

    async def read_logs(
        self, logs: Sequence[str], *, limit: int
    ) -> dict[str, list[Entry]]:
        named = [log for log in logs if is_storable(log)]

        def look(db: Database) -> dict[str, list[Entry]]:
            found = {log: db.rows(READ_ENTRIES, (log, 0, limit)) for log in named}
            return {
                log: [Entry(*r) for r in rows] for log, rows in found.items() if rows
            }

        return await self.context.reader.read(look)

    async def log_lengths(self, logs: Sequence[str]) -> dict[str, int]:
        named = [log for log in logs if is_storable(log)]
        return await self.context.reader.read(lambda db: read_lengths(db, named))

    async def trim_log(self, log: str, before: int) -> None:
        if is_storable(log):
            await self.context.writer.write(
                lambda tx: tx.db.rows(TRIM_LOG, (log, before))
            )

    async def drop_logs(self, logs: Sequence[str]) -> None:
        named = [log for log in logs if is_storable(log)]

        def work(tx: SqliteTransaction) -> None:
            for log in named:
                tx.db.rows(TRIM_LOG, (log, 2**62))
                tx.db.rows(DROP_LOG, (log,))

        await self.context.writer.write(work, rows=len(named))

    async def settle(self, limit: int) -> Settled:
        now = self.context.clock.now()
        marked, due = await self.context.reader.read(
            lambda db: (db.rows(FIND_MARKED_LOGS, (1,)), seconds_until_due(db, now))
        )
        if not marked and due != 0.0:  # the usual case: nothing is written
            return Settled(0, due)
        return await self.context.writer.write(lambda tx: settle(tx, limit))


# --- ends of jobs


def append_ends(tx: SqliteTransaction, ended: Iterable[EndedJob]) -> None:
    """Append what these jobs have for their final state.

    A job that may be retried keeps the rest. A done job needs no ties any more, and its
    finish has removed them.
    """
    entries: dict[str, list[EntryRow]] = {}
    changed: list[tuple[bytes, str]] = []
    for job_id, state, text, body in ended:
        ties = load_ties(text)
        due, kept = entries_at_end(ties, state)
        for end in due:
            entries.setdefault(end.log, []).append(
                EntryRow(end.tag, state, job_id, entry_uid(end), body)
            )
        if state != DONE and kept != ties:
            changed.append((job_id, dump_ties(kept)))
    if changed:
        tx.db.changed_by_many(WRITE_TIES, changed)
    append_rows(tx, entries)


# --- appending


def write_appends(tx: SqliteTransaction, appends: Sequence[Append]) -> None:
    entries: dict[str, list[EntryRow]] = {}
    for log, new, _ in appends:
        rows = [EntryRow(each.tag, None, None, each.uid, each.body) for each in new]
        entries.setdefault(log, []).extend(rows)
    append_rows(tx, entries)
    for log, _, ttl_seconds in appends:
        if ttl_seconds is not None:
            tx.db.rows(EXPIRE_LOG, (log, tx.now + ttl_seconds))


def append_rows(tx: SqliteTransaction, entries: dict[str, list[EntryRow]]) -> None:
    """Append to each log, then let jobs go that have waited for that."""
    new = entries
    if any(row.uid is not None for rows in entries.values() for row in rows):
        found = {log: without_repeats(tx, log, rows) for log, rows in entries.items()}
        new = {log: rows for log, rows in found.items() if rows}
    if not new:
        return
    counts = as_json({log: len(rows) for log, rows in new.items()})
    lengths: dict[str, int] = dict(tx.db.rows(EXTEND_LOGS, (counts,)))
    values = [
        (log, offset, tx.now, *row)
        for log, rows in new.items()
        for offset, row in enumerate(rows, lengths[log] - len(rows))
    ]
    tx.db.changed_by_many(APPEND_ENTRY, values)
    unblock_waiters(tx, lengths)


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def without_repeats(
    tx: SqliteTransaction, log: str, rows: list[EntryRow]
) -> list[EntryRow]:
    """Leave out entries whose id the log already has."""
    seen: set[str] = set()
    new: list[EntryRow] = []
    for row in rows:
        if row.uid is not None:
            if row.uid in seen or tx.db.rows(HAS_ENTRY, (log, row.uid)):
                continue
            seen.add(row.uid)
        new.append(row)
    return new


# --- waiting


def is_over(tx: SqliteTransaction, log: str, above: int) -> bool:
    """Whether a wait for this length is over already."""
    return read_lengths(tx.db, [log]).get(log, 0) > above


def read_lengths(db: Database, logs: Sequence[str]) -> dict[str, int]:
    """Return the lengths of the logs that exist."""
    return dict(db.rows(READ_LENGTHS, (as_json(logs),)))


def unblock_waiters(
    tx: SqliteTransaction, lengths: dict[str, int], limit: int = UNBLOCKED_MAX
) -> int:
    """Let jobs go whose wait is over, `limit` in all, and mark the logs of the others."""
    waiters = tx.db.rows(FIND_WAITERS, (as_json(lengths), limit + 1))
    if len(waiters) > limit:
        first_left = waiters[limit][-1]
        for log in lengths:
            if log.encode() >= first_left.encode():  # as the rows are ordered
                tx.db.rows(MARK_LOG, (log, 1))
        tx.has_marked_logs = True
        del waiters[limit:]
    unblock(tx, waiters)
    return len(waiters)


def unblock(tx: SqliteTransaction, waiters: Sequence[tuple[Any, ...]]) -> None:
    """End waits: a job is ready, or scheduled for the later of its two times."""
    if not waiters:
        return
    changes: list[tuple[int, int, float]] = []
    gated: list[int] = []
    for seq, _, run_at, delay, gates, _ in waiters:
        due = max(run_at or 0.0, tx.now + delay)
        changes.append((seq, READY if due <= tx.now else SCHEDULED, due))
        if gates is not None and due <= tx.now:
            gated.append(seq)
    tx.db.changed_by_many(END_WAIT, [(seq,) for seq, *_ in waiters])
    tx.db.changed_by_many(UNBLOCK_JOB, changes)
    if gated:
        enter_gates(tx, gated)
    for lane in dict.fromkeys(lane for _, lane, *_ in waiters):
        tx.wake(lane)


def settle(tx: SqliteTransaction, limit: int) -> Settled:
    """Go on with logs that had more waiters than one transaction lets go, and with gates."""
    marked = dict(tx.db.rows(FIND_MARKED_LOGS, (limit,)))
    for log in marked:
        tx.db.rows(MARK_LOG, (log, 0))
    count = unblock_waiters(tx, marked, limit)
    has_more = tx.has_marked_logs or len(marked) == limit
    passed, due, _ = settle_gates(tx, limit - count)
    return Settled(count + passed, 0.0 if has_more else due)


# --- effects


def mark_quiet(tx: SqliteTransaction, job_id: bytes, reason: str | None) -> None:
    """Let a running job append nothing if it is cancelled."""
    for _, text in tx.db.rows(READ_TIES, (job_id,)):
        if text is not None:
            ties = load_ties(text)._replace(quiet=reason or "")
            tx.db.rows(WRITE_TIES, (job_id, dump_ties(ties)))


def extend_waits(tx: SqliteTransaction, extends: Iterable[Extend]) -> None:
    for extend in extends:
        extend_wait(tx, extend)


def extend_wait(tx: SqliteTransaction, extend: Extend) -> None:
    """Let a blocked or cancelled job wait for more entries; refuse any other job."""
    rows = tx.db.rows(READ_TIES, (extend.job,))
    state, text = rows[0] if rows else (None, None)
    ties = None if text is None else load_ties(text)
    if state not in (BLOCKED, CANCELLED) or ties is None or ties.wait is None:
        raise EffectsRefused(Conflict("job_ended", id_text(extend.job)))
    wait = ties.wait._replace(above=ties.wait.above + extend.by)
    # A job that stands before a gate, or has passed it, does not wait any more.
    if not tx.db.rows(EXTEND_WAIT, (extend.job, wait.above)) and state == BLOCKED:
        raise EffectsRefused(Conflict("job_ended", id_text(extend.job)))
    tx.db.rows(WRITE_TIES, (extend.job, dump_ties(ties._replace(wait=wait))))


# --- retention


def prune_logs(tx: SqliteTransaction, limit: int) -> None:
    """Delete at most `limit` entries of expired logs, and the logs without entries."""
    for (log,) in tx.db.rows(FIND_EXPIRED_LOGS, (tx.now, limit)):
        went = len(tx.db.rows(DELETE_ENTRIES, (log, limit)))
        limit -= went
        if limit <= 0:
            return
        tx.db.rows(DROP_LOG, (log,))
