"""What a store promises about claims, and about outcomes and claims in one call."""

import asyncio

from durio.model.job import CANCELLED, DEAD, DONE, READY, RUNNING, SCHEDULED, Claim
from durio.model.outcome import KeepRule, Outcome, OutcomeKind
from durio.ports.control import CancelJobs, RetryJobs
from durio.ports.exchange import Lane, Rejected
from tests.conformance.promises import Chapter
from tests.conformance.scene import (
    LANE,
    LEASE_SECONDS,
    MANY,
    PAYLOAD,
    TASK,
    Scene,
    outcome,
)

chapter = Chapter("exchange")


@chapter.promise("M109")
async def claims_are_exclusive(scene: Scene) -> None:
    """Eight workers in two processes claim 200 jobs; each job is claimed once."""
    ids = await scene.add_many(200)
    stores = (scene.store, await scene.other())
    workers = [await scene.worker() for _ in range(8)]

    async def drain(n: int) -> list[Claim]:
        held: list[Claim] = []
        while True:
            exchanged = await stores[n % 2].exchange(workers[n], [], [Lane(LANE, 7)], 7)
            if not exchanged.claims:
                return held
            held += exchanged.claims

    hands = await asyncio.gather(*(drain(n) for n in range(8)))
    claimed = [claim.id for held in hands for claim in held]
    assert sorted(claimed) == sorted(ids)
    for worker, held in zip(workers, hands, strict=True):
        records = await scene.store.get([claim.id for claim in held])
        assert {record.worker for record in records} <= {worker}


@chapter.promise("M52", "M53")
async def order_is_priority_then_first_in_first_out(scene: Scene) -> None:
    """Priority 9 comes first; within a priority, jobs of a producer come in their order."""
    sent: dict[int, list[list[bytes]]] = {rank: [[], []] for rank in range(10)}
    stores = (scene.store, await scene.other())
    for n in range(60):
        producer, priority = n % 2, (n * 7) % 10
        job = scene.job(priority=priority)
        await stores[producer].enqueue([job])
        sent[9 - priority][producer].append(job.id)
    worker = await scene.worker()
    claims: list[Claim] = []
    while some := await scene.claim(worker, 7):
        claims += some
    assert [claim.rank for claim in claims] == sorted(claim.rank for claim in claims)
    assert len(claims) == 60
    for producers in sent.values():
        for ids in producers:
            assert [claim.id for claim in claims if claim.id in ids] == ids


@chapter.promise("M18")
async def a_claim_carries_the_job_and_its_fence(scene: Scene) -> None:
    """It has everything that a worker needs to run the job."""
    job_id = await scene.add(priority=9, opts=b'{"key":"k"}')
    scene.clock.advance(3.0)
    worker, claim = await scene.claim_one()
    opts = b'{"key":"k"}'
    wanted = Claim(job_id, 1, LANE, 0, TASK, PAYLOAD, 0, 0, 0, 0, opts, None)
    assert claim == wanted
    record = await scene.record(job_id)
    assert (record.state, record.worker, record.claim_no) == (RUNNING, worker, 1)
    assert record.started_at == scene.clock.now()


@chapter.promise()
async def lanes_are_served_in_order_up_to_their_limits(scene: Scene) -> None:
    """`want` limits the sum, each limit its lane; `more` says that there may be more."""
    high = await scene.add_many(3, lane="shop:high")
    low = await scene.add_many(3, lane="shop:low", priority=9)
    worker = await scene.worker()
    lanes = [Lane("shop:high", 2), Lane("shop:none", 5), Lane("shop:low", 5)]
    exchanged = await scene.store.exchange(worker, [], lanes, 4)
    assert [claim.id for claim in exchanged.claims] == [*high[:2], *low[:2]]
    assert exchanged.more
    exchanged = await scene.store.exchange(worker, [], lanes, 50)
    assert [claim.id for claim in exchanged.claims] == [high[2], low[2]]
    assert not exchanged.more


@chapter.promise()
async def a_lane_may_come_twice(scene: Scene) -> None:
    """First come the shares, then every lane again for what others could not give."""
    high = await scene.add_many(1, lane="shop:high")
    low = await scene.add_many(5, lane="shop:low")
    worker = await scene.worker()
    shares = [Lane("shop:high", 3), Lane("shop:low", 1)]
    rest = [Lane("shop:high", 1), Lane("shop:low", 3)]
    exchanged = await scene.store.exchange(worker, [], [*shares, *rest], 4)
    assert [claim.id for claim in exchanged.claims] == [*high, *low[:3]]


