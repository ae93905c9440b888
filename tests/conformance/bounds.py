"""What a store promises about bounded queues: exact bounds, whole calls, free retries."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from durio.model.job import READY, SCHEDULED
from durio.model.keys import replace, while_active, window
from durio.model.outcome import OutcomeKind
from durio.ports.control import CancelJobs, RetryJobs
from durio.ports.enqueue import Enqueued, Full
from durio.ports.upkeep import Orphans
from tests.bulk_actions import move_waiting
from tests.conformance.promises import Chapter
from tests.conformance.scene import (
    LANE,
    MANY,
    OTHER_PAYLOAD,
    SHOP,
    TASK,
    Scene,
    key,
    outcome,
)
from tests.job_counts import count_jobs

chapter = Chapter("bounds")

MAIL = "shop:mail"
BOUND = 3


async def depth(scene: Scene, lane: str = LANE) -> int:
    """Return the depth of a bounded lane, from the refusal of a call that can never fit."""
    (row,) = [row for row in await scene.store.queues(SHOP) if row.name == lane]
    assert row.maxsize is not None
    jobs = [scene.job(lane=lane) for _ in range(row.maxsize + 1)]
    answers = await scene.store.enqueue(jobs)
    full = answers[0].full
    assert full is not None
    assert {answer.full for answer in answers} == {full}
    return full.depth


async def check_depth(scene: Scene, lane: str = LANE) -> int:
    """Return the depth, after checking it against the counted jobs."""
    counts = (await count_jobs(scene.store, SHOP)).get(lane, {})
    waiting = counts.get(READY, 0) + counts.get(SCHEDULED, 0)
    assert await depth(scene, lane) == waiting
    return waiting


async def bounded(scene: Scene, jobs: int = 0, bound: int = BOUND) -> list[bytes]:
    """Make a bounded lane with this many jobs."""
    await scene.store.declare({LANE: bound})
    return await scene.add_many(jobs) if jobs else []


def refused(answers: list[Enqueued]) -> list[bool]:
    """Return for each result whether there was no room."""
    return [answer.full is not None for answer in answers]


# --- the bound


@chapter.promise("M35", "M36")
async def a_bound_is_exact(scene: Scene) -> None:
    """The last place is given away; the next job is not stored and gets the depth."""
    await bounded(scene, BOUND - 1)
    await scene.add(delay=60.0)
    before = await scene.everything()
    answer = await scene.send()
    assert answer.full == Full(LANE, BOUND, BOUND)
    assert not answer.created
    assert await scene.everything() == before
    assert await check_depth(scene) == BOUND


@chapter.promise("M36")
async def other_lanes_are_not_asked(scene: Scene) -> None:
    """A full lane does not affect a free one."""
    await bounded(scene, BOUND)
    await scene.add_many(2 * BOUND, lane=MAIL)
    jobs = [scene.job(), scene.job(lane=MAIL)]
    answers = await scene.store.enqueue(jobs, calls=[1, 1])
    assert refused(answers) == [True, False]


@chapter.promise("M36", "M37")
async def a_call_enters_whole_or_not_at_all(scene: Scene) -> None:
    """This holds even if only its last job finds no room, whatever lanes the others have."""
    await bounded(scene, 1)
    jobs = [scene.job(lane=MAIL), *[scene.job() for _ in range(BOUND)]]
    answers = await scene.store.enqueue(jobs)
    assert refused(answers) == [True] * len(jobs)
    assert await scene.store.states([job.id for job in jobs]) == {}
    assert refused(await scene.store.enqueue(jobs[:BOUND])) == [False] * BOUND
    assert await check_depth(scene) == BOUND


@chapter.promise("M36", "M37")
async def a_refused_call_leaves_no_key_behind(scene: Scene) -> None:
    """Its first jobs had room and their keys were free; the keys are free again."""
    await bounded(scene, 1)
    keyed = scene.job(key=key(while_active))
    jobs = [keyed, scene.job(), scene.job(key=key(while_active, text="other"))]
    assert refused(await scene.store.enqueue(jobs)) == [True] * 3
    assert await scene.store.states([job.id for job in jobs]) == {}
    assert await check_depth(scene) == 1
    assert (await scene.send(key=key(while_active))).created


@chapter.promise("M36", "M37")
async def callers_of_one_write_stand_for_themselves(scene: Scene) -> None:
    """Calls that fit are stored; none overtakes one that was refused."""
    await bounded(scene, bound=4)
    sizes = [2, 3, 1, 1]
    jobs = [scene.job() for _ in range(sum(sizes))]
    other = [scene.job(lane=MAIL)]
    answers = await scene.store.enqueue([*jobs, *other], calls=[*sizes, 1])
    assert refused(answers) == [False] * 2 + [True] * 5 + [False]
    assert await check_depth(scene) == 2
    answers = await scene.store.enqueue(jobs[5:], calls=[1, 1])
    assert refused(answers) == [False, False]
    assert await check_depth(scene) == 4


@chapter.promise("M36")
async def two_processes_share_a_bound(scene: Scene) -> None:
    """With many calls at once from two processes, the bound is never exceeded."""
    await bounded(scene, bound=20)
    other = await scene.other()
    jobs = [scene.job() for _ in range(60)]
    calls = [
        (other if n % 2 else scene.store).enqueue([job]) for n, job in enumerate(jobs)
    ]
    answers = [told[0] for told in await asyncio.gather(*calls)]
    assert sum(answer.created for answer in answers) == 20
    assert sum(refused(answers)) == 40
    assert await check_depth(scene) == 20
    stored = await scene.store.states([job.id for job in jobs])
    assert set(stored) == {answer.id for answer in answers if answer.created}


@chapter.promise("M36", needs=("fault",))
async def a_failed_call_leaves_the_depth_as_it_was(scene: Scene) -> None:
    """This holds whichever statement fails."""
    await bounded(scene, bound=4)
    jobs = [scene.job(), scene.job(key=key(while_active)), scene.job()]
    answers = await scene.after_every_fault(
        lambda: scene.store.enqueue(jobs, calls=[1, 1, 1])
    )
    assert refused(answers) == [False] * 3
    assert await check_depth(scene) == 3


# --- what needs no room


@chapter.promise("M37")
async def a_repeat_needs_no_room(scene: Scene) -> None:
    """The reply was lost and the queue is full by now: the stored job is returned."""
    await scene.store.declare({LANE: BOUND})
    jobs = [scene.job() for _ in range(BOUND)]
    await scene.store.enqueue(jobs)
    again = await (await scene.other()).enqueue([*jobs, jobs[0]], again=True)
    assert refused(again) == [False] * (BOUND + 1)
    assert not any(answer.created for answer in again)
    assert (await scene.store.enqueue([*jobs, scene.job()], again=True))[0].full
    assert await check_depth(scene) == BOUND


HELD = {"existing": (while_active, False), "rewritten": (replace, True)}


@chapter.table(HELD, "M37")
async def a_job_answered_by_its_key_needs_no_room(
    scene: Scene, case: tuple[object, bool]
) -> None:
    """Its holder already waits in the same lane."""
    policy, is_rewrite = case
    await bounded(scene, BOUND - 1)
    held = await scene.add(key=key(policy))  # type: ignore[arg-type]
    answer = await scene.send(key=key(policy))  # type: ignore[arg-type]
    assert (answer.id, answer.full, answer.replaced) == (held, None, is_rewrite)
    assert (await scene.send(key=key(window(), text="new"))).full
    assert await check_depth(scene) == BOUND


@chapter.promise("M36", "M37")
async def a_rewrite_into_a_full_lane_is_refused(scene: Scene) -> None:
    """The holder stays unchanged where it was; into a free lane it takes its place along."""
    await bounded(scene, BOUND)
    await scene.store.declare({MAIL: BOUND})
    held = await scene.add(lane=MAIL, key=key(replace))
    before = await scene.everything()
    new = {"key": key(replace, OTHER_PAYLOAD), "payload": OTHER_PAYLOAD}
    assert (await scene.send(**new)).full == Full(LANE, BOUND, BOUND)
    assert await scene.everything() == before
    await scene.claim(await scene.worker())
    assert (await scene.send(**new)).replaced
    assert (await scene.record(held)).lane == LANE
    assert (await check_depth(scene), await check_depth(scene, MAIL)) == (BOUND, 0)
    assert (await scene.send(lane="shop:free", **new)).replaced
    assert await check_depth(scene) == BOUND - 1


# --- what was accepted once


Act = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True)
class SendOutcome:
    """A way back to waiting, by an outcome of the worker."""

    kind: OutcomeKind
    delay: float = 0.0

    async def __call__(self, scene: Scene) -> None:
        """Claim one job, fill the lane, give the job back."""
        worker = await scene.worker()
        (claim,) = await scene.claim(worker)
        await scene.add()
        await scene.finish(worker, claim, kind=self.kind, delay_seconds=self.delay)


async def rescue(scene: Scene) -> None:
    """Rescue the job of a lost worker."""
    worker = await scene.worker()
    await scene.claim(worker)
    await scene.add()
    await scene.lose(worker)


async def leave(scene: Scene) -> None:
    """End the lease of its worker."""
    worker = await scene.worker()
    await scene.claim(worker)
    await scene.add()
    await scene.store.leave(worker)


async def retry_action(scene: Scene) -> None:
    """Retry it as an operator."""
    worker = await scene.worker()
    (claim,) = await scene.claim(worker)
    await scene.finish(worker, claim, kind=OutcomeKind.DEAD, reason="permanent")
    await scene.add()
    await scene.store.act([claim.id], RetryJobs())


BACK: dict[str, Act] = {
    "a retry now": SendOutcome(OutcomeKind.RETRY),
    "a retry later": SendOutcome(OutcomeKind.RETRY, 60.0),
    "a snooze": SendOutcome(OutcomeKind.SNOOZE, 60.0),
    "a release": SendOutcome(OutcomeKind.RELEASE),
    "a rescue": rescue,
    "a worker that leaves": leave,
    "an operator's retry": retry_action,
}


@chapter.table(BACK, "M37")
async def it_enters_a_full_queue(scene: Scene, act: Act) -> None:
    """The lane has one job more than the bound; the next enqueue waits until two have left."""
    await bounded(scene, BOUND)
    await act(scene)
    assert await check_depth(scene) == BOUND + 1
    worker = await scene.worker()
    await scene.claim(worker)
    assert (await scene.send()).full == Full(LANE, BOUND, BOUND)
    await scene.claim(worker)
    assert (await scene.send()).created


@chapter.promise("M37", needs=("forget_worker",))
async def an_orphan_enters_a_full_queue(scene: Scene) -> None:
    """It is not known what happened to its worker."""
    await bounded(scene, BOUND)
    worker = await scene.worker()
    await scene.claim(worker)
    await scene.add()
    assert scene.subject.forget_worker is not None
    await scene.subject.forget_worker(scene.store, worker)
    await scene.store.rescue(MANY, Orphans())
    assert await check_depth(scene) == BOUND + 1


# --- leaving


async def claim(scene: Scene) -> None:
    """Claim one job."""
    await scene.claim(await scene.worker())


async def claim_known(scene: Scene) -> None:
    """Claim one job, as a worker that does not know all tasks."""
    assert await scene.claim(await scene.worker(), known=[TASK])


async def cancel(scene: Scene) -> None:
    """Cancel one waiting job, as an operator."""
    newest = (await scene.records())[0]
    await scene.store.act([newest.id], CancelJobs())


async def move_away(scene: Scene) -> None:
    """Move one job to another queue, as an operator."""
    await move_waiting(scene.store, LANE, MAIL, 1)


LEAVING: dict[str, Act] = {
    "a claim": claim,
    "a claim of known tasks": claim_known,
    "a cancel": cancel,
    "a move": move_away,
}


@chapter.table(LEAVING, "M36")
async def it_makes_room(scene: Scene, act: Act) -> None:
    """There is room for exactly one more job."""
    await bounded(scene, BOUND)
    await act(scene)
    assert await check_depth(scene) == BOUND - 1
    assert [(await scene.send()).created for _ in range(2)] == [True, False]


@chapter.promise("M36")
async def running_and_final_jobs_take_no_room(scene: Scene) -> None:
    """Neither their ends nor their deletion change the depth."""
    await bounded(scene, BOUND, bound=BOUND)
    worker = await scene.worker()
    claims = await scene.claim(worker, MANY)
    await scene.add_many(BOUND)
    kinds = (OutcomeKind.DONE, OutcomeKind.DEAD, OutcomeKind.CANCEL)
    ends = [
        outcome(c, k, reason="permanent") for c, k in zip(claims, kinds, strict=True)
    ]
    assert (await scene.store.exchange(worker, ends, (), 0)).rejected == []
    assert await check_depth(scene) == BOUND
    scene.clock.advance(60 * 86400.0)
    assert await scene.store.prune(MANY, dead_count=0) == BOUND
    assert await check_depth(scene) == BOUND


@chapter.promise("M36")
async def promoting_and_moving_in_keep_the_count(scene: Scene) -> None:
    """A due job is counted once; a move ignores the bound and is counted."""
    await bounded(scene)
    await scene.add_many(2, delay=5.0)
    scene.clock.advance(5.0)
    await scene.store.promote(MANY)
    assert await check_depth(scene) == 2
    await scene.add_many(4, lane=MAIL)
    await move_waiting(scene.store, MAIL, LANE)
    assert await check_depth(scene) == 6
    assert (await scene.send()).full == Full(LANE, 6, BOUND)
