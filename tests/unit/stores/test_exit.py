"""The gate in SQL is the gate in the model: every combination, both asked."""

import itertools

import pytest

from durio.model.job import CODE_BY_STATE, State
from durio.model.outcome import Outcome, OutcomeKind
from durio.model.transitions import way_out
from durio.ports.control import CancelJobs
from durio.ports.exchange import Lane
from durio.stores.sqlite.exit import leave_running
from durio.stores.sqlite.store import SqliteStore
from durio.stores.sqlite.write_session import SqliteTransaction
from tests.unit.stores.sqlite_harness import INFO, LANE, new_job, run_on_store

KINDS = [
    kind
    for kind in OutcomeKind
    if kind not in (OutcomeKind.DONE, OutcomeKind.PROGRESS, OutcomeKind.ALONE)
]
FLAGS = [False, True]


@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_of_the_gate(kind: OutcomeKind) -> None:
    async def story(store: SqliteStore) -> None:
        worker = await store.register(INFO, 30)
        cells = itertools.product(range(5), FLAGS, FLAGS, FLAGS, FLAGS)
        for lost, delayed, cancel_asked, alone, guilty in cells:
            way = way_out(
                kind,
                lost=lost,
                delayed=delayed,
                cancel_asked=cancel_asked,
                alone=alone,
                killed_process=guilty,
            )
            job = new_job()
            await store.enqueue([job])
            claims = (await store.exchange(worker, [], [Lane(LANE, 1)], 1)).claims
            outcome = Outcome(
                job.id,
                claims[0].claim_no,
                kind,
                delay_seconds=9.0 if delayed else 0.0,
                killed_process=guilty,
            )

            def leave(
                tx: SqliteTransaction,
                row=(lost, cancel_asked, alone, job.id),
                o=outcome,
            ) -> None:
                tx.db.rows("update job set lost=?, cancel=?, alone=? where id=?", row)
                assert leave_running(tx, worker, o) is not None

            await store.context.writer.write(leave)
            (record,) = await store.get([job.id])
            cell = (lost, delayed, cancel_asked, alone, guilty)
            assert record.state == CODE_BY_STATE[way.state], cell
            assert record.lost == way.lost, cell
            charges = (record.retried, record.snoozed, record.losses)
            assert charges == (way.retried, way.snoozed, way.losses), cell
            assert record.claim_no == 1, cell
            assert record.worker is None, cell
            if way.state is State.READY:
                await store.act([job.id], CancelJobs())

    run_on_store(None, story)
