"""Work off bulk actions in steps of at most 1,000 jobs.

1. A runner writes its own id into the record, with a due time. A record whose time is over
   has lost its runner: any dashboard, or the leader of the workers, takes it up.
2. Each step writes the new position in the transaction that changes the jobs, under the
   condition that the record is unchanged. So two runners never do one step, and a crash
   repeats none.
3. Each step raises the number of jobs in one line of the audit. At the end, and after a
   change of runner, `done` is read from there: it is exact, wherever a process died.
"""

from functools import cached_property
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from durio.client.bulk import CountedJobs, bulk_note, states_to_visit
from durio.client.bulk_runs import (
    TAKEN_SECONDS,
    StoredBulk,
    action_of,
    find_bulk,
    put_of,
    search_of,
)
from durio.client.job_query import query_for
from durio.client.plan_retry import resume_plans
from durio.model.bulk_run import BulkRecord, bulk_kind, load_bulk
from durio.model.effects import Effects, Put
from durio.model.errors import DurioError, StoreError
from durio.ports.clock import Clock
from durio.ports.conflicts import EffectsRefused
from durio.ports.control import Acted, Action, MoveJobs, RetryJobs
from durio.ports.records import Record, store_time
from durio.ports.store import Store

STEP_JOBS = 1_000
AUDIT_LINES_MAX = 10_000
LOOK_SECONDS = 10.0


class BulkClient(Protocol):
    """The part of an App that bulk actions use."""

    @property
    def name(self) -> str: ...

    @property
    def clock(self) -> Clock: ...

    async def store(self) -> Store: ...


class NextJobs(NamedTuple):
    """The jobs of one step, and the record after it."""

    ids: list[bytes]
    after: BulkRecord
    is_second: bool  # the state was visited before


