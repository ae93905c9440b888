"""Write jobs, records and entries in one SQLite transaction."""

from functools import partial

from durio.model.effects import Effects
from durio.model.tx import Joinable
from durio.ports.commit import Committed
from durio.ports.conflicts import Conflict, EffectsRefused
from durio.ports.enqueue import Enqueued
from durio.stores.commit_rules import CheckedCommit, CommitRequest, check_jobs, rows_of
from durio.stores.sqlite.audit import write_audit_line
from durio.stores.sqlite.bounds import SqliteNoRoom
from durio.stores.sqlite.caller_transaction import write_joined
from durio.stores.sqlite.context import SqliteCapability
from durio.stores.sqlite.effects import write_log_effects
from durio.stores.sqlite.enqueue import enqueue_jobs, insert_into_full
from durio.stores.sqlite.gate_upkeep import change_gates, pass_changed
from durio.stores.sqlite.records import check_versions, write_puts
from durio.stores.sqlite.write_session import SqliteTransaction


class SqliteCommit(SqliteCapability, CheckedCommit):
    async def write_commit(
        self, request: CommitRequest, tx: Joinable | None
    ) -> Committed:
        work = partial(commit_effects, request=request)
        if tx is not None:
            return await write_joined(self.context, tx, work)
        return await self.context.writer.write(work, rows=rows_of(request.effects))


def commit_effects(tx: SqliteTransaction, *, request: CommitRequest) -> Committed:
    """Check, then write; EffectsRefused rolls back what was written."""
    effects, all_new, enters, note = request
    check_versions(tx, effects.puts)
    gates = change_gates(tx, effects.gates)
    enqueued = enqueue_effects(tx, effects, enters=enters)
    check_jobs(effects.jobs, enqueued, all_new=all_new)
    versions = write_puts(tx, effects.puts)
    write_log_effects(tx, effects)
    pass_changed(tx, effects.gates)
    if note is not None:
        write_audit_line(tx, note.entry())
    return Committed(enqueued, versions, gates=gates)


def enqueue_effects(
    tx: SqliteTransaction, effects: Effects, *, enters: bool
) -> list[Enqueued]:
    """Store the jobs; a closed queue refuses, and so does a full one without `enters`."""
    if not effects.jobs:
        return []
    if not enters and not tx.in_caller_tx:
        return enqueue_jobs(tx, effects.jobs)
    try:
        return insert_into_full(tx, effects.jobs)
    except SqliteNoRoom as no_room:
        full = no_room.full
        raise EffectsRefused(Conflict("full", full.lane, full=full)) from None
