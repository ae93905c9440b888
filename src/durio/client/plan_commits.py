"""Store plans that are enqueued at the same time in one transaction.

While one commit is being written, later plans collect and become the next one. If one of
them is refused, a key that another job has or a full queue, each is committed by itself.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from durio.client.calls import BATCH_BYTES, RestartingTask
from durio.client.reliable_write import closed_before_stored
from durio.model.effects import Effects, joined
from durio.model.errors import StoreError
from durio.ports.commit import ROWS_MAX, Commit, Committed


class WaitingCommit(NamedTuple):
    """The effects of one caller, all of them new."""

    effects: Effects
    future: "asyncio.Future[Committed]"

    @property
    def rows(self) -> int:
        effects = self.effects
        entries = sum(len(append.entries) for append in effects.appends)
        return len(effects.jobs) + len(effects.puts) + entries

    @property
    def bytes(self) -> int:
        effects = self.effects
        bodies = sum(len(put.body or b"") for put in effects.puts)
        return bodies + sum(len(job.payload) for job in effects.jobs)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class PlanCommits:
    """Commits the plans of one event loop, one transaction at a time."""

    def __init__(self, store: Commit) -> None:
        self._store = store
        self._waiting: deque[WaitingCommit] = deque()
        self._batch: list[WaitingCommit] = []
        self._task = RestartingTask(self._run, self._recover)

    async def commit(self, effects: Effects) -> Committed:
        """Write all of these effects or nothing; raises what the store raises."""
        future: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        self._waiting.append(WaitingCommit(effects, future))
        self._task.start()
        return await future

    async def _run(self) -> None:
        while self._waiting:
            self._batch = self._next_batch()
            await self._send(self._batch)
            self._batch = []

    def _next_batch(self) -> list[WaitingCommit]:
        batch: list[WaitingCommit] = []
        rows = size = 0
        names: set[tuple[str, str]] = set()
        while self._waiting:
            following = self._waiting[0]
            rows += following.rows
            size += following.bytes
            own = {(put.kind, put.name) for put in following.effects.puts}
            # Two plans with one key: the second must see the record of the first.
            if batch and (rows > ROWS_MAX or size > BATCH_BYTES or own & names):
                break
            names |= own
            batch.append(self._waiting.popleft())
        return batch

    async def _send(self, batch: Sequence[WaitingCommit]) -> None:
        effects = joined(*(each.effects for each in batch))
        try:
            answer = await self._store.commit(effects, all_new=True)
        except Exception as error:
            if isinstance(error, StoreError) or len(batch) == 1:
                for each in batch:  # every caller repeats its own, or reports it
                    each.fail(error)
            else:
                await self._send_each(batch)
            return
        if answer.conflict is not None and len(batch) > 1:
            await self._send_each(batch)
            return
        jobs = puts = 0
        for each in batch:
            own = Committed(
                answer.enqueued[jobs : jobs + len(each.effects.jobs)],
                answer.versions[puts : puts + len(each.effects.puts)],
                answer.conflict,
            )
            jobs += len(each.effects.jobs)
            puts += len(each.effects.puts)
            if not each.future.done():
                each.future.set_result(own)

    async def _send_each(self, batch: Sequence[WaitingCommit]) -> None:
        for each in batch:
            await self._send([each])

    def _recover(self) -> bool:
        """End the calls that were being written; their outcome is unknown."""
        batch, self._batch = self._batch, []
        for each in batch:
            each.fail(closed_before_stored())
        return bool(self._waiting)
