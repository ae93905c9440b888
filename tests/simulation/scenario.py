"""One simulated world from its seed to its verdict: `play(seed)`.

It has four workers, one or two producers, and the real client, worker, maintenance and
SQLite store. First everything is drawn: knobs, jobs, faults. Then it is played, healed,
and judged.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from durio import App, DurioError
from durio.model.job import StoredJob
from durio.model.settings import RetentionSettings
from durio.ports.browse import Query
from durio.ports.control import AuditNote, QueueChange
from durio.stores.sqlite.store import SqliteStore
from durio.worker.worker import Worker
from tests.job_counts import count_jobs
from tests.simulation import (
    breaker_checks,
    control_checks,
    limit_checks,
    liveness_checks,
    nemesis,
    plan_checks,
    schedule_checks,
    workload,
)
from tests.simulation.batch_wishes import with_batches
from tests.simulation.breaker_workload import SERVICE, broken_spans
from tests.simulation.checks import STOP_SECONDS, Case, Violation, judge
from tests.simulation.ledger import ALL_NODES, CallRecorder, Ledger, at_once
from tests.simulation.nemesis import STEP_SECONDS_MAX, Fault, Nemesis
from tests.simulation.network import TRIP_SECONDS, SimulatedLink, Trouble
from tests.simulation.process import NodeMachine, app_on, worker_on
from tests.simulation.workload import Producer, Wish, tasks_of
from tests.simulation.world import Node, World

NAME = "sim"
WORKERS = 4
PRODUCERS = 2
LOOK_SECONDS = 2.0
HEALED_SECONDS_MIN, HEALED_SECONDS_MAX = 200.0, 4 * 3600.0
PAGE = 200
PLANS_SECONDS = 20.0
FOREVER_SECONDS = 1e8
FAR_SECONDS = 0.03  # trip to a distant store: workers claim more ahead
CALM_SHARE = 0.1  # of the worlds: no faults, and no job runs twice


@dataclass(frozen=True, slots=True)
class Knobs:
    """What differs between worlds besides jobs and faults."""

    seconds: float
    jobs: int
    fault_every: float
    lease_seconds: float
    concurrency: int
    prefetch: int
    old_workers: int  # workers with code that lacks a task
    keep_seconds: float  # for done jobs
    is_calm: bool
    trip_seconds: float = TRIP_SECONDS  # one way to the store
    heartbeats: int = 6  # per lease
    outages: Sequence[tuple[float, float]] | None = None  # of the service; None: drawn

    @property
    def heartbeat_seconds(self) -> float:
        """The time between two renewals of a lease."""
        return self.lease_seconds / self.heartbeats

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of every App of the world."""
        return {
            "retention": {"done_seconds": self.keep_seconds},
            "worker": {
                "lease_seconds": self.lease_seconds,
                "heartbeat_seconds": self.heartbeat_seconds,
                "poll_seconds": 2.0,
                "block_seconds": 1.0,
                "grace_seconds": STOP_SECONDS,
                "prefetch": self.prefetch,
                "rescue_seconds": 2.0,
                "life_seconds": 5.0,
                "leader_seconds": self.lease_seconds / 2,
            },
            "queue": {"full_seconds": 3.0},
        }


