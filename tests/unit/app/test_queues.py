"""Slots, prefetch, weights and strict order, with the real store and virtual time."""

import asyncio
import os
from collections import Counter
from typing import Any

import msgspec
import pytest

from durio import App, Job, State
from durio.app.worker_builder import make_worker
from durio.model.job import Claim
from durio.model.names import lane
from durio.model.settings import Settings
from durio.ports.control import AuditNote, QueueChange
from durio.queues import TIERS, Queue
from durio.worker.worker import Worker
from tests.faults.faulty_store import FaultyStore
from tests.job_counts import count_jobs
from tests.simulation.fake_machine import FakeMachine, TaskSideLoop
from tests.unit.app.app_harness import finished, in_state, reached, virtual, working

pytestmark = pytest.mark.slow  # real processes, servers or seconds

# The bound of a store in memory would refuse a thousand jobs per queue.
ROOMY = {"queue": {"embedded_max": 0}}
SHARES = ("high=6", "default=3", "low=1")
QUEUES = ("high", "default", "low")
ALL = dict.fromkeys(QUEUES, 1000)


class StartRecorder:
    """A task that tells its queue when it starts, and ends when it may."""

    def __init__(self, app: App, *, seconds: float = 0.0, stop_after: int = 0) -> None:
        self.queues: list[str] = []
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()  # at once
        self.ahead: Counter[str] = Counter()  # claimed but unstarted, at most
        self.enough = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.worker: Worker | None = None
        self.app = app
        for queue in QUEUES:
            app.registry.add_queue(Queue(queue))

        @app.task(name="tell")
        async def tell(queue: str) -> None:
            self.look(queue)
            if len(self.queues) == stop_after:
                self.enough.set()
            if seconds:
                await app.clock.sleep(seconds)
            await self.gate.wait()
            self.running[queue] -= 1

        self.tell = tell

    def look(self, queue: str) -> None:
        self.queues.append(queue)
        self.running[queue] += 1
        self.most[queue] = max(self.most[queue], self.running[queue])

    def watch(self, worker: Worker) -> None:
        """See what is held ahead each time that claims came."""
        slots, add = worker.slots, worker.slots.add

        def add_and_look(claims: list[Claim]) -> None:
            add(claims)
            for name, count in self.waiting().items():
                self.ahead[name] = max(self.ahead[name], count)

        self.worker, slots.add = worker, add_and_look  # type: ignore[method-assign]

    def waiting(self) -> Counter[str]:
        """What the worker holds ahead now, by queue."""
        if self.worker is None or not self.worker.started.is_set():
            return Counter()
        return Counter(c.lane.partition(":")[2] for c in self.worker.slots.buffer)

    async def enqueue(self, counts: dict[str, int]) -> list[Job[Any]]:
        jobs: list[Job[Any]] = []
        for queue, count in counts.items():
            calls = self.tell.options(queue=queue)
            jobs += await calls.enqueue_many([(queue,)] * count)
        return jobs

    async def work(self, counts: dict[str, int], **options: Any) -> Counter[str]:
        """Start a worker on so many jobs; the queues of those that started in time."""
        await self.enqueue(counts)
        async with working(self.app, **options) as worker:
            await worker.started.wait()
            self.watch(worker)
            await self.enough.wait()
        return Counter(self.queues)


def change(app: App, **worker: Any) -> Settings:
    changed = msgspec.structs.replace(app.settings.worker, **worker)
    return msgspec.structs.replace(app.settings, worker=changed)


async def slow_store(app: App, seconds: float = 0.005) -> FaultyStore:
    """A store whose exchanges take time: a worker holds jobs ahead."""
    faulty = FaultyStore(await app.store(), app.clock)
    app.state.stores[os.getpid()] = faulty
    app.state.by_loop.clear()
    faulty.slow("exchange", seconds=seconds)
    return faulty


async def drained(app: App, **options: Any) -> Worker:
    worker = await make_worker(
        app, is_burst=True, side_loop=TaskSideLoop(), machine=FakeMachine(), **options
    )
    await worker.run()
    return worker


# --- weights


