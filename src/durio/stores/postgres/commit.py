"""Write jobs, records and entries in one PostgreSQL transaction."""

from functools import partial

from durio.model.tx import Joinable
from durio.ports.commit import Committed
from durio.ports.enqueue import Enqueued
from durio.stores.commit_rules import CheckedCommit, CommitRequest, check_jobs
from durio.stores.postgres.admission import StaleRead
from durio.stores.postgres.audit import write_audit_line
from durio.stores.postgres.caller_transaction import write_joined
from durio.stores.postgres.commit_new import commit_new, is_all_new
from durio.stores.postgres.context import PostgresCapability, PostgresContext
from durio.stores.postgres.ended_waits import WaitsEnded
from durio.stores.postgres.enqueue_locked import (
    TRIES,
    ChangedConcurrently,
    enqueue_jobs,
    with_ended_waits,
)
from durio.stores.postgres.logs import (
    collect_appends,
    extend_waits,
    settle_gates_after,
    write_entries,
)
from durio.stores.postgres.records import check_versions, write_puts
from durio.stores.postgres.transaction import PostgresTransaction


class PostgresCommit(PostgresCapability, CheckedCommit):
    async def write_commit(
        self, request: CommitRequest, tx: Joinable | None
    ) -> Committed:
        work = partial(commit_with_retries, request=request)
        if tx is not None:
            return await write_joined(self.context, tx, request.effects.jobs, work)
        if is_all_new(self.context, request):
            jobs, puts, *_ = request.effects
            committed = await commit_new(self.context, jobs, puts)
            if committed is not None:
                return committed
        return await work(self.context)


def shows_repeats(request: CommitRequest) -> bool:
    """Whether a repeat is refused for a record, so that its jobs need not be looked for.

    Any other commit looks for finished jobs, and marks its own.
    """
    return request.all_new and any(
        put.if_version is not None and put.body is not None
        for put in request.effects.puts
    )


async def commit_with_retries(
    context: PostgresContext, *, request: CommitRequest
) -> Committed:
    """Commit the effects; start again if another transaction changed what was read."""
    work = partial(commit_effects, context, request=request)
    for _ in range(TRIES):
        try:
            committed, ended = await context.connections.write(work)
        except StaleRead:
            continue
        await settle_gates_after(context, ended)
        return committed
    raise ChangedConcurrently(
        f"commit failed {TRIES} times: other transactions changed the same jobs, keys "
        "or records each time",
        cure="Try again.",
    )


async def commit_effects(
    context: PostgresContext, tx: PostgresTransaction, *, request: CommitRequest
) -> tuple[Committed, WaitsEnded]:
    """Lock, check, then write.

    EffectsRefused and StaleRead undo what was written.
    """
    effects, all_new, enters, note = request
    new = await check_versions(tx, effects.puts, has_jobs=bool(effects.jobs))
    enqueued: list[Enqueued] = []
    if effects.jobs:
        calls = (len(effects.jobs),)
        again = not context.in_caller_tx and not shows_repeats(request)
        enqueued = await enqueue_jobs(
            context, tx, effects.jobs, calls, again=again, enters_full=enters
        )
        check_jobs(effects.jobs, enqueued, all_new=all_new)
    versions = await write_puts(tx, effects.puts, new)
    if versions is None:
        raise StaleRead
    await extend_waits(tx, effects.extends)
    collect_appends(tx, effects.appends)
    tx.gates.changes += effects.gates
    ended = await write_entries(tx, context, is_patient=True)
    enqueued = await with_ended_waits(tx, enqueued, ended)
    if note is not None:
        await write_audit_line(tx, note.entry())
    return Committed(enqueued, versions, gates=tuple(tx.gates.counts)), ended
