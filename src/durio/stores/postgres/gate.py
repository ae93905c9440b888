"""The gate out of `running`, for everything but done: one statement, one way through.

Give-back, rescue, orphan rescue and leaving all come here. The statement is
`model.transitions.way_out` in SQL, and takes any number of jobs; what a way out means for
bounds, for the tally of the dead and for whoever waits for work is done around it.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple

from durio.model.job import DEAD, READY
from durio.model.outcome import Outcome
from durio.stores.postgres.bounds import change_depths
from durio.stores.postgres.keys import free_at_end
from durio.stores.postgres.outcomes import gate_columns
from durio.stores.postgres.statements import statement
from durio.stores.postgres.tally import count_deaths
from durio.stores.postgres.transaction import EVERYBODY, Transaction

LOCK_BOUNDED = statement("gate_lock")
PASS_GATE = statement("gate_pass")


class Passed(NamedTuple):
    """Where a job went."""

    state: int
    lane: str
    task: str
    rank: int


async def lock_bounded(
    tx: Transaction, ids: Collection[bytes], lanes: Collection[str] = ()
) -> None:
    """Bounded queues whose depth these jobs or lanes may change: before any job's lock.

    A statement of its own: what comes after it sees what the lock had to wait for.
    """
    if ids or lanes:
        await tx.rows(LOCK_BOUNDED, list(ids), list(lanes))


async def pass_gate(
    tx: Transaction,
    workers: Sequence[int],
    outcomes: Sequence[Outcome],
    *,
    tell: int = EVERYBODY,
) -> list[Passed | None]:
    """Let jobs out, each by its worker's hand; None: the fence refused.

    They come by id, and `lock_bounded` before. `tell` names who need not be rung.
    """
    retention = tx.retention
    rows = await tx.rows(
        PASS_GATE,
        *gate_columns(workers, outcomes),
        tx.injected,
        retention.done_seconds,
        retention.dead_seconds,
    )
    passed: list[Passed | None] = [None] * len(outcomes)
    entered: Counter[str] = Counter()
    dead: list[bytes] = []
    freed: list[tuple[bytes, bytes]] = []
    for number, key, *where in rows:
        place: int = number - 1
        if key is not None:
            freed.append((key, outcomes[place].id))
        passed[place] = Passed(*where)
        state, lane = where[:2]
        if state <= READY:
            entered[lane] += 1
        if state == READY:
            tx.ring(lane, but=tell)
        elif state == DEAD:
            dead.append(outcomes[place].id)
    await change_depths(tx, entered)  # whatever their bounds: accepted once
    free_at_end(tx, freed)
    if dead:
        # At the very end: all who count deaths wait for each other there.
        tx.before_commit.append(partial(count_deaths, tx, dead))
    return passed