@pytest.mark.proves("M50")
@pytest.mark.parametrize("prefetch", [0, 1024])
@pytest.mark.parametrize("concurrency", [1, 10])
@virtual(settings=ROOMY)
async def test_full_queues_are_served_by_weight(
    app: App, concurrency: int, prefetch: int
) -> None:
    told = StartRecorder(app, seconds=0.001, stop_after=1000)
    await slow_store(app)
    settings = change(app, concurrency=concurrency, prefetch=prefetch)
    await told.work(ALL, settings=settings, weights=SHARES)
    shares = Counter(told.queues[:1000])
    assert bool(told.ahead) == bool(prefetch)
    assert shares["high"] == pytest.approx(600, abs=50)
    assert shares["default"] == pytest.approx(300, abs=50)
    assert shares["low"] == pytest.approx(100, abs=50)


@pytest.mark.proves("M50")
@virtual(settings=ROOMY)
async def test_weights_may_be_declared_with_the_queue(app: App) -> None:
    told = StartRecorder(app, stop_after=500)
    for queue, weight in (("high", 6), ("default", 3)):
        app.queue(queue, weight=weight)
    shares = await told.work(ALL, settings=change(app, concurrency=1))
    assert shares["high"] == pytest.approx(300, abs=15)
    assert shares["low"] == pytest.approx(50, abs=15)


@virtual(settings=ROOMY)
async def test_flags_beat_declared_weights(app: App) -> None:
    told = StartRecorder(app, stop_after=300)
    app.queue("high", weight=100)
    shares = await told.work(
        {"high": 1000, "low": 1000},
        settings=change(app, concurrency=1),
        weights=["high=1", "lo*=2"],
    )
    assert shares["low"] == pytest.approx(200, abs=15)


@virtual(settings=ROOMY)
async def test_an_empty_queue_leaves_its_share_to_the_others(app: App) -> None:
    told = StartRecorder(app, seconds=0.001, stop_after=1000)
    await slow_store(app)
    shares = await told.work({"default": 1000, "low": 1000}, weights=SHARES)
    assert shares["default"] == pytest.approx(750, abs=50)


@virtual(settings=ROOMY)
async def test_idle_hours_are_not_saved_up(app: App) -> None:
    """A queue that was empty comes back to its share, not to what it missed."""
    told = StartRecorder(app, seconds=0.001, stop_after=1000)
    await told.enqueue({"default": 2000, "low": 1000})
    settings = change(app, concurrency=1)
    async with working(app, settings=settings, weights=SHARES):
        await told.enough.wait()
        await told.enqueue({"high": 1000})
        began = len(told.queues)
        while len(told.queues) < began + 300:
            await app.clock.sleep(0.01)
    shares = Counter(told.queues[began : began + 300])
    assert shares["high"] == pytest.approx(180, abs=15)
    assert shares["low"] == pytest.approx(30, abs=10)


@pytest.mark.proves("M50")
@virtual(settings=ROOMY)
async def test_the_lightest_queue_does_not_starve(app: App) -> None:
    told = StartRecorder(app, stop_after=2000)
    settings = change(app, concurrency=1)
    await told.work({"high": 3000, "low": 3}, settings=settings, weights=["high=1000"])
    assert told.queues.count("low") >= 1


@virtual(settings=ROOMY)
async def test_queues_of_one_weight_get_the_same(app: App) -> None:
    told = StartRecorder(app, stop_after=900)
    shares = await told.work(ALL, settings=change(app, concurrency=1))
    assert all(count == pytest.approx(300, abs=15) for count in shares.values())


@pytest.mark.proves("M50", "M56")
@virtual(settings=ROOMY)
async def test_shares_hold_with_prefetch_for_each_queue(app: App) -> None:
    told = StartRecorder(app, seconds=0.01, stop_after=1000)
    await slow_store(app)
    ahead = ["high=3", "default=2", "low=1"]
    shares = await told.work(ALL, weights=SHARES, prefetches=ahead)
    assert shares["high"] == pytest.approx(600, abs=50)
    assert shares["low"] == pytest.approx(100, abs=50)


ONE_PREFETCH = [["high=0"], ["high=8"], ["default=1"], ["low=0"]]
ALL_PREFETCH = [[f"{queue}={ahead}" for queue in QUEUES] for ahead in (0, 8)]
# No queue needs more than its slots for its share.
SLOTS = {
    1: [None],
    3: [None, ["high=2", "default=2", "low=1"]],
    10: [None, ["high=8", "default=5", "low=2"], ["high", "default", "low=2"]],
}