@chapter.promise()
async def asking_for_nothing_claims_nothing(scene: Scene) -> None:
    """Without lanes, want and outcomes the result is empty."""
    await scene.add()
    worker = await scene.worker()
    for lanes, want in (([], 5), ([Lane(LANE, 5)], 0), ([Lane(LANE, 0)], 5)):
        exchanged = await scene.store.exchange(worker, [], lanes, want)
        assert (exchanged.claims, exchanged.rejected) == ([], [])


@chapter.promise()
async def finishing_and_claiming_are_one_call(scene: Scene) -> None:
    """Outcomes are recorded, and jobs that they make ready may be claimed at once."""
    await scene.add_many(3)
    worker = await scene.worker()
    first, second = await scene.claim(worker, 2)
    words = [outcome(first, result=b"1"), outcome(second, OutcomeKind.RELEASE)]
    exchanged = await scene.exchange(worker, words, 2)
    assert (exchanged.rejected, exchanged.cancelled) == ([], [])
    again, third = exchanged.claims
    assert (again.id, again.claim_no, third.claim_no) == (second.id, 2, 1)
    assert await scene.state(first.id) == DONE


@chapter.promise("M112")
async def one_refused_outcome_spoils_no_other(scene: Scene) -> None:
    """Each outcome is checked by its own fence."""
    worker = await scene.worker()
    await scene.add_many(3)
    claims = await scene.claim(worker, 3)
    stale = claims[1]._replace(claim_no=7)
    words = [outcome(claims[0]), outcome(stale), outcome(claims[2])]
    exchanged = await scene.exchange(worker, words)
    assert [r[:2] for r in exchanged.rejected] == [(stale.id, 7)]
    states = await scene.store.states([claim.id for claim in claims])
    assert [states[claim.id] for claim in claims] == [DONE, RUNNING, DONE]


@chapter.promise("M112")
async def the_fence_only_grows(scene: Scene) -> None:
    """This holds for retry, snooze, release, loss, death and an operator's retry."""
    job_id = await scene.add()
    ways = (
        OutcomeKind.RETRY,
        OutcomeKind.SNOOZE,
        OutcomeKind.RELEASE,
        OutcomeKind.LOST,
        OutcomeKind.DEAD,
        OutcomeKind.CANCEL,
    )
    for number, kind in enumerate(ways, start=1):
        worker, claim = await scene.claim_one()
        assert claim.claim_no == number
        if kind is OutcomeKind.LOST:
            await scene.lose(worker)
        else:
            await scene.finish(worker, claim, kind=kind, reason="permanent")
        await scene.store.act([job_id], RetryJobs())
        assert (await scene.record(job_id)).claim_no == number


@chapter.promise("M28")
async def due_jobs_are_promoted_by_the_exchange_itself(scene: Scene) -> None:
    """Each is promoted at its time, in the order of due times, without any upkeep."""
    worker = await scene.worker(lease_seconds=1000.0)
    late, early, next_one = [await scene.add(delay=d) for d in (30.0, 10.0, 10.25)]
    for wait, due in ((9.75, None), (0.25, early), (0.25, next_one), (19.75, late)):
        scene.clock.advance(wait)
        claims = await scene.claim(worker, MANY)
        assert [claim.id for claim in claims] == ([] if due is None else [due])


@chapter.promise("M28")
async def priority_decides_between_jobs_that_are_due(scene: Scene) -> None:
    """A delayed job does not precede one that has waited in the queue."""
    worker = await scene.worker(lease_seconds=1000.0)
    delayed = await scene.add(delay=10.0, priority=1)
    urgent = await scene.add(delay=20.0, priority=9)
    plain = await scene.add()
    scene.clock.advance(60.0)
    claims = await scene.claim(worker, MANY)
    assert [claim.id for claim in claims] == [urgent, plain, delayed]


@chapter.promise("M28")
async def the_answer_says_when_the_next_job_is_due(scene: Scene) -> None:
    """It is about these lanes only; None if no job is scheduled."""
    worker = await scene.worker()
    assert (await scene.exchange(worker)).next_due_seconds is None
    await scene.add(delay=5.0, lane="shop:other")
    await scene.add(delay=20.0)
    assert (await scene.exchange(worker)).next_due_seconds == 20.0
    await scene.add(delay=10.0)
    scene.clock.advance(2.5)
    assert (await scene.exchange(worker)).next_due_seconds == 7.5
    scene.clock.advance(7.5)
    exchanged = await scene.exchange(worker)
    assert (len(exchanged.claims), exchanged.next_due_seconds) == (1, 10.0)


@chapter.promise("M112")
async def a_worker_whose_lease_is_over_claims_nothing(scene: Scene) -> None:
    """An unknown worker claims nothing either; jobs that were not rescued may be finished."""
    worker, claim = await scene.running()
    job_id = await scene.add()
    scene.clock.advance(LEASE_SECONDS + 0.25)
    assert await scene.claim(worker) == []
    assert await scene.claim(worker + 1000) == []
    assert await scene.is_ready(job_id)
    exchanged = await scene.exchange(worker, [outcome(claim)])
    assert (exchanged.claims, exchanged.rejected) == ([], [])
    assert await scene.state(claim.id) == DONE


