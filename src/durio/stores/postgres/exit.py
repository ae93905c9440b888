"""Move jobs out of `running`, in one statement for every end except done.

Give-back, rescue, orphan rescue and a worker's leave use it. The statement is
`model.transitions.way_out` in SQL, and takes any number of jobs. This module also applies
the consequences for bounds, keys, death counts and waiting workers.

Outcomes are converted to the arrays that statements take, sorted by id, because locks are
taken in that order. An array that would hold only nulls stays empty, and the server fills
it up.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from durio.model.job import DEAD, DONE, READY
from durio.model.outcome import Outcome, OutcomeKind, Reason
from durio.model.ties import EndedJob, entry_body
from durio.stores.postgres.bounds import change_depths
from durio.stores.postgres.death_counts import count_deaths
from durio.stores.postgres.gates import give_back
from durio.stores.postgres.keys import free_at_end
from durio.stores.postgres.logs import collect_ends
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import NO_WORKER, PostgresTransaction

FIELDS = Outcome._fields
id_of = itemgetter(FIELDS.index("id"))
claim_no_of = itemgetter(FIELDS.index("claim_no"))
fence_of = itemgetter(FIELDS.index("id"), FIELDS.index("claim_no"))
kind_of = itemgetter(FIELDS.index("kind"))
result_of = itemgetter(FIELDS.index("result"))
result_seconds_of = itemgetter(FIELDS.index("result_seconds"))
keep_of = itemgetter(FIELDS.index("keep"))
effects_of = itemgetter(FIELDS.index("effects"))
is_quiet_of = itemgetter(FIELDS.index("is_quiet"))

OutcomeColumns = tuple[list[Any], ...]
NO_OUTCOME_COLUMNS: OutcomeColumns = ([], [], [], [], [], [], [])


def are_done(outcomes: Sequence[Outcome]) -> bool:
    """Whether all outcomes have the kind DONE, which is 0."""
    return not any(map(kind_of, outcomes))


def are_plain(outcomes: Sequence[Outcome]) -> bool:
    """Whether all outcomes are done, append what their jobs say, and have no effects."""
    return not (
        any(map(kind_of, outcomes))
        or any(map(effects_of, outcomes))
        or any(map(is_quiet_of, outcomes))
    )


def is_progress_update(outcome: Outcome) -> bool:
    """Whether the job continues to run."""
    return outcome.kind in (OutcomeKind.PROGRESS, OutcomeKind.ALONE)


def by_fence(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Sort by id and claim number; of two outcomes of a job the last one counts."""
    return sorted(outcomes, key=fence_of)


def done_columns(outcomes: Sequence[Outcome]) -> OutcomeColumns:
    """Return the parameters `ids` to `keep_counts` of `exchange` and `finish_jobs`."""
    if not outcomes:
        return NO_OUTCOME_COLUMNS
    return (
        list(map(id_of, outcomes)),
        list(map(claim_no_of, outcomes)),
        list(map(result_of, outcomes)),
        list(map(float, map(result_seconds_of, outcomes))),
        *keep_columns(outcomes),
    )


def keep_columns(outcomes: Sequence[Outcome]) -> OutcomeColumns:
    """Return seconds, bucket and count of each retention; empty if no outcome has one."""
    keeps = list(map(keep_of, outcomes))
    if not any(keeps):
        return ([], [], [])
    return (
        [None if keep is None else float(keep.seconds) for keep in keeps],
        [None if keep is None else keep.bucket for keep in keeps],
        [None if keep is None else keep.count for keep in keeps],
    )


def exit_columns(workers: Sequence[int], outcomes: Sequence[Outcome]) -> OutcomeColumns:
    """Return the parameters `ids` to `keep_counts` of `leave_running`."""
    return (
        list(map(id_of, outcomes)),
        list(map(claim_no_of, outcomes)),
        list(workers),
        list(map(int, map(kind_of, outcomes))),
        [float(o.delay_seconds) for o in outcomes],
        [o.error for o in outcomes],
        [reason_of(o) for o in outcomes],
        [o.killed_process for o in outcomes],
        [o.parks for o in outcomes],
        [o.again_from_gates for o in outcomes],
        *keep_columns(outcomes),
    )


