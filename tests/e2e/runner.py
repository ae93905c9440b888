"""A worker that kills itself at a named point; the product knows nothing of it.

claimed         the claims are committed, nothing has started
unsent          tasks have had their effect, their outcomes are on their way
uncommitted     the finish is written, its transaction not committed
committed       the finish is committed, its answer not delivered
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from durio.app.worker_builder import make_worker
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.lease import Renewed
from durio.ports.store import Store
from durio.stores.sqlite import exchange
from durio.stores.sqlite.finish import record_outcomes
from durio.stores.sqlite.write_session import SqliteTransaction, WriteSession
from durio.telemetry.log import configure
from tests.e2e.jobs import app

commit = WriteSession.commit


class Deadly:
    """A store whose process dies at one point of an exchange."""

    def __init__(self, store: Store, point: str) -> None:
        self._store = store
        self._point = point
        self._finishing: SqliteTransaction | None = None
        exchange.record_outcomes = self.record
        # A bound method would not get the session.
        WriteSession.commit = lambda session, tx: self.commit_tx(session, tx)  # noqa: PLW0108

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def exchange(
        self, worker: int, outcomes: Sequence[Outcome], *rest: Any, **options: Any
    ) -> Any:
        if brings_results(outcomes):
            self.die_at("unsent")
        answer = await self._store.exchange(worker, outcomes, *rest, **options)
        if answer.claims:
            self.die_at("claimed")
        return answer

    async def renew(self, worker: int, *rest: Any) -> Renewed:
        if self._point == "deaf":
            return Renewed(alive=True, cancels=[])
        return await self._store.renew(worker, *rest)

    # --- in the writer's thread

    def record(
        self, tx: SqliteTransaction, worker: int, outcomes: Sequence[Outcome]
    ) -> Any:
        if brings_results(outcomes):
            self._finishing = tx
        return record_outcomes(tx, worker, outcomes)

    def commit_tx(self, session: WriteSession, tx: SqliteTransaction) -> None:
        if tx is self._finishing:
            self.die_at("uncommitted")
        commit(session, tx)
        if tx is self._finishing:
            self.die_at("committed")

    def die_at(self, point: str) -> None:
        if point == self._point:
            os.kill(os.getpid(), signal.SIGKILL)


def brings_results(outcomes: Sequence[Outcome]) -> bool:
    return any(outcome.kind == OutcomeKind.DONE for outcome in outcomes)


async def main(point: str) -> None:
    configure(app.settings.log)
    deadly = Deadly(await app.store(), point)

    async def store() -> Any:
        return deadly

    app.store = store
    worker = await make_worker(app)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