@pytest.mark.proves("M50", "M56", "M57")
@pytest.mark.parametrize("seconds", [0.001, 0.01])
@pytest.mark.parametrize(
    ("concurrency", "queues"),
    [(number, queues) for number, some in SLOTS.items() for queues in some],
)
def test_shares_hold_with_every_slots_and_prefetch(
    concurrency: int, queues: list[str] | None, seconds: float
) -> None:
    """Jobs quicker than the store, and slower ones: nobody's held ahead overtakes."""
    for prefetches in [[], *ONE_PREFETCH, *ALL_PREFETCH]:
        shares = starts_of(
            stop_after=500,
            seconds=seconds,
            weights=SHARES,
            prefetches=prefetches,
            queues=queues,
            concurrency=concurrency,
        )
        for queue, due in (("high", 300), ("default", 150), ("low", 50)):
            assert shares[queue] == pytest.approx(due, abs=25), (prefetches, shares)


def starts_of(*, stop_after: int, seconds: float, **options: Any) -> Counter[str]:
    """The first starts of a worker whose store is slow, by queue."""
    starts: list[str] = []

    @virtual(settings=ROOMY)
    async def run(app: App) -> None:
        told = StartRecorder(app, seconds=seconds, stop_after=stop_after)
        await slow_store(app)
        await told.work(dict.fromkeys(QUEUES, stop_after), **options)
        starts.extend(told.queues[:stop_after])

    run()
    return Counter(starts)


@pytest.mark.proves("M50", "L1")
@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.01])
def test_the_preset_gives_each_queue_twice_the_share_of_the_next(
    seconds: float,
) -> None:
    shares: Counter[str] = Counter()

    @virtual(settings=ROOMY, queues=TIERS)
    async def run(app: App) -> None:
        told = StartRecorder(app, seconds=seconds, stop_after=775)
        await slow_store(app)
        await told.work(dict.fromkeys([queue.name for queue in TIERS], 450))
        shares.update(told.queues[:775])

    run()
    for queue, due in zip(TIERS, (400, 200, 100, 50, 25), strict=True):
        assert shares[queue.name] == pytest.approx(due, abs=39), shares


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weights": SHARES},
        {"queues": ["high=4", "low=1"], "weights": ["high=6"]},
        {"queues": ["high=4", "low"], "prefetches": ["high=2"]},
        {"prefetches": ["high=0", "low=0"]},
    ],
)
@virtual
async def test_no_worker_asks_in_vain(app: App, options: dict[str, Any]) -> None:
    """A job now and then costs a few calls, whatever is said about queues."""
    told = StartRecorder(app)
    faulty = await slow_store(app, 0.0)
    async with working(app, **options):
        await finished((await told.enqueue({"high": 1}))[0])
        await app.clock.sleep(1.0)
        before = faulty.counter["exchange"]
        for _ in range(10):
            await finished((await told.enqueue({"high": 1}))[0])
        await app.clock.sleep(100.0)
    assert faulty.counter["exchange"] - before <= 40


# --- strict


@pytest.mark.proves("M51")
@pytest.mark.parametrize("concurrency", [1, 10])
@virtual(settings=ROOMY)
async def test_strict_drains_in_order(app: App, concurrency: int) -> None:
    told = StartRecorder(app, seconds=0.001)
    await slow_store(app)
    await told.enqueue({"low": 100, "default": 100, "high": 100})
    settings = change(app, concurrency=concurrency, strict=True)
    await drained(app, settings=settings, queues=["high", "def*", "low"])
    assert told.queues == ["high"] * 100 + ["default"] * 100 + ["low"] * 100


@pytest.mark.proves("M51")
@virtual(settings={**ROOMY, "worker": {"strict": True, "concurrency": 1}})
async def test_strict_takes_the_declared_order_and_new_jobs_go_first(app: App) -> None:
    told = StartRecorder(app, seconds=0.01, stop_after=50)
    await told.enqueue({"low": 100, "default": 20})
    async with working(app):
        await told.enough.wait()
        began = len(told.queues)
        jobs = await told.enqueue({"default": 1, "high": 1})
        for job in jobs:
            await in_state(job, State.DONE)
    assert told.queues[:20] == ["default"] * 20
    assert told.queues[began : began + 4].count("low") <= 2
    assert told.queues.index("high") < began + 2


@virtual(settings={**ROOMY, "worker": {"strict": True}})
async def test_strict_reaches_every_queue_however_many(app: App) -> None:
    told = StartRecorder(app)
    counts = {f"q{number:03}": 1 for number in range(150)}
    await told.enqueue(counts)
    await drained(app, queues=[*counts])
    assert told.queues == [*counts]


# --- slots


