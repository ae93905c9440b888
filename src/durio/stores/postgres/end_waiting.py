"""Cancel jobs that wait, or make them dead; their rows in the lanes are deleted before."""

from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial

from durio.model.job import CANCELLED, DEAD
from durio.model.outcome import KeepRule
from durio.model.ties import EndedJob, entry_body
from durio.ports.control import CancelJobs, KillJobs
from durio.stores.job_rules import retention_of
from durio.stores.postgres.bounds import PostgresGuard, change_depths
from durio.stores.postgres.death_counts import count_deaths
from durio.stores.postgres.gates import give_back
from durio.stores.postgres.keys import free_at_end
from durio.stores.postgres.logs import collect_end
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction
from durio.stores.postgres.waits import stop_waiting, waits_of

LOCK_JOBS = statement("lock_jobs")
CANCEL_WAITING = statement("cancel_waiting")
KILL_WAITING = statement("kill_waiting")

Guards = Mapping[str, PostgresGuard]


async def cancel_waiting(
    tx: PostgresTransaction,
    guards: Guards,
    held: dict[bytes, int],
    blocked: Collection[bytes],
    action: CancelJobs,
) -> list[bytes]:
    """Cancel jobs whose lane rows are deleted; keep each for its own retention."""
    if not held:
        return []
    now, retention, as_dead = await tx.now(), tx.retention, action.is_kept_as_dead
    default = KeepRule(retention.dead_seconds if as_dead else retention.done_seconds)
    ids, keeps, keys = list[bytes](), list[KeepRule](), list[tuple[bytes, bytes]]()
    left: Counter[str] = Counter()
    kept_ties: list[str | None] = []
    rows = await tx.rows(LOCK_JOBS, sorted(held))
    for job_id, lane, opts, key, ties, held_places in rows:
        ids.append(job_id)
        kept_ties.append(ties)
        give_back(tx, ties, held_places)
        if ties is not None and not action.is_quiet:
            kept_ties[-1] = collect_end(tx, EndedJob(job_id, CANCELLED, ties, None))
        keeps.append(retention_of(opts) or default)
        left[lane] -= 1
        if key is not None:
            keys.append((key, job_id))
    await tx.rows(
        CANCEL_WAITING,
        ids,
        [held[job_id] for job_id in ids],
        [now + keep.seconds for keep in keeps],
        [None if keep.count is None else keep.bucket for keep in keeps],
        [keep.count for keep in keeps],
        [keep.count is not None or keep.seconds > 0 for keep in keeps],
        kept_ties,
        action.reason,
        now,
    )
    await stop_waiting(
        tx, waits_of((row[0], row[4]) for row in rows if row[0] in blocked)
    )
    await change_depths(tx, bounded_changes(guards, left))
    free_at_end(tx, keys)
    return ids


async def kill_waiting(
    tx: PostgresTransaction,
    guards: Guards,
    held: dict[bytes, int],
    blocked: Collection[bytes],
    action: KillJobs,
) -> list[bytes]:
    """Make jobs dead whose lane rows are deleted."""
    if not held:
        return []
    now, left = await tx.now(), Counter[str]()
    kept_ties: list[str | None] = []
    body = entry_body(DEAD, None, action.error)
    rows = await tx.rows(LOCK_JOBS, sorted(held))
    ids: list[bytes] = [row[0] for row in rows]
    for job_id, lane, _opts, _key, ties, held_places in rows:
        left[lane] -= 1
        give_back(tx, ties, held_places)
        if ties is not None:
            ties = collect_end(tx, EndedJob(job_id, DEAD, ties, body))  # noqa: PLW2901
        kept_ties.append(ties)
    freed = await tx.rows(
        KILL_WAITING,
        ids,
        [held[job_id] for job_id in ids],
        kept_ties,
        action.error,
        action.reason,
        now,
        now + tx.retention.dead_seconds,
    )
    await stop_waiting(
        tx, waits_of((row[0], row[4]) for row in rows if row[0] in blocked)
    )
    await change_depths(tx, bounded_changes(guards, left))
    free_at_end(tx, [(key, job_id) for key, job_id in freed])
    # At the very end, because transactions that count deaths wait for each other.
    tx.before_commit.append(partial(count_deaths, tx, ids))
    return ids


def bounded_changes(guards: Guards, changes: Mapping[str, int]) -> dict[str, int]:
    """Return the changes of depth in lanes that had a bound when they were locked.

    A lane that got its bound later is recounted after this transaction.
    """
    bounded = {lane for lane, guard in guards.items() if guard.limit is not None}
    return {lane: jobs for lane, jobs in changes.items() if lane in bounded}
