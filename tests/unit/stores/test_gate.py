"""The gate in SQL is the gate in the model: every combination, both asked."""

import itertools

import pytest

from durio.model.job import CODE_BY_STATE, State
from durio.model.outcome import Kind, Outcome
from durio.model.transitions import way_out
from durio.ports.exchange import Lane
from durio.stores.sqlite.gate import pass_gate
from durio.stores.sqlite.store import SqliteStore
from durio.stores.sqlite.transaction import Transaction
from tests.unit.stores.stage import INFO, LANE, new_job, tell

KINDS = [kind for kind in Kind if kind not in (Kind.DONE, Kind.PROGRESS, Kind.ALONE)]
FLAGS = [False, True]


@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_of_the_gate(kind: Kind) -> None:
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
                guilty=guilty,
            )
            job = new_job()
            await store.enqueue([job])
            claims = (await store.exchange(worker, [], [Lane(LANE, 1)], 1)).claims
            outcome = Outcome(
                job.id,
                claims[0].claim_no,
                kind,
                delay_seconds=9.0 if delayed else 0.0,
                guilty=guilty,
            )

            def leave(
                tx: Transaction, row=(lost, cancel_asked, alone, job.id), o=outcome
            ) -> None:
                tx.db.rows("update job set lost=?, cancel=?, alone=? where id=?", row)
                assert pass_gate(tx, worker, o) is not None

            await store.desk.writer.write(leave)
            (record,) = await store.get([job.id])
            cell = (lost, delayed, cancel_asked, alone, guilty)
            assert record.state == CODE_BY_STATE[way.state], cell
            assert record.lost == way.lost, cell
            charges = (record.retried, record.snoozed, record.losses)
            assert charges == (way.retried, way.snoozed, way.losses), cell
            assert record.claim_no == 1, cell
            assert record.worker is None, cell
            if way.state is State.READY:
                await store.act([job.id], "cancel")

    tell(None, story)