@pytest.mark.proves("M49")
@virtual(settings=ROOMY)
async def test_slots_of_each_queue(app: App) -> None:
    told = StartRecorder(app, seconds=0.01, stop_after=200)
    await slow_store(app)
    await told.work(ALL, queues=["high=4", "default=2", "low=1"])
    assert told.worker is not None
    assert told.worker.config.settings.worker.concurrency == 7
    assert told.most == {"high": 4, "default": 2, "low": 1}


@pytest.mark.proves("M56")
@virtual(settings=ROOMY)
async def test_slots_inside_a_given_concurrency(app: App) -> None:
    """A queue without a number may use all."""
    told = StartRecorder(app, seconds=0.01, stop_after=200)
    await told.work(ALL, queues=["high=4", "low=1", "default"], concurrency=5)
    assert told.most["low"] == 1
    assert told.most["high"] <= 4
    told.most.clear()
    await told.work({"default": 300}, queues=["high=4", "default"], concurrency=5)
    assert told.most["default"] == 5


@virtual(settings=ROOMY)
async def test_a_queue_at_its_bound_does_not_hold_up_others(app: App) -> None:
    told = StartRecorder(app)
    await slow_store(app)
    told.gate.clear()
    slow = await told.enqueue({"low": 50})
    async with working(app, queues=["low=1", "high=4"]) as told.worker:
        await in_state(slow[0], State.RUNNING)
        fast = await told.enqueue({"high": 4})
        for job in fast:
            await in_state(job, State.RUNNING)
        assert told.running == {"low": 1, "high": 4}
        told.gate.set()
        for job in slow + fast:
            await finished(job)
    assert told.most == {"low": 1, "high": 4}


@virtual(settings=ROOMY)
async def test_slots_of_a_glob_are_for_each_queue_that_matches(app: App) -> None:
    told = StartRecorder(app, seconds=0.01, stop_after=100)
    await told.work(
        {"mail-a": 200, "mail-b": 200}, queues=["mail*=2", "high"], concurrency=6
    )
    assert told.most == {"mail-a": 2, "mail-b": 2}


@virtual(settings=ROOMY)
async def test_declared_slots_are_caps(app: App) -> None:
    told = StartRecorder(app, seconds=0.01, stop_after=100)
    app.queue("high", slots=3)
    await told.work({"high": 200, "low": 200})
    assert told.most["high"] == 3
    assert told.most["low"] >= 7


# --- prefetch


@pytest.mark.proves("M56")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"queues": ["high", "default", "low"]},
        {"queues": ["high=4", "default=4", "low=2"]},
        {"queues": ["high=4", "default", "low=2"], "concurrency": 5},
        {"weights": SHARES},
    ],
)
@virtual(settings=ROOMY)
async def test_prefetch_of_one_queue(app: App, options: dict[str, Any]) -> None:
    told = StartRecorder(app, seconds=0.01, stop_after=1500)
    await slow_store(app)
    app.queue("default", prefetch=0)
    await told.work(ALL, prefetches=["high=2"], **options)
    assert 1 <= told.ahead["high"] <= 2
    assert told.ahead["default"] == 0
    assert min(Counter(told.queues).values()) > 100, "none of them starves"


@virtual(settings=ROOMY)
async def test_prefetch_works_beside_idle_queues(app: App) -> None:
    """Slots that stay free for others do not keep a queue from holding ahead."""
    told = StartRecorder(app, seconds=0.005, stop_after=300)
    await slow_store(app, 0.004)
    await told.work({"high": 400}, queues=["high=4", "default"], prefetches=["high=6"])
    assert 4 < told.ahead["high"] <= 6
    assert told.most["high"] == 4


@virtual(settings=ROOMY)
async def test_jobs_that_wait_in_the_worker_start_in_order(app: App) -> None:
    started: list[int] = []

    @app.task(name="note")
    async def note(number: int) -> None:
        started.append(number)

    await note.enqueue_many([(number,) for number in range(5000)])
    told = StartRecorder(app)
    await slow_store(app)
    async with working(app) as worker:
        await worker.started.wait()
        told.watch(worker)
        while len(started) < 5000:
            await app.clock.sleep(0.01)
    assert started == list(range(5000))
    assert told.ahead["default"] > 900, "they did wait there"


