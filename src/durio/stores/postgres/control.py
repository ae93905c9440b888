"""Operators' hands: on jobs by id and by the thousand, on queues, and on workers."""

from collections.abc import Sequence

from durio.model.errors import StoreError
from durio.model.job import Record
from durio.ports.browse import Query
from durio.ports.control import Acted, Counted, QueueChange, Stepped, Verb
from durio.stores.postgres.bounds import settle
from durio.stores.postgres.bulk import Bulk, Done, act_on, count, look, mark_of
from durio.stores.postgres.desk import AtDesk
from durio.stores.postgres.hands import STEP_MAX, act_on_ids
from durio.stores.postgres.orders import READ_ANSWER, answer_in, give_order
from durio.stores.postgres.queues import change_queue, move
from durio.stores.postgres.restore import restore
from durio.stores.postgres.steps import Begun, Place


class PostgresControl(AtDesk):
    """Acting on jobs, queues and workers."""

    async def act(
        self, ids: Sequence[bytes], verb: Verb, *, by: str | None = None
    ) -> list[Acted]:
        """Do it, or leave a job as it is where its state does not allow it."""
        if not ids:
            return []
        return await act_on_ids(self.desk, ids, verb, by)

    async def retry_edited(
        self, job_id: bytes, payload: bytes, *, by: str | None = None
    ) -> Acted:
        """`retry` of one job with other arguments, checked by the caller."""
        return (await act_on_ids(self.desk, [job_id], "retry", by, payload))[0]

    async def count(self, query: Query) -> Counted:
        """Exactly how many jobs fit, and a mark for `act_on`."""
        return await self.desk.lines.read_many(lambda reading: count(reading, query))

    async def act_on(
        self, query: Query, verb: Verb, mark: str, limit: int, *, by: str
    ) -> Stepped:
        """The verb for at most `limit` jobs that fit and are not beyond the mark."""
        desk, key = self.desk, (query, verb, mark, by)
        bulk = Bulk(query, verb, mark_of(mark), by)
        begun = desk.bulks.get(key)
        room = max(1, min(limit, STEP_MAX))
        step = await desk.lines.read_many(
            lambda reading: look(reading, query, verb, bulk.mark, begun.place, room)
        )
        done = Done(0, begun.line)
        if step.found:
            done = await desk.lines.write(lambda tx: act_on(tx, bulk, step, begun.line))
        more = step.then is not None
        desk.bulks.put(key, Begun(step.then, done.line) if step.then else None)
        return Stepped(done.jobs, more, done.held)

    async def restore(self, records: Sequence[Record], *, by: str) -> int:
        """Dead letters from elsewhere; ids that are stored stay as they are."""
        if not records:
            return 0
        return await self.desk.lines.write(lambda tx: restore(tx, records, by))

    async def change_queue(self, lane: str, change: QueueChange, *, by: str) -> None:
        """Pause, resume, close, open or bound a queue; whoever serves it is told."""
        desk = self.desk
        await desk.lines.write(lambda tx: change_queue(tx, lane, change, by))
        if change.maxsize is not None:
            try:
                await settle(desk, [lane])
            except StoreError as error:
                error.unknown = True  # the change itself was made
                raise

    async def move(self, lane: str, to: str, limit: int, *, by: str) -> Stepped:
        """Waiting jobs go to another queue with priority, due time and fence."""
        desk, key = self.desk, ("move", lane, to, by)
        room = max(1, min(limit, STEP_MAX))
        begun = desk.bulks.get(key)
        moved, line = await desk.lines.write(
            lambda tx: move(tx, lane, to, room, by, begun.line)
        )
        desk.bulks.put(key, Begun(Place(), line) if moved.more else None)
        return moved

    async def order(self, worker: int, verb: str, *, by: str) -> int | None:
        """Ask a worker to do something; the order's number, None: no such worker."""
        return await self.desk.lines.write(lambda tx: give_order(tx, worker, verb, by))

    async def answer_to(self, order: int) -> str | None:
        """What the worker answered; None: nothing yet; "": it never will."""
        return answer_in(await self.desk.lines.read(READ_ANSWER, order))
