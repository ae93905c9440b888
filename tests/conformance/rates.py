"""What a store promises about gates with a rate: how many jobs pass in any time."""

from collections.abc import Sequence
from itertools import cycle

from durio.model.effects import Effects
from durio.model.gate import GateChange, GateSpec
from durio.model.job import BLOCKED, READY
from durio.model.outcome import OutcomeKind
from durio.ports.control import CancelJobs
from tests.conformance.promises import Chapter
from tests.conformance.scene import MANY, Scene, outcome

chapter = Chapter("rates")
NAME = "5r:mail"
ROUNDING = 1e-3  # of a token, and of a second


def rate(
    per_second: float, burst: float = 1.0, **fields: object
) -> tuple[GateSpec, ...]:
    """Return the gates of a job with one gate."""
    spec = GateSpec(NAME, rate=per_second, burst=burst)
    return (spec._replace(**fields),)  # pyright: ignore[reportArgumentType]


async def passed(scene: Scene) -> int:
    """Let jobs pass that may, and end them; return how many there were."""
    await scene.settle()
    ready = [job.id for job in await scene.records() if job.state == READY]
    await scene.store.act(ready, CancelJobs())
    return len(ready)


async def change(scene: Scene, **fields: object) -> None:
    effects = Effects(gates=[GateChange(NAME)._replace(**fields)])  # pyright: ignore[reportArgumentType]
    assert (await scene.store.commit(effects)).conflict is None


def check_windows(times: Sequence[float], per_second: float, burst: float) -> None:
    """Check that no window holds more passes than the burst and what its time allows."""
    for n, start in enumerate(times):
        for more, end in enumerate(times[n:], 1):
            assert more <= burst + per_second * (end - start) + ROUNDING


@chapter.promise("M71")
async def a_rate_lets_one_pass_after_the_other(scene: Scene) -> None:
    """In the order of their arrival; the store knows when the next one may pass."""
    ids = await scene.add_many(3, gates=rate(0.5))
    for n, job_id in enumerate(ids):
        assert await scene.state(job_id) == READY
        await scene.store.act([job_id], CancelJobs())
        due = (await scene.store.settle(9)).next_due_seconds
        if n == 2:
            assert due is None
            continue
        assert due is not None
        assert abs(due - 2.0) < ROUNDING
        scene.clock.advance(1.9)
        await scene.settle()
        assert await scene.state(ids[n + 1]) == BLOCKED
        scene.clock.advance(0.1)
        await scene.settle()
    assert (await scene.gates())[NAME].waiting == 0


@chapter.promise("M71")
async def no_window_has_more_than_the_rate(scene: Scene) -> None:
    """Whenever jobs arrive, and however often one looks; none waits longer than needed."""
    arrivals, pauses = cycle((0, 1, 7, 0, 2, 0, 1)), cycle((0.05, 0.3, 4.0, 0.5, 1.0))
    per_second, burst, total = 2.0, 3.0, 60
    times: list[float] = []
    sent = 0
    while len(times) < total:
        some = min(next(arrivals), total - sent)
        if some:
            await scene.add_many(some, gates=rate(per_second, burst))
        sent += some
        count = await passed(scene)
        times += [scene.clock.now()] * count
        waiting = (await scene.gates())[NAME].waiting if sent else 0
        assert waiting == sent - len(times)
        scene.clock.advance(next(pauses))
    check_windows(times, per_second, burst)


@chapter.promise()
async def many_that_wait_pass_at_the_full_rate(scene: Scene) -> None:
    """A queue that waits loses no token."""
    await scene.add_many(100, gates=rate(10.0, 5.0))
    count = await passed(scene)
    for _ in range(40):
        scene.clock.advance(0.25)
        count += await passed(scene)
    assert count == 100


@chapter.promise("M71")
async def a_downtime_brings_no_more_than_the_burst(scene: Scene) -> None:
    """Tokens of an idle time are lost."""
    await scene.add_many(50, gates=rate(1.0, 5.0))
    assert await passed(scene) == 5
    scene.clock.advance(1000.0)
    assert await passed(scene) == 5
    scene.clock.advance(2.0)
    assert await passed(scene) == 2


@chapter.promise()
async def a_gate_that_was_not_used_is_full(scene: Scene) -> None:
    """At first, and after a time of rest."""
    for _ in range(2):
        await scene.add_many(3, gates=rate(1.0, 3.0))
        assert await passed(scene) == 3
        scene.clock.advance(100.0)


@chapter.promise("M71")
async def a_changed_rate_holds_at_once(scene: Scene) -> None:
    """The time before counts at the old rate."""
    await scene.add_many(50, gates=rate(0.1))
    assert await passed(scene) == 1
    scene.clock.advance(5.0)  # half a token
    await change(scene, rate=2.0)
    assert await passed(scene) == 0
    scene.clock.advance(0.25)
    assert await passed(scene) == 1
    await change(scene, burst=4.0)
    scene.clock.advance(100.0)
    assert await passed(scene) == 4
    await change(scene, rate=0.5)
    scene.clock.advance(1.9)
    assert await passed(scene) == 0
    scene.clock.advance(0.1)
    assert await passed(scene) == 1
    await change(scene, rate=None)
    assert await passed(scene) == 43