@chapter.promise()
async def a_worker_can_claim_only_what_it_knows(scene: Scene) -> None:
    """Jobs of unknown tasks stay for others and do not block the jobs behind them."""
    strange = await scene.add_many(5, task="shop.new", priority=9)
    plain = await scene.add_many(2)
    worker = await scene.worker()
    claims = await scene.claim(worker, 5, known=[TASK, "shop.old"])
    assert [claim.id for claim in claims] == plain
    assert await scene.claim(worker, 5, known=[]) == []
    assert [claim.id for claim in await scene.claim(worker, 5)] == strange


@chapter.promise("M21")
async def known_tasks_may_be_all_that_begin_so(scene: Scene) -> None:
    """A name that ends in `*` is a prefix; its other characters mean themselves."""
    tasks = (
        "shop.email:a",
        "shop.email:",
        "shop.emailXb",
        "shop.mail_a",
        "shop.mailXa",
        TASK,
    )
    ids = [await scene.add(task=task) for task in tasks]
    worker = await scene.worker()
    claims = await scene.claim(worker, 9, known=["shop.email:*", "shop.mail_*"])
    assert [claim.id for claim in claims] == [ids[0], ids[1], ids[3]]
    claims = await scene.claim(worker, 9, known=["shop.email*", TASK])
    assert [claim.id for claim in claims] == [ids[2], ids[5]]
    assert [claim.id for claim in await scene.claim(worker, 9, known=["shop.*"])] == [
        ids[4]
    ]


@chapter.promise()
async def an_unknown_task_is_parked_without_an_attempt(scene: Scene) -> None:
    """It is released with a delay, uncharged, and stays in its lane."""
    worker, claim = await scene.running(task="shop.new")
    await scene.exchange(
        worker, [outcome(claim, OutcomeKind.RELEASE, delay_seconds=5.0)]
    )
    record = await scene.record(claim.id)
    assert (record.state, record.run_at) == (SCHEDULED, scene.clock.now() + 5)
    assert (record.retried, record.losses, record.lost) == (0, 0, 0)
    scene.clock.advance(5.0)
    (again,) = await scene.claim(worker)
    assert (again.id, again.claim_no) == (claim.id, 2)


# --- unknown outcomes


@chapter.promise("M98")
async def an_exchange_repeated_after_a_lost_reply_is_idempotent(scene: Scene) -> None:
    """The outcomes are refused as already stored, and the unseen claims are returned again."""
    worker = await scene.worker()
    await scene.add_many(8)
    done, retried, snoozed = await scene.claim(worker, 3)
    words = [
        outcome(done, result=b"1"),
        outcome(retried, OutcomeKind.RETRY, delay_seconds=60.0),
        outcome(snoozed, OutcomeKind.SNOOZE, delay_seconds=60.0),
    ]
    hidden = (await scene.exchange(worker, words, 2)).claims
    before = await scene.records()
    repeated = await scene.exchange(worker, words, 0, resync=True)
    assert repeated.rejected == [
        Rejected(c.id, 1, True) for c in (done, retried, snoozed)
    ]
    assert repeated.claims == hidden
    assert await scene.records() == before


@chapter.promise("M98")
async def a_resync_finds_all_that_runs_here_and_may_claim_more(scene: Scene) -> None:
    """Every job is returned once, with the fence of its claim."""
    worker, another = await scene.worker(), await scene.worker()
    await scene.add_many(9)
    held = await scene.claim(worker, 3)
    await scene.claim(another, 3)
    claims = await scene.claim(worker, 2, resync=True)
    assert len(claims) == len({claim.id for claim in claims}) == 5
    assert {(c.id, c.claim_no) for c in held} <= {(c.id, c.claim_no) for c in claims}
    assert all(claim.claim_no == 1 for claim in claims)


@chapter.promise("M112")
async def landed_or_fenced(scene: Scene) -> None:
    """A repeated outcome that was stored is told from one that came too late."""
    landed_worker, landed = await scene.running()
    await scene.finish(landed_worker, landed)
    fenced_worker, fenced = await scene.running()
    await scene.lose(fenced_worker)
    elsewhere, again = await scene.claim_one()
    await scene.finish(elsewhere, again)
    first = await scene.exchange(landed_worker, [outcome(landed)])
    second = await scene.exchange(fenced_worker, [outcome(fenced)])
    assert first.rejected == [Rejected(landed.id, 1, True)]
    assert second.rejected == [Rejected(fenced.id, 1, False)]
    assert (
        await scene.store.exchange(landed_worker, [outcome(landed)], (), 0)
    ).rejected == first.rejected
    # A lost lease changes nothing about outcomes that were stored before.
    await scene.lose(landed_worker)
    third = await scene.exchange(landed_worker, [outcome(landed)])
    assert third.rejected == [Rejected(landed.id, 1, True)]