class BulkRunner:
    """Runs the bulk actions of one App in this process, one step after the other."""

    def __init__(self, client: BulkClient) -> None:
        self._client = client
        self._clock = client.clock
        self._lines: dict[str, int] = {}  # of the audit, by action

    @cached_property
    def _holder(self) -> str:
        """The id of this runner, made when it takes up its first action."""
        return self._clock.new_id().hex()

    async def turn(self) -> float:
        """Do a step of an action that has no runner; return the pause, for a leader's loop."""
        store, kind = await self._client.store(), bulk_kind(self._client.name)
        due = await store.due_records(kind, limit=1)
        for record in due.records:
            taken = await self._take(store, record)
            if taken is not None:
                await self._release(store, await self._step(store, taken))
            return 0.0
        next_due = due.next_due_seconds
        return LOOK_SECONDS if next_due is None else min(LOOK_SECONDS, next_due)

    async def run_due(self) -> None:
        """Run every action that has no runner to its end, one after the other."""
        store, kind = await self._client.store(), bulk_kind(self._client.name)
        while due := (await store.due_records(kind, limit=1)).records:
            await self._run(store, await self._take(store, due[0]))

    async def _run(self, store: Store, found: StoredBulk | None) -> None:
        """Run an action that this runner has taken, until it ends or is lost."""
        while found is not None and not found.record.is_over:
            if found.record.holder != self._holder:
                return
            found = await self._step(store, found)

    # --- whose it is

    async def _take(self, store: Store, record: Record) -> StoredBulk | None:
        """Write our id into a record that is due; None: another runner was quicker."""
        found = StoredBulk(record.name, record.version, load_bulk(record.body))
        if found.record.is_over:
            return None
        done = await self._changed_so_far(store, found)
        ours = replace(found.record, holder=self._holder, done=done)
        return await self._written(store, found, ours)

    async def _written(
        self, store: Store, found: StoredBulk, record: BulkRecord, *, held: bool = True
    ) -> StoredBulk | None:
        """Write the record if it is unchanged; None if it is not."""
        due_at = await self._due_at(store) if held else 0.0
        put = put_of(self._client.name, found, record, due_at)
        answer = await store.commit(Effects(puts=[put]))
        if answer.conflict is not None:
            return None
        return StoredBulk(found.id, answer.versions[0], record)

    async def _release(self, store: Store, found: StoredBulk) -> None:
        """Let the next turn, of any process, go on at once."""
        if found.record.holder == self._holder and not found.record.is_over:
            await self._written(store, found, found.record, held=False)

    async def _due_at(self, store: Store) -> float:
        kind = bulk_kind(self._client.name)
        return await store_time(store, kind) + TAKEN_SECONDS

    async def _changed_so_far(self, store: Store, found: StoredBulk) -> int:
        """Return how many jobs the steps have changed, from the audit."""
        lines = await store.audit(self._client.name, limit=AUDIT_LINES_MAX)
        ours = [line for line in lines if found.id in line.details]
        if ours:
            self._lines[found.id] = ours[0].number
        return max(sum(line.jobs for line in ours), found.record.done)

    # --- one step

    async def _step(self, store: Store, found: StoredBulk) -> StoredBulk:
        """Do one step, or write the end; return the record as it is then."""
        record = found.record
        if record.state == "stopping":
            return await self._ended(store, found, replace(record, state="stopped"))
        try:
            changed = await self._act(store, found)
        except StoreError:
            raise  # another process takes the run up when its time is over
        except EffectsRefused:
            return await find_bulk(store, self._client.name, found.id)
        except DurioError as error:
            failed = replace(record, state="failed", error=str(error))
            return await self._ended(store, found, failed)
        now = await find_bulk(store, self._client.name, found.id)
        if changed is None:
            return await self._ended(store, now, replace(record, state="done"))
        if now.record.holder != self._holder:
            return now
        return now._replace(
            record=replace(
                now.record,
                done=record.done + changed.done,
                failed=record.failed + changed.failed,
            )
        )

    async def _ended(
        self, store: Store, found: StoredBulk, record: BulkRecord
    ) -> StoredBulk:
        """Write the end with the exact numbers."""
        done = await self._changed_so_far(store, found)
        last = replace(record, done=done, ended_at=self._clock.now(), cursor=None)
        written = await self._written(store, found, last)
        if written is not None:
            return written
        return await find_bulk(store, self._client.name, found.id)

    async def _act(self, store: Store, found: StoredBulk) -> "StepNumbers | None":
        """Change the next jobs and write the position; None: there are no more."""
        record, name = found.record, self._client.name
        wish = record.wish
        action = action_of(wish.verb, name, wish.to)
        search = await search_of(store, name, wish)
        query = query_for(action, search.query)
        words = f"matching {search.text.masked()}" if wish.q else ""
        counted = CountedJobs(query, wish.mark, STEP_JOBS, search.keeps, words)
        following = await next_jobs(store, action, counted, record)
        if following is None:
            return None
        put = put_of(name, found, following.after, await self._due_at(store))
        acted: list[Acted] = []
        if following.ids:
            acted = await self._act_on(store, found, following.ids, counted, put)
        done = sum(one.is_changed_by(action) for one in acted)
        if not done:  # the store has written nothing
            answer = await store.commit(Effects(puts=[put]))
            if answer.conflict is not None:
                raise EffectsRefused(answer.conflict)
        held = sum(one.is_held for one in acted) if following.is_second else 0
        return StepNumbers(done, held)

    async def _act_on(
        self,
        store: Store,
        found: StoredBulk,
        ids: list[bytes],
        what: CountedJobs,
        put: Put,
    ) -> list[Acted]:
        """Change these jobs and the record, and raise the number in the audit."""
        wish = found.record.wish
        action = action_of(wish.verb, self._client.name, wish.to)
        if isinstance(action, RetryJobs):
            await resume_plans(store, ids, self._clock, wish.by)
        note = bulk_note(action, what, wish.by, found.record.details)
        if isinstance(action, MoveJobs):
            words = (what.query.in_words(), what.words, f"to {action.lane}")
            note.target = " ".join(filter(None, words))
        note.line = self._lines.get(found.id)
        only, effects = (what.query, what.mark), Effects(puts=[put])
        acted = await store.act(ids, action, only=only, note=note, effects=effects)
        if note.line is not None:
            self._lines[found.id] = note.line
        return acted


class StepNumbers(NamedTuple):
    """What one step has done."""

    done: int
    failed: int


async def next_jobs(
    store: Store, action: Action, counted: CountedJobs, record: BulkRecord
) -> NextJobs | None:
    """Return the next jobs of a run and the position after them; None at the end."""
    states = states_to_visit(action, counted.query)
    visits = [(state, is_second) for is_second in (False, True) for state in states]
    if record.visit >= len(visits):
        return None
    wish = record.wish
    left = STEP_JOBS if wish.is_capped else max(0, wish.expected - record.done)
    if not left:
        return None
    state, is_second = visits[record.visit]
    page = await store.find(
        counted.query._replace(states=(state,)),
        limit=min(STEP_JOBS, left),
        cursor=record.cursor,
        mark=counted.mark,
    )
    ids = list(page.ids)
    if counted.keeps is not None and ids:
        ids = [job.id for job in await store.get(ids) if counted.keeps(job)]
    is_visited = page.cursor is None
    after = replace(
        record,
        visit=record.visit + is_visited,
        cursor=page.cursor,
        matched=record.matched + (0 if is_second else len(ids)),
    )
    return NextJobs(ids, after, is_second)