@virtual(settings=ROOMY)
async def test_jobs_ahead_delay_a_higher_priority_by_two_round_trips(app: App) -> None:
    """The bound of 1,024 is not what a worker takes: 100 of these run in that time."""
    round_trip = 0.005
    told = StartRecorder(app, seconds=0.001, stop_after=1000)
    await told.enqueue({"default": 5000})
    await slow_store(app, round_trip)
    async with working(app) as worker:
        await worker.started.wait()
        told.watch(worker)
        await told.enough.wait()
        began = app.clock.monotonic()
        await told.tell.options(priority=9).enqueue("urgent")
        while "urgent" not in told.queues:
            await app.clock.sleep(0.0005)
        waited = app.clock.monotonic() - began
    assert 50 <= told.ahead["default"] <= 150
    # One exchange is under way, the next one claims it, and what waited before goes first.
    assert waited <= 2 * round_trip + 2 * round_trip + 0.002


@virtual(settings=ROOMY)
async def test_two_workers_share_a_queue_of_short_jobs(app: App) -> None:
    told = StartRecorder(app, seconds=0.001, stop_after=4000)
    await told.enqueue({"default": 6000})
    await slow_store(app)
    async with working(app) as one, working(app) as two:
        await told.enough.wait()
        ended = [one.slots.ended, two.slots.ended]
    assert min(ended) > 0.4 * sum(ended)


@virtual(settings=ROOMY)
async def test_two_queues_without_prefetch_use_every_slot(app: App) -> None:
    told = StartRecorder(app, seconds=1.0, stop_after=60)
    await slow_store(app)
    prefetches = ["high=0", "low=0"]
    await told.work({"low": 100}, prefetches=prefetches, weights=["high=6"])
    assert told.most["low"] == 10


# --- which queues


@virtual
async def test_a_glob_serves_queues_that_come_later(app: App) -> None:
    told = StartRecorder(app)
    async with working(app, queues=["mail*"]) as worker:
        await worker.started.wait()
        await app.clock.sleep(1.0)
        (other,) = await told.enqueue({"high": 1})
        began = app.clock.monotonic()
        (job,) = await told.enqueue({"mail-new": 1})
        await finished(job)
        assert app.clock.monotonic() - began < 1.0, "it was rung, not polled"
    assert told.queues == ["mail-new"]
    assert (await other.status()).state is State.READY


@virtual
async def test_a_worker_serves_what_it_was_told_and_nothing_else(app: App) -> None:
    told = StartRecorder(app)
    await told.enqueue({"mail-1": 2, "mail-22": 2, "high": 2, "low": 2})
    await drained(app, queues=["mail-?", "low"])
    assert Counter(told.queues) == {"mail-1": 2, "low": 2}


# --- bursts


@pytest.mark.parametrize(
    "options",
    [
        {"queues": ["hi*", "low"]},
        {"queues": ["high=2", "low=1"]},
        {"queues": ["high", "low"], "prefetches": ["low=1"]},
        {"queues": ["high", "low"], "prefetches": ["high=0", "low=0"]},
        {"weights": SHARES},
    ],
)
@pytest.mark.parametrize("strict", [False, True])
@virtual
async def test_a_burst_ends(app: App, options: dict[str, Any], *, strict: bool) -> None:
    told = StartRecorder(app)
    if strict and "weights" in options:
        options = {}
    jobs = await told.enqueue({"high": 20, "low": 20})
    await drained(app, settings=change(app, strict=strict), **options)
    assert [(await job.status()).state for job in jobs] == [State.DONE] * 40


@pytest.mark.parametrize("queues", [None, ["high", "low"], ["l*", "high"]])
@virtual
async def test_a_paused_queue_does_not_keep_a_burst_alive(
    app: App, queues: list[str] | None
) -> None:
    told = StartRecorder(app)
    jobs = await told.enqueue({"high": 2, "low": 2})
    paused = QueueChange(paused=True)
    await (await app.store()).set_queue(
        lane(app.name, "low"), paused, AuditNote(who="me")
    )
    await drained(app, queues=queues)
    states = [(await job.status()).state for job in jobs]
    assert states == [State.DONE] * 2 + [State.READY] * 2


# --- pauses


