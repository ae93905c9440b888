"""Hands reach for what a transaction holds for long: a key, a kept row, a run row.

Everybody else's jobs are done meanwhile, and of the one that is held the truth is told: in
code, on the command line, and as JSON.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from durio import App
from durio.client.bulk import BulkStep
from durio.errors import StoreUnavailable, WrongState
from durio.model.job import (
    CANCELLED,
    DEAD,
    READY,
    RUNNING,
    SCHEDULED,
    Claim,
    NewJob,
)
from durio.model.keys import key_claim, while_active, while_waiting
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.browse import Query
from durio.ports.control import (
    ACTION_OF_VERB,
    AuditNote,
    CancelJobs,
    DiscardJobs,
    RetryJobs,
    Verb,
)
from durio.ports.exchange import Lane
from durio.stores.postgres.store import PostgresStore
from tests.bulk_actions import bulk_steps, run_bulk
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import LANE, PAYLOAD, SHOP, TASK, info
from tests.e2e.open_transaction import clock, open_transaction, opened
from tests.servers.postgres import PostgresServer
from tests.unit.cli.terminal import Terminal

ALL_DEAD = Query(namespace=SHOP, states=(DEAD,))
HOLD_RUN = "select 1 from durio.run where id = $1::uuid for update"
HOLD_KEPT = "select 1 from durio.kept where id = $1::uuid for update"
OTHERS = 8
SHORT = 0.5  # as long as a call may last, where it ends in vain


def job(key: str | None = None) -> NewJob:
    claim = key and key_claim(while_active, TASK, key, PAYLOAD)
    return NewJob(clock.new_id(), LANE, 4, TASK, PAYLOAD, key=claim or None)


@dataclass
class Scene:
    """A store for hands, one for everything else, and a stranger in a transaction."""

    operator: PostgresStore
    other: PostgresStore
    caller: Any
    worker: int = 0

    async def run(self, jobs: list[NewJob]) -> list[Claim]:
        """These run, and they alone."""
        await self.other.enqueue(jobs)
        self.worker = await self.other.register(info(), 60.0)
        told = await self.other.exchange(self.worker, [], [Lane(LANE, 99)], 99)
        assert {claim.id for claim in told.claims} == {each.id for each in jobs}
        return told.claims

    async def bury(self, *keys: str | None) -> list[bytes]:
        """Jobs that died, and have let go of their keys."""
        jobs = [job(key) for key in keys]
        claims = await self.run(jobs)
        ends = [Outcome(c.id, c.claim_no, OutcomeKind.DEAD, reason="x") for c in claims]
        assert (await self.other.exchange(self.worker, ends, (), 0)).rejected == []
        return [each.id for each in jobs]

    async def take_key(self, key: str) -> bytes:
        """The stranger enqueues a job with it, and does not commit."""
        (told,) = await self.other.enqueue([job(key)], tx=self.caller)
        assert told.created
        return told.id

    async def hold(self, sql: str, job_id: bytes) -> None:
        assert await self.caller.fetch(sql, UUID(bytes=job_id))

    async def states(self, ids: list[bytes]) -> list[int | None]:
        found = await self.other.states(ids)
        return [found.get(job_id) for job_id in ids]

    async def until(self, ids: list[bytes], state: int) -> None:
        while set(await self.states(ids)) != {state}:
            await clock.sleep(0.01)

    async def in_bulk(self, verb: Verb, query: Query = ALL_DEAD) -> BulkStep:
        """All its steps as one."""
        action = ACTION_OF_VERB[verb]
        return await run_bulk(self.operator, query, action, step_jobs=3)


@asynccontextmanager
async def opened_scene(
    grounds: ScratchSchema, call_seconds: float
) -> AsyncGenerator[Scene, None]:
    place = replace(grounds.location, call_seconds=call_seconds)
    async with (
        opened(place) as hand,
        opened(grounds.location) as other,
        open_transaction(grounds.url) as stranger,
    ):
        yield Scene(hand, other, stranger)


def play(
    grounds: ScratchSchema,
    story: Callable[[Scene], Awaitable[None]],
    *,
    call_seconds: float = 30.0,
) -> None:
    async def main() -> None:
        async with opened_scene(grounds, call_seconds) as scene:
            await story(scene)

    asyncio.run(main())


# --- a key


@pytest.mark.parametrize(("ends", "after"), [("rollback", READY), ("commit", DEAD)])
def test_a_retry_by_id_does_the_others_first(
    grounds: ScratchSchema, ends: str, after: int
) -> None:
    """Then it is judged by what the transaction has made of the key."""

    async def story(scene: Scene) -> None:
        held, *others = ids = await scene.bury("held", None, *"abcdefgh")
        await scene.take_key("held")
        call = asyncio.ensure_future(
            scene.operator.act(ids, RetryJobs(), note=AuditNote(who="kim"))
        )
        await scene.until(others, READY)
        assert not call.done()
        assert await scene.states([held]) == [DEAD]
        await scene.caller.execute(ends)
        first, *rest = await call
        assert first == (held, DEAD, after, False)
        assert {(one.before, one.after) for one in rest} == {(DEAD, READY)}
        assert await scene.states([held]) == [after]

    play(grounds, story)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_a_bulk_retry_passes_over_what_is_held(
    grounds: ScratchSchema, driver: str
) -> None:
    """However many that are, and wherever they come among the others."""

    async def story(scene: Scene) -> None:
        taken = await scene.bury("lost", *(f"held{n}" for n in range(OTHERS)))
        free = await scene.bury(None, *(f"free{n}" for n in range(OTHERS)))
        (heir,) = await scene.other.enqueue([job("lost")])
        assert heir.created
        for n in range(OTHERS):
            await scene.take_key(f"held{n}")
        assert await scene.in_bulk("retry") == BulkStep(len(free), OTHERS)
        assert await scene.states(free) == [READY] * len(free)
        assert await scene.states(taken) == [DEAD] * len(taken)
        await scene.caller.execute("rollback")
        assert await scene.in_bulk("retry") == BulkStep(OTHERS, 0)
        assert await scene.states(taken) == [DEAD] + [READY] * OTHERS

    grounds.location = replace(grounds.location, driver=driver)
    play(grounds, story, call_seconds=5.0)


def test_a_bulk_retry_comes_back_to_what_was_held_for_a_moment(
    grounds: ScratchSchema,
) -> None:
    async def story(scene: Scene) -> None:
        ids = await scene.bury("held", "free")
        await scene.take_key("held")
        mark = (await scene.operator.count(ALL_DEAD)).mark
        steps = bulk_steps(scene.operator, ALL_DEAD, RetryJobs(), mark)
        assert await anext(steps) == BulkStep(1)
        await scene.caller.execute("rollback")
        assert [step async for step in steps] == [BulkStep(1)]
        assert await scene.states(ids) == [READY, READY]

    play(grounds, story)


def test_a_discard_waits_for_no_key(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        first, second = await scene.bury("held", "other")
        await scene.take_key("held")
        (acted,) = await scene.operator.act(
            [first], DiscardJobs(), note=AuditNote(who="kim")
        )
        assert acted == (first, DEAD, None, False)
        await scene.take_key("other")
        assert await scene.in_bulk("discard") == BulkStep(1, 0)
        assert await scene.states([first, second]) == [None, None]

    play(grounds, story)


# --- a kept row


@pytest.mark.parametrize(("verb", "after"), [("retry", READY), ("discard", None)])
def test_a_dead_letter_that_somebody_holds(
    grounds: ScratchSchema, verb: Verb, after: int | None
) -> None:
    async def story(scene: Scene) -> None:
        first, held, third = ids = await scene.bury(None, "k", None)
        await scene.hold(HOLD_KEPT, held)
        action, note = ACTION_OF_VERB[verb], AuditNote(who="kim")
        acted = await scene.operator.act([held, first], action, note=note)
        assert acted == [(held, DEAD, DEAD, True), (first, DEAD, after, False)]
        assert await scene.in_bulk(verb) == BulkStep(1, 1)
        assert await scene.states(ids) == [after, DEAD, after]
        await scene.caller.execute("rollback")
        assert await scene.in_bulk(verb) == BulkStep(1, 0)
        assert await scene.states([third, held]) == [after, after]

    play(grounds, story, call_seconds=SHORT)


# --- a run row, as by a task's own transaction whose commit takes long


def test_a_cancel_asks_the_other_running_jobs_to_stop(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        claims = await scene.run([job(), job(), job()])
        first, held, third = (claim.id for claim in claims)
        await scene.hold(HOLD_RUN, held)
        acted = await scene.operator.act(
            [held, first], CancelJobs(), note=AuditNote(who="kim")
        )
        expected = [(held, RUNNING, RUNNING, True), (first, RUNNING, RUNNING, False)]
        assert acted == expected
        assert await asked_to_stop(scene) == {first}
        query = Query(namespace=SHOP, states=(SCHEDULED, READY, RUNNING))
        assert await scene.in_bulk("cancel", query) == BulkStep(1, 1)
        assert await asked_to_stop(scene) == {first, third}
        written = [line.jobs for line in await scene.other.audit(SHOP, limit=10)]
        assert sorted(written) == [0, 1, 1]
        await scene.caller.execute("rollback")
        assert await scene.in_bulk("cancel", query) == BulkStep(1, 0)
        assert await asked_to_stop(scene) == {first, held, third}

    async def asked_to_stop(scene: Scene) -> set[bytes]:
        renewed = await scene.other.renew(scene.worker, 60.0)
        return {job_id for job_id, _ in renewed.cancels}

    play(grounds, story, call_seconds=SHORT)


@pytest.mark.parametrize("ends", ["alone", "with another's end"])
def test_progress_waits_for_nobody(grounds: ScratchSchema, ends: str) -> None:
    """A worker has one exchange in flight: all its jobs would wait. It is not refused."""

    async def story(scene: Scene) -> None:
        held, other, third = await scene.run([job(), job(), job()])
        await scene.hold(HOLD_RUN, held.id)
        notes = [
            Outcome(c.id, c.claim_no, OutcomeKind.PROGRESS, progress=b"{}")
            for c in (held, other)
        ]
        if ends != "alone":
            notes.append(Outcome(third.id, third.claim_no, OutcomeKind.DONE))
        answer = await scene.operator.exchange(scene.worker, notes, [Lane(LANE, 9)], 9)
        assert answer.rejected == []
        noted = {r.id: r.progress for r in await scene.other.get([held.id, other.id])}
        assert noted == {held.id: None, other.id: b"{}"}

    play(grounds, story, call_seconds=SHORT)


def test_the_mark_of_a_job_that_runs_alone_is_waited_for(
    grounds: ScratchSchema,
) -> None:
    """Without it the job does not begin, and nobody would ask again."""

    async def story(scene: Scene) -> None:
        (held,) = await scene.run([job()])
        await scene.hold(HOLD_RUN, held.id)
        mark = Outcome(held.id, held.claim_no, OutcomeKind.ALONE)
        with pytest.raises(StoreUnavailable):
            await scene.operator.exchange(scene.worker, [mark], (), 0)
        await scene.caller.execute("rollback")
        assert (
            await scene.operator.exchange(scene.worker, [mark], (), 0)
        ).rejected == []
        rows = await scene.caller.fetch("select alone from durio.run")
        assert [row["alone"] for row in rows] == [True]

    play(grounds, story, call_seconds=SHORT)


# --- what is told


def test_whoever_holds_a_handle_is_told(
    grounds: ScratchSchema, postgres: PostgresServer
) -> None:
    async def story(scene: Scene) -> None:
        (dead,) = await scene.bury("k")
        (running,) = await scene.run([job()])
        await scene.take_key("k")
        await scene.hold(HOLD_RUN, running.id)
        async with App(postgres.url(call_timeout=str(SHORT)), name=SHOP) as app:
            letter = await app.job(str(UUID(bytes=dead)))
            with pytest.raises(StoreUnavailable, match="transaction holds it or its k"):
                await letter.retry()
            with pytest.raises(StoreUnavailable, match="is running, and an open trans"):
                await (await app.job(str(UUID(bytes=running.id)))).cancel()
            await scene.caller.execute("commit")
            with pytest.raises(WrongState, match="another job has its idempotency key"):
                await letter.retry()

    play(grounds, story)


def test_a_command_line_tells_what_was_not_done(
    grounds: ScratchSchema, postgres: PostgresServer, tmp_path: Path
) -> None:
    shell = Terminal(tmp_path)
    place = ("--store", postgres.url(call_timeout=str(SHORT)), "--name", SHOP)

    async def ask(*args: str, code: int = 0) -> Any:
        return await asyncio.to_thread(shell.json, *args, *place, code=code)

    async def say(*args: str) -> str:
        return await asyncio.to_thread(shell.ok, *args, *place)

    async def story(scene: Scene) -> None:
        dead, _ = await scene.bury("k", "free")
        waiting = NewJob(
            *(clock.new_id(), LANE, 4, TASK, PAYLOAD),
            key=key_claim(while_waiting, TASK, "w", PAYLOAD),
        )
        await scene.other.enqueue([waiting, job()])
        await scene.take_key("k")
        again = waiting._replace(id=clock.new_id())
        assert not (await scene.other.enqueue([again], tx=scene.caller))[0].created
        letter, name = str(UUID(bytes=dead)), str(UUID(bytes=waiting.id))

        (one,) = (await ask("jobs", "cancel", name, code=1))["jobs"]
        assert (one["ok"], one["state"]) == (False, "ready")
        assert "an open transaction holds it" in one["error"]["what"]
        (one,) = (await ask("dead", "retry", letter, code=1))["jobs"]
        assert (one["ok"], one["state"]) == (False, "dead")
        assert "an open transaction holds it or its key" in one["error"]["what"]

        queue = LANE.partition(":")[2]
        moved = await ask("queues", "move", queue, "new", "--create", "--yes")
        assert moved == {"counted": 2, "done": 1, "held": 1, "dry_run": False}
        purged = await say("queues", "purge", queue, "--yes")
        tail = "; 1 not: an open transaction holds it"
        assert purged == f"no waiting jobs cancelled{tail}\n"
        sent = await say("dead", "retry", "--all", "--yes")
        assert sent == f"1 dead letter run again{tail} or its key\n"
        sent = await ask("dead", "retry", "--all", "--yes")
        assert sent == {
            "counted": 1,
            "done": 0,
            "held": 1,
            "alone": 0,
            "dry_run": False,
        }

        await scene.caller.execute("rollback")
        purged = await say("queues", "purge", queue, "--yes")
        assert purged == "2 waiting jobs cancelled\n"
        assert await scene.states([waiting.id]) == [CANCELLED]

    play(grounds, story)