def draw_knobs(chance: Random) -> Knobs:
    return Knobs(
        seconds=chance.uniform(120, 300),
        jobs=chance.randint(60, 160),
        fault_every=chance.uniform(3, 20),
        lease_seconds=chance.choice([6.0, 15.0, 30.0]),
        concurrency=chance.choice([1, 2, 5, 10]),
        prefetch=chance.choice([0, 2, 20]),
        old_workers=chance.choice([0, 0, 1, 2]),
        keep_seconds=chance.choice([FOREVER_SECONDS, FOREVER_SECONDS, 40.0]),
        is_calm=chance.random() < CALM_SHARE,
        trip_seconds=chance.choice([TRIP_SECONDS, TRIP_SECONDS, FAR_SECONDS]),
        heartbeats=chance.choice([3, 6, 6]),
    )


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a world."""

    seed: int
    knobs: Knobs
    wishes: list[Wish]
    faults: list[Fault]
    ledger: Ledger
    records: list[StoredJob]
    violations: list[Violation]
    exercised: set[str]  # invariants that this world exercised
    seconds: float  # simulated
    steps: int
    digest: str

    @property
    def attempts(self) -> int:
        """How often a job was started."""
        return sum(self.ledger.starts.values())

    @property
    def faults_by_kind(self) -> Counter[str]:
        """Faults carried out; a process that ended itself is a consequence."""
        kinds = (one.kind for one in self.ledger.disturbances)
        return Counter(kind for kind in kinds if not kind.startswith("exit "))


def play(
    seed: int,
    *,
    faults: Sequence[Fault] | None = None,
    wishes: Sequence[Wish] | None = None,
    knobs: Mapping[str, Any] | None = None,
) -> Played:
    """Play the world of this seed; the arguments replace what the seed would draw."""
    world = World(seed)
    try:
        return Scenario(world, faults, wishes, knobs or {}).play()
    finally:
        world.close()


class Scenario:
    """A world while it is played."""

    def __init__(
        self,
        world: World,
        faults: Sequence[Fault] | None,
        wishes: Sequence[Wish] | None,
        known: Mapping[str, Any],
    ) -> None:
        self.world = world
        self.ledger = Ledger(world)
        knobs = replace(draw_knobs(world.chance("knobs")), **known)
        self.workers = [f"worker-{n}" for n in range(WORKERS)]
        self.producers = [f"producer-{n}" for n in range(PRODUCERS)]
        began, breakers = world.seconds, world.chance("breakers")
        drawn = broken_spans(breakers, began, knobs.seconds)
        outages = drawn if knobs.outages is None else knobs.outages
        self.knobs = knobs = replace(knobs, outages=outages)
        self.ledger.broken = outages
        self.wishes = (
            self.draw_wishes(began, breakers) if wishes is None else list(wishes)
        )
        for wish in self.wishes:
            self.ledger.leaves |= {} if wish.plan is None else wish.plan.leaves
        self.faults = list(faults or ())
        if faults is None and not knobs.is_calm:
            self.faults = self.draw_faults(began)
        kept = RetentionSettings(done_seconds=knobs.keep_seconds)
        self.store = SqliteStore(None, world.director.clock, retention=kept)
        self.recorder = CallRecorder(self.store, self.ledger)
        names = [*self.workers, *self.producers, ALL_NODES]
        self.troubles = {name: Trouble() for name in names}
        self.living: dict[str, tuple[Worker, NodeMachine]] = {}
        self.is_old = set(self.workers[: knobs.old_workers])
        self.left = {
            name: deque(self.wishes[place::PRODUCERS])
            for place, name in enumerate(self.producers)
        }
        self.nemesis = Nemesis(
            world,
            self.ledger,
            self.troubles,
            self.workers,
            knobs.lease_seconds,
            pause_queue=self.pause_queue,
            restart=self.start,
            terminate=self.terminate,
            deploy=self.deploy,
        )

    def draw_wishes(self, began: float, breakers: Random) -> list[Wish]:
        """Return all jobs, plans and schedules, in order of time."""
        chance, knobs = self.world.chance, self.knobs
        jobs = workload.draw(
            chance("jobs"), began, knobs.seconds, knobs.jobs, is_calm=knobs.is_calm
        )
        wishes = workload.with_plans(chance("plans"), jobs, knobs.seconds)
        wishes = workload.with_schedules(chance("schedules"), wishes, knobs.seconds)
        wishes = workload.with_limited(chance("limits"), wishes, knobs.seconds)
        wishes = with_batches(chance("batches"), wishes, knobs.seconds)
        return workload.with_behind(breakers, wishes, knobs.seconds, self.ledger.broken)

    def draw_faults(self, began: float) -> list[Fault]:
        """Return all faults, in order of time."""
        chance, knobs = self.world.chance, self.knobs
        who = began, knobs.seconds, self.workers, self.producers, knobs.fault_every
        drawn = nemesis.draw(chance("faults"), *who)
        more = nemesis.draw_connections(chance("connections"), *who)
        producers, every = self.producers, knobs.fault_every
        locks = nemesis.draw_locks(
            chance("locks"), began, knobs.seconds, producers, every
        )
        return sorted([*drawn, *more, *locks], key=lambda fault: fault.at)

    def play(self) -> Played:
        """Play the world from the first process to the verdict."""
        records = self.world.run(self.direct())
        case = Case(
            self.ledger, self.wishes, records, self.world, self.knobs, self.healed_at
        )
        violations = (
            judge(case)
            + liveness_checks.judge(case)
            + control_checks.judge(case)
            + plan_checks.judge(case)
            + schedule_checks.judge(case)
            + limit_checks.judge(case)
            + breaker_checks.judge(case)
        )
        return Played(
            self.world.seed,
            self.knobs,
            self.wishes,
            self.faults,
            self.ledger,
            records,
            violations,
            case.exercised,
            self.world.seconds,
            self.world.steps,
            self.ledger.digest,
        )

    async def direct(self) -> list[StoredJob]:
        """Direct the world in a coroutine that no fault disturbs."""
        await self.store.open()
        for name in (*self.workers, *self.producers):
            self.start(name)
        await self.nemesis.run(self.faults)
        left = self.wishes[-1].at - self.world.seconds
        await self.world.director.clock.sleep(max(left, 0.0) + 1.0)
        self.nemesis.heal()
        self.healed_at = self.world.seconds
        self.is_old.clear()
        await self.until_over()
        self.recorder.look_at_gates(ALL_NODES, is_over=True)
        return await self.everything()

    async def until_over(self) -> None:
        """Replace old code; then every job must become final by itself."""
        for name in self.workers:
            self.terminate(name)
        clock, healed_at = self.world.director.clock, self.world.seconds
        least_seconds = HEALED_SECONDS_MIN
        if any(fault.kind == "clock_step" for fault in self.faults):
            least_seconds += STEP_SECONDS_MAX  # what was due by the wrong clock
        while self.world.seconds < healed_at + HEALED_SECONDS_MAX:
            await clock.sleep(LOOK_SECONDS)
            is_late = self.world.seconds > healed_at + least_seconds
            if is_late and not await self.unfinished():
                await clock.sleep(PLANS_SECONDS)  # the leader marks what has ended
                return

    async def unfinished(self) -> int:
        """Return how many jobs are not final."""
        counted = await count_jobs(self.store, NAME)
        dead = 5
        return sum(
            number
            for states in counted.values()
            for state, number in states.items()
            if state != dead
        )

    async def everything(self) -> list[StoredJob]:
        """Return every job in the store."""
        records: list[StoredJob] = []
        cursor: str | None = None
        while True:
            page = await self.store.find(Query(NAME), limit=PAGE, cursor=cursor)
            records += page.jobs
            cursor = page.cursor
            if cursor is None:
                return records

    # --- processes

    def app_of(self, node: Node) -> App:
        troubles = self.troubles[node.name], self.troubles[ALL_NODES]
        link_type: Any = SimulatedLink  # its methods of the port are added at run time
        link = link_type(
            node, self.recorder, *troubles, trip_seconds=self.knobs.trip_seconds
        )
        options: dict[str, Any] = {"name": NAME, "breakers": [SERVICE]}
        app = app_on(node, link, settings=self.knobs.settings, **options)
        app.emit.subscribers.clear()
        return app

    def pause_queue(self, *, is_paused: bool) -> None:
        """As an operator would, directly at the store."""
        lane, change = f"{NAME}:default", QueueChange(paused=is_paused)
        at_once(self.store.set_queue(lane, change, AuditNote(who="somebody")))
        self.ledger.note(ALL_NODES, "queue", lane=lane, is_paused=is_paused)

    def start(self, name: str) -> None:
        """Start a new process, unless one of this name lives."""
        node = self.world.nodes.get(name)
        if node is None or node.is_dead:
            self.ledger.note(name, "process")
            self.world.start(name, self.produce if name in self.left else self.work)

    def deploy(self, name: str, *, is_old: bool) -> None:
        """Make the next process of this name run this code."""
        (self.is_old.add if is_old else self.is_old.discard)(name)

    async def work(self, node: Node) -> None:
        """Run a worker process to its end; an error ends only this process."""
        try:
            await self.work_in(node, self.app_of(node))
        except DurioError as error:  # the store was unavailable at the start: exit 3
            self.ledger.note(node.name, "exit", error=error.code)
            self.ends(node, 3)

    async def work_in(self, node: Node, app: App) -> None:
        """Run a worker process to its end, without handling errors."""
        is_modern = node.name not in self.is_old
        tasks_of(app, node, self.ledger, self.ends, is_modern=is_modern)
        worker, machine = await worker_on(
            node,
            app,
            self.ends,
            concurrency=self.knobs.concurrency,
        )
        self.living[node.name] = worker, machine
        await worker.run()
        broken = "" if worker.broken is None else worker.broken.what
        self.ledger.note(
            node.name, "exit", cut_short=worker.was_cut_short, broken=broken
        )
        self.ends(node, 0)

    def ends(self, node: Node, code: int) -> None:
        """Start another process in place of one that has ended by itself."""
        if code:
            self.ledger.disturb(f"exit {code}", node.name, 0.0)
        self.world.kill(node)
        self.world.director.main.call_later(1.0, self.start, node.name)

    def terminate(self, name: str) -> bool:
        """Send SIGTERM; False if there is no process to get it."""
        node = self.world.nodes[name]
        if node.is_dead or name not in self.living:
            return False
        worker, machine = self.living[name]
        if worker.clock is not node.clock:
            return False  # the new process has no worker yet
        self.ledger.note(name, "sigterm")
        machine.stopped.append(("SIGTERM", self.world.seconds))
        node.main.call_soon(worker.stop)
        return True

    async def produce(self, node: Node) -> None:
        """Enqueue the jobs of this name that no earlier process has enqueued."""
        app, left = self.app_of(node), self.left[node.name]
        tasks = tasks_of(app, node, self.ledger, self.ends, is_modern=True)
        producer = Producer(app, node, self.ledger, tasks)
        while left:
            await node.clock.sleep(left[0].at - self.world.seconds)
            asyncio.get_running_loop().create_task(producer.ask(left.popleft()))
        await asyncio.get_running_loop().create_future()