def reason_of(outcome: Outcome) -> str | None:
    """Return the reason to store if the job becomes dead."""
    return Reason.WORKER_LOST if outcome.kind == OutcomeKind.LOST else outcome.reason


def progress_update_columns(updates: Sequence[Outcome]) -> OutcomeColumns:
    """Return the columns of `write_progress_and_alone`: the newest progress of each claim."""
    progress: dict[tuple[bytes, int], bytes | None] = {}
    marked: set[tuple[bytes, int]] = set()
    for update in updates:
        claim = (update.id, update.claim_no)
        if update.kind == OutcomeKind.ALONE:
            progress.setdefault(claim, None)
            marked.add(claim)
        else:
            progress[claim] = update.progress
    claims = sorted(progress)
    return (
        [job_id for job_id, _ in claims],
        [claim_no for _, claim_no in claims],
        [progress[claim] for claim in claims],
        [claim in marked for claim in claims],
    )


LOCK_BOUNDED = statement("lock_bounded_queues")
LEAVE_RUNNING = statement("leave_running")


class PostgresExit(NamedTuple):
    """Where a job is after it has left `running`."""

    state: int
    lane: str
    task: str
    rank: int


async def lock_bounded(
    tx: PostgresTransaction, ids: Collection[bytes], lanes: Collection[str] = ()
) -> None:
    """Before locking jobs, lock bounded queues whose depth these jobs or lanes may change.

    This is a statement of its own, so that the next statement sees the commits that the
    lock waited for.
    """
    if ids or lanes:
        await tx.rows(LOCK_BOUNDED, list(ids), list(lanes))


async def leave_running(
    tx: PostgresTransaction,
    workers: Sequence[int],
    outcomes: Sequence[Outcome],
    *,
    except_worker: int = NO_WORKER,
) -> list[PostgresExit | None]:
    """Let jobs leave `running`, each fenced by its worker; None if the fence refused.

    `outcomes` are sorted by id, and `lock_bounded` was called before. `except_worker` is
    not woken. The caller calls `write_entries` afterwards.
    """
    retention = tx.retention
    rows = await tx.rows(
        LEAVE_RUNNING,
        *exit_columns(workers, outcomes),
        tx.injected,
        retention.done_seconds,
        retention.dead_seconds,
    )
    passed: list[PostgresExit | None] = [None] * len(outcomes)
    entered: Counter[str] = Counter()
    dead: list[bytes] = []
    freed: list[tuple[bytes, bytes]] = []
    ended: list[EndedJob] = []
    for number, key, ties, held, *where in rows:
        place: int = number - 1
        if key is not None:
            freed.append((key, outcomes[place].id))
        passed[place] = PostgresExit(*where)
        state, lane = where[:2]
        if state <= READY:
            entered[lane] += 1
        if ties is not None:
            collect_places(tx, outcomes[place], state, ties, held)
            ended += ended_jobs(outcomes[place], state, ties)
        if state == READY:
            tx.wake(lane, except_worker=except_worker)
        elif state == DEAD:
            dead.append(outcomes[place].id)
    # Also beyond the bound: the jobs were accepted before.
    await change_depths(tx, entered)
    free_at_end(tx, freed)
    await collect_ends(tx, ended)
    if dead:
        # At the very end, because transactions that count deaths wait for each other.
        tx.before_commit.append(partial(count_deaths, tx, dead))
    return passed


def ended_jobs(outcome: Outcome, state: int, ties: str) -> list[EndedJob]:
    """Return the job if it is final."""
    body = entry_body(state, None, outcome.error)
    return [EndedJob(outcome.id, state, ties, body)] if state >= DONE else []


def collect_places(
    tx: PostgresTransaction, outcome: Outcome, state: int, ties: str, held: int | None
) -> None:
    """Collect the places that a job gives back, and the job if it passes its gates again."""
    enters = state == READY and outcome.again_from_gates
    if enters:
        tx.gates.entering.append(outcome.id)
    if enters or state != READY:
        give_back(tx, ties, held, keeps_final=state <= READY)