@chapter.promise()
async def cost_is_taken_from_the_tokens(scene: Scene) -> None:
    """In order: a job that costs more than there is holds up those behind it."""
    costs = (4.0, 3.0, 1.0, 0.0)
    ids = [await scene.add(gates=rate(1.0, 5.0, cost=cost)) for cost in costs]
    found = await scene.store.states(ids)
    assert [found[each] for each in ids] == [READY, BLOCKED, BLOCKED, BLOCKED]
    scene.clock.advance(1.9)
    await scene.settle()
    assert await scene.state(ids[1]) == BLOCKED
    scene.clock.advance(0.1)
    await scene.settle()
    found = await scene.store.states(ids)
    assert [found[each] for each in ids] == [READY, READY, BLOCKED, BLOCKED]
    scene.clock.advance(1.0)
    await scene.settle()
    assert set((await scene.store.states(ids)).values()) == {READY}


@chapter.promise()
async def tokens_are_added_and_taken(scene: Scene) -> None:
    """A budget is settled so; below zero it recovers first."""
    gates = rate(1.0, 10.0, cost=6.0)
    worker, claim = await scene.running(gates=gates)
    waiting = await scene.add(gates=gates)
    spent = Effects(gates=[GateChange(NAME, add=3.0)])
    answer = await scene.exchange(worker, [outcome(claim, effects=spent)], 9)
    assert [each.id for each in answer.claims] == [waiting]
    assert abs((await scene.gates())[NAME].tokens - 1.0) < ROUNDING
    await change(scene, add=-8.0)
    assert abs((await scene.gates())[NAME].tokens + 7.0) < ROUNDING
    late = await scene.add(gates=rate(1.0, 10.0, cost=2.0))
    scene.clock.advance(8.0)
    await scene.settle()
    assert await scene.state(late) == BLOCKED
    scene.clock.advance(1.0)
    await scene.settle()
    assert await scene.state(late) == READY
    scene.clock.advance(100.0)
    await change(scene, add=100.0)
    assert (await scene.gates())[NAME].tokens == 10.0


@chapter.promise()
async def a_cost_above_a_lowered_burst_passes_when_the_bucket_is_full(
    scene: Scene,
) -> None:
    """It takes its whole cost: those behind it wait longer."""
    await scene.add(gates=rate(1.0, 10.0, cost=10.0))
    large = await scene.add(gates=rate(1.0, 10.0, cost=10.0))
    await change(scene, burst=2.0)
    small = await scene.add(gates=rate(1.0))
    scene.clock.advance(2.0)
    await scene.settle()
    assert await scene.state(large) == READY
    assert await scene.state(small) == BLOCKED
    scene.clock.advance(8.5)
    await scene.settle()
    assert await scene.state(small) == BLOCKED
    scene.clock.advance(0.5)
    await scene.settle()
    assert await scene.state(small) == READY


@chapter.promise()
async def a_gate_can_have_places_and_a_rate(scene: Scene) -> None:
    """Both have to allow it; a place that is free takes no token until a job passes."""
    ids = await scene.add_many(3, gates=rate(1.0, 2.0, cap=1))
    worker = await scene.worker()
    (claim,) = await scene.claim(worker, 9)
    scene.clock.advance(10.0)
    await scene.settle()
    assert await scene.state(ids[1]) == BLOCKED
    answer = await scene.exchange(worker, [outcome(claim)], 9)
    (claim,) = answer.claims
    await scene.exchange(worker, [outcome(claim)], 9)
    assert await scene.used(NAME) == 1
    assert abs((await scene.gates())[NAME].tokens) < ROUNDING


@chapter.promise()
async def a_retry_with_a_delay_takes_another_token(scene: Scene) -> None:
    """One that goes back at once does not: it has passed."""
    worker, claim = await scene.running(gates=rate(0.01))
    retry = outcome(claim, OutcomeKind.RETRY)
    (claim,) = (await scene.exchange(worker, [retry], 9)).claims
    retry = outcome(claim, OutcomeKind.RETRY, delay_seconds=10.0)
    await scene.exchange(worker, [retry], 0)
    scene.clock.advance(11.0)
    await scene.store.promote(9)
    await scene.settle()
    assert await scene.state(claim.id) == BLOCKED
    scene.clock.advance(89.0)
    await scene.settle()
    assert await scene.state(claim.id) == READY


@chapter.promise()
async def a_clock_that_is_set_back_stops_no_gate(scene: Scene) -> None:
    """Tokens come again from that time on."""
    await scene.add_many(3, gates=rate(1.0))
    assert await passed(scene) == 1
    scene.clock.step(-1000.0)
    scene.clock.advance(1.0)
    await scene.add(gates=rate(1.0))
    count = await passed(scene)
    scene.clock.advance(1.0)
    assert count + await passed(scene) in (1, 2)


@chapter.promise("M98", needs=("fault",))
async def a_fault_at_any_statement_takes_no_token(scene: Scene) -> None:
    """Afterwards the same call lets the job pass."""
    await scene.add_many(2, gates=rate(1.0, 2.0))
    job = scene.job(gates=rate(1.0, 2.0))
    await scene.after_every_fault(lambda: scene.store.enqueue([job]))
    scene.clock.advance(1.0)
    effects = Effects(gates=[GateChange(NAME, add=-0.5)])
    await scene.after_every_fault(lambda: scene.store.commit(effects))
    assert await scene.state(job.id) == BLOCKED
    scene.clock.advance(0.5)
    await scene.after_every_fault(lambda: scene.store.settle(MANY))
    assert await scene.state(job.id) == READY