@chapter.promise("M112")
async def an_end_that_left_no_trace_had_landed(scene: Scene) -> None:
    """With retention zero the job is deleted; its worker is alive, so it was not fenced."""
    worker, claim = await scene.running()
    word = outcome(claim, keep=KeepRule(0.0))
    assert (await scene.exchange(worker, [word])).rejected == []
    repeated = await scene.exchange(worker, [word])
    assert repeated.rejected == [Rejected(claim.id, 1, True)]


@chapter.promise("M112")
async def a_retry_of_a_fenced_worker_did_not_land(scene: Scene) -> None:
    """The job waits again in both cases; only the outcome of a live worker was stored."""
    worker, claim = await scene.running()
    await scene.lose(worker)
    for kind in (OutcomeKind.RETRY, OutcomeKind.SNOOZE, OutcomeKind.RELEASE):
        exchanged = await scene.exchange(worker, [outcome(claim, kind)])
        assert exchanged.rejected == [Rejected(claim.id, 1, False)]


@chapter.promise("M112")
async def a_zombies_success_did_not_land_in_a_death_by_loss(scene: Scene) -> None:
    """The job is final under the same fence, but not by this worker's outcome."""
    worker, claim = await scene.running()
    for _ in range(2):
        await scene.lose(worker)
        worker, claim = await scene.claim_one()
    await scene.finish(worker, claim, kind=OutcomeKind.ALONE)
    await scene.lose(worker)
    assert await scene.state(claim.id) == DEAD
    exchanged = await scene.exchange(worker, [outcome(claim, result=b"1")])
    assert exchanged.rejected == [Rejected(claim.id, 3, False)]
    assert (await scene.record(claim.id)).result is None


# --- a fault at every statement


async def a_full_table(scene: Scene) -> tuple[int, list[Outcome]]:
    """Make every kind of outcome, a due job, a requested cancel, and jobs to claim."""
    worker = await scene.worker()
    await scene.add_many(8)
    claims = await scene.claim(worker, 8)
    await scene.store.act([claims[6].id], CancelJobs())
    kinds = (
        OutcomeKind.DONE,
        OutcomeKind.RETRY,
        OutcomeKind.SNOOZE,
        OutcomeKind.RELEASE,
        OutcomeKind.DEAD,
        OutcomeKind.CANCEL,
    )
    words = [
        outcome(claim, kind, delay_seconds=5.0, reason="permanent", error=b"{}")
        for claim, kind in zip(claims, kinds, strict=False)
    ]
    words += [
        outcome(claims[6], OutcomeKind.RETRY),
        outcome(claims[7], OutcomeKind.PROGRESS, progress=b'{"done":1}'),
        outcome(claims[7], OutcomeKind.ALONE),
        outcome(claims[7]._replace(claim_no=9)),
    ]
    await scene.add_many(3)
    await scene.add(delay=1.0)
    scene.clock.advance(1.0)
    return worker, words


@chapter.promise("M98", needs=("fault",))
async def a_fault_at_any_statement_changes_nothing(scene: Scene) -> None:
    """All of an exchange is written or nothing; afterwards the same exchange succeeds."""
    worker, words = await a_full_table(scene)
    exchanged = await scene.after_every_fault(lambda: scene.exchange(worker, words))
    assert len(exchanged.claims) == 4
    assert len(exchanged.rejected) == 1
    assert exchanged.cancelled == [words[6].id]
    states = await scene.store.states([word.id for word in words[:8]])
    waits = [SCHEDULED] * 3
    wanted = [DONE, *waits, DEAD, CANCELLED, CANCELLED, RUNNING]
    assert [states[word.id] for word in words[:8]] == wanted


@chapter.promise()
async def a_cancelled_call_gives_the_next_one_its_own_answer(scene: Scene) -> None:
    """The caller of an exchange is cancelled; its unseen claims are returned by a resync."""
    worker = await scene.worker()
    ids = await scene.add_many(6)
    for _ in range(3):
        call = asyncio.get_running_loop().create_task(scene.claim(worker, 1))
        await asyncio.wait([call], timeout=0)
        call.cancel()
        await asyncio.wait([call])
        assert await scene.store.states(ids[:1]) in ({ids[0]: READY}, {ids[0]: RUNNING})
    claims = await scene.claim(worker, MANY, resync=True)
    assert sorted(claim.id for claim in claims) == sorted(ids)