@virtual(settings=ROOMY)
async def test_a_pause_gives_back_what_has_not_started(app: App) -> None:
    told = StartRecorder(app, seconds=0.001, stop_after=100)
    await slow_store(app)
    low, high = lane(app.name, "low"), lane(app.name, "high")
    jobs = await told.enqueue({"low": 500, "high": 500})
    store = await app.store()
    async with working(app) as told.worker:
        await told.enough.wait()
        told.gate.clear()
        await reached(jobs[0], lambda _: told.waiting()["low"])
        began = app.clock.monotonic()
        await store.set_queue(low, QueueChange(paused=True), AuditNote(who="me"))
        await reached(jobs[0], lambda _: not told.waiting()["low"])
        assert app.clock.monotonic() - began < 1.0, "told, not given back for idleness"
        assert told.worker is not None
        started = told.queues.count("low")
        await reached(
            jobs[0], lambda _: held(told.worker) == sum(told.running.values())
        )
        told.gate.set()
        await app.clock.sleep(5.0)
        assert told.queues.count("low") <= started + 10, "what was on its way"
        assert told.queues.count("high") == 500
        await store.set_queue(low, QueueChange(paused=False), AuditNote(who="me"))
        for job in jobs:
            status = await finished(job)
            assert (status.state, status.attempt) == (State.DONE, 1)
    assert Counter(told.queues) == {"low": 500, "high": 500}
    assert (await count_jobs(store, app.name)).get(high) is None


@virtual(settings={"worker": {"concurrency": 1}})
async def test_a_pause_reaches_claims_that_are_on_their_way(app: App) -> None:
    told = StartRecorder(app)
    told.gate.clear()
    faulty = await slow_store(app, 0.5)
    async with working(app) as told.worker:
        await told.worker.started.wait()
        await app.clock.sleep(10.0)
        told.worker.slots.target = 5
        before = faulty.counter["exchange"]
        jobs = await told.enqueue({"low": 6})
        await reached(jobs[0], lambda _: faulty.counter["exchange"] > before)
        told.worker.claims.pause(frozenset({lane(app.name, "low")}))
        await in_state(jobs[0], State.RUNNING)
        await reached(jobs[0], lambda _: told.queues == ["low"])
        assert not told.waiting()
        told.gate.set()
        for job in jobs:
            assert (await finished(job)).attempt == 1


@pytest.mark.parametrize(("size", "target"), [(10, 1024), (99_972, 167)])
@virtual
async def test_few_large_jobs_wait_in_a_worker(
    app: App, size: int, target: int
) -> None:
    """At most 16 MiB of arguments are claimed ahead, and at most 1,024 jobs."""

    @app.task(name="work")
    async def work(text: str) -> None: ...

    await slow_store(app, 0.5)
    jobs = await work.enqueue_many([("x" * size,)] * 300)
    async with working(app) as worker:
        for job in jobs:
            await finished(job)
        assert worker.slots.target == target


def held(worker: Worker | None) -> int:
    assert worker is not None
    return len(worker.slots.buffer) + len(worker.slots.running)


# --- the preset


@pytest.mark.proves("M46", "L1", "L2", "L3")
@virtual(queues=TIERS)
async def test_five_queues_as_a_preset(app: App) -> None:
    declared = app.registry.queues
    assert list(declared) == ["critical", "high", "default", "low", "bulk"]
    assert [q.prefetch for q in declared.values()] == [1, 2, 4, 8, 8]
    assert [q.slots for q in declared.values()] == [8, 4, 4, 2, 2]
    told = StartRecorder(app, seconds=0.001)
    job = await told.tell.enqueue("default")
    status = await job.status()
    assert (status.queue, status.priority) == ("default", 5)
    await told.enqueue(dict.fromkeys(declared, 30))
    worker = await drained(app, queues=[*declared])
    assert worker.config.settings.worker.concurrency == 20
    assert told.most == {"critical": 8, "high": 4, "default": 4, "low": 2, "bulk": 2}


@virtual
async def test_later_declarations_add_to_earlier_ones(app: App) -> None:
    app.queue("mail", weight=3)
    app.queue("mail", slots=2, weight=5)
    assert app.registry.queues["mail"] == Queue("mail", weight=5, slots=2)


@virtual
async def test_a_worker_shows_how_it_serves(app: App) -> None:
    StartRecorder(app)
    app.queue("low", prefetch=3)
    app.queue("bulk", slots=3)
    async with working(app, queues=["high=4", "low"], weights=["high=6"]) as worker:
        await worker.started.wait()
        (row,) = await (await app.store()).workers(app.name)
    shown = {
        name: row.info[name] for name in ("slots", "weights", "prefetch", "strict")
    }
    assert shown == {
        "slots": {"high": 4},
        "weights": {"high": 6},
        "prefetch": {"low": 3},
        "strict": False,
    }
