"""A small world of schedulers only: many ticks in little time, and no job is run.

Each scheduler process has the loops that a worker has for schedules: it tries to lead, and
makes ticks while it leads. In some worlds all of them make ticks at once.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from durio import App
from durio.client.tick_maker import ClientTickMaker
from durio.maintenance.leader import Leader
from durio.maintenance.loop import run_forever
from durio.maintenance.ticker import Ticker
from durio.stores.sqlite.store import SqliteStore
from tests.simulation import nemesis, schedule_checks
from tests.simulation.checks import Case, Violation, nothing_goes_wrong_unnoticed
from tests.simulation.ledger import ALL_NODES, CallRecorder, Ledger
from tests.simulation.nemesis import Fault, Nemesis
from tests.simulation.network import SimulatedLink, Trouble
from tests.simulation.process import app_on
from tests.simulation.scenario import NAME, Knobs, draw_knobs
from tests.simulation.schedule_history import REQUEST_SECONDS
from tests.simulation.schedule_workload import (
    ScheduleProducer,
    ScheduleSpec,
    ScheduleTasks,
    ScheduleWish,
    draw_schedule,
)
from tests.simulation.workload import Wish
from tests.simulation.world import Node, World

SCHEDULERS = 3
SECONDS = 40.0
LEASE_SECONDS = 2.0
FAULT_EVERY_SECONDS = 1.5
STEP_EVERY_SECONDS = 6.0
STEP_SIZE_MAX = 0.03  # of the largest step that the nemesis knows: 9 s to either side
LEADERLESS_SHARE = 0.3  # of the worlds: every scheduler makes ticks
# The intervals of the schedules that must not miss a tick; shorter ones are refused.
INTERVALS = (0.1, 0.2, 0.7)
SHORTEST, DRAWN = 4, 4  # schedules with the shortest interval, and with any
KINDS = ("kill", "pause", "cut", "flaky", "slow", "bad_line", "skew", "store_away")
CONNECTIONS = ("broken", "store_broken", "store_reset")
LASTS_SECONDS = 6.0  # longest fault


class SchedulerRecorder(CallRecorder):
    """Also counts how often another process became the leader."""

    leaders = 0
    leader = "", 0  # name and boot of its process

    def executed(
        self, node: Node, method: str, args: tuple[Any, ...], answer: Any
    ) -> None:
        super().executed(node, method, args, answer)
        if method == "lead" and answer is not None:
            self.leaders += self.leader != (node.name, node.boot)
            self.leader = node.name, node.boot


@dataclass
class SchedulerWorld:
    """A world while it is played; `play` draws one from a seed."""

    world: World
    wishes: Sequence[Wish]
    is_led: bool = True
    lease_seconds: float = LEASE_SECONDS
    look_seconds: float = 0.2  # how often one that does not lead looks whether it does
    knobs: Knobs = field(init=False)
    ledger: Ledger = field(init=False)
    store: SqliteStore = field(init=False)
    recorder: SchedulerRecorder = field(init=False)
    troubles: dict[str, Trouble] = field(init=False)
    nemesis: Nemesis = field(init=False)
    schedulers: list[str] = field(init=False)
    healed_at: float = 0.0
    exercised: set[str] = field(default_factory=set[str])  # invariants

    def __post_init__(self) -> None:
        world = self.world
        self.ledger = Ledger(world)
        self.knobs = replace(draw_knobs(world.chance("knobs")), seconds=SECONDS)
        self.store = SqliteStore(None, world.director.clock)
        self.recorder = SchedulerRecorder(self.store, self.ledger)
        self.schedulers = [f"scheduler-{n}" for n in range(SCHEDULERS)]
        names = (*self.schedulers, "producer-0", ALL_NODES)
        self.troubles = {name: Trouble() for name in names}
        self.nemesis = Nemesis(
            world,
            self.ledger,
            self.troubles,
            self.schedulers,
            self.lease_seconds,
            pause_queue=nothing,
            restart=self.restart,
            terminate=nothing,
            deploy=nothing,
        )

    # --- processes

    def start(self, name: str) -> Node:
        return self.world.start(
            name, self.schedule if name in self.schedulers else self.produce
        )

    def restart(self, name: str) -> None:
        """Start a scheduler again; a producer that was killed stays dead."""
        if self.world.nodes[name].is_dead and name in self.schedulers:
            self.start(name)

    def app_of(self, node: Node) -> tuple[App, Any]:
        link_type: Any = SimulatedLink  # its methods of the port are added at run time
        troubles = self.troubles[node.name], self.troubles[ALL_NODES]
        link = link_type(node, self.recorder, *troubles)
        app = app_on(node, link, name=NAME)
        app.emit.subscribers.clear()
        return app, link

    async def schedule(self, node: Node) -> None:
        """Run the loops of a scheduler until its process ends."""
        app, link = self.app_of(node)
        app.task(name="tick")(ScheduleTasks(node, self.ledger).tick)
        number = 1 + self.schedulers.index(node.name) + SCHEDULERS * node.boot
        leader = Leader(
            link,
            node.clock,
            app.emit,
            worker_id=lambda: number,
            is_fresh=lambda: True,
            lease_seconds=self.lease_seconds,
        )
        ticker = Ticker(link, node.clock, app.emit, NAME, ClientTickMaker(app))
        turn = self.turn_of(ticker)
        if self.is_led:
            turn = leader.while_leading(turn, self.look_seconds)
        start = asyncio.get_running_loop().create_task
        tasks = [start(run_forever("ticker", turn, node.clock, app.emit))]
        if self.is_led:
            tasks.append(start(leader.run()))
        await asyncio.gather(*tasks)

    def turn_of(self, ticker: Ticker) -> Callable[[], Awaitable[float]]:
        return ticker.turn

    async def produce(self, node: Node) -> None:
        """Create the schedules, and change them."""
        app, _link = self.app_of(node)
        task: Any = app.task(name="tick")(ScheduleTasks(node, self.ledger).tick)
        producer = ScheduleProducer(app, node, self.ledger, task)
        for wish in self.wishes:
            assert wish.schedule is not None
            await node.clock.sleep(wish.at - self.world.seconds)
            asking = producer.ask(wish.n, wish.schedule)
            asyncio.get_running_loop().create_task(asking)
        await asyncio.get_running_loop().create_future()

    # --- the whole

    def run(self, story: Coroutine[Any, Any, None]) -> list[Violation]:
        """Play what the director does; return what was broken."""
        try:
            self.world.run(story)
            return self.judge()
        finally:
            self.world.close()

    async def disturbed(self, faults: Sequence[Fault]) -> None:
        """Start all, carry out the faults, heal, and wait for the last ticks."""
        await self.store.open()
        for name in (*self.schedulers, "producer-0"):
            self.start(name)
        await self.nemesis.run(list(faults))
        clock, ends = self.world.director.clock, [wish.schedule for wish in self.wishes]
        until = max(one.until for one in ends if one is not None)
        await clock.sleep(max(until - self.world.seconds, 0.0))
        self.nemesis.heal()
        self.healed_at = self.world.seconds
        await clock.sleep(REQUEST_SECONDS + 1.0)

    def judge(self) -> list[Violation]:
        case = Case(
            self.ledger, self.wishes, [], self.world, self.knobs, self.healed_at
        )
        self.exercised = case.exercised
        errors = list(nothing_goes_wrong_unnoticed(case))
        return errors + schedule_checks.judge(case)

    @property
    def ticks(self) -> int:
        return len(self.ledger.of("tick"))

    @property
    def faults(self) -> Counter[str]:
        return Counter(one.kind for one in self.ledger.disturbances)


def nothing(*_args: object, **_options: object) -> Any:
    """Faults of workers and queues, of which this world has none."""
    return False


def play(seed: int) -> tuple[SchedulerWorld, list[Violation]]:
    """Play the world of this seed."""
    world = World(seed)
    chance = world.chance("schedules")
    is_led = chance.random() >= LEADERLESS_SHARE
    scene = SchedulerWorld(world, draw_wishes(chance, world.seconds), is_led)
    faults = draw_faults(world.chance("faults"), world.seconds, scene.schedulers)
    return scene, scene.run(scene.disturbed(faults))


def draw_wishes(chance: Random, began: float) -> list[Wish]:
    """Draw schedules with short intervals; the last ones may miss ticks."""
    complete = [ScheduleSpec(every=each) for each in INTERVALS]
    complete += [ScheduleSpec(cron="* * * * * *")]
    loose = [
        ScheduleSpec(every=0.3, catchup="latest", overlap="allow"),
        ScheduleSpec(cron="*/5 * * * * *", catchup="none", overlap="allow"),
        ScheduleSpec(every=0.5, catchup="all", catchup_max=3, overlap="allow"),
    ]
    draws = [one_of(complete[:1])] * SHORTEST + [one_of(complete)] * DRAWN
    draws += [one_of(loose)] * len(loose)
    drawn = [draw_schedule(chance, draw, began, SECONDS) for draw in draws]
    return [
        Wish(n, began + chance.random(), "schedule", schedule=hurried(one))
        for n, one in enumerate(drawn)
    ]


def one_of(specs: list[ScheduleSpec]) -> Callable[[Random], ScheduleSpec]:
    """Return what draws one of these."""

    def draw(chance: Random) -> ScheduleSpec:
        return chance.choice(specs)

    return draw


def hurried(wish: ScheduleWish) -> ScheduleWish:
    """Return a schedule whose requests follow each other soon."""
    acts = [replace(act, after_seconds=act.after_seconds / 4) for act in wish.acts]
    return replace(wish, acts=tuple(acts))


def draw_faults(chance: Random, began: float, schedulers: list[str]) -> list[Fault]:
    """Draw short faults, and steps of the clock in both directions."""
    known = {k: nemesis.KINDS[k] for k in KINDS}
    known |= {k: nemesis.CONNECTIONS[k] for k in CONNECTIONS}
    short = {
        kind: (weight, min(least, 0.5), min(most, LASTS_SECONDS))
        for kind, (weight, least, most) in known.items()
    }
    every = FAULT_EVERY_SECONDS
    who = schedulers, ["producer-0"]
    faults = nemesis.draw_of(chance, short, began, SECONDS, *who, every)
    faults = [f for f in faults if (f.kind, f.node) != ("kill", "producer-0")]
    at = began + chance.expovariate(1 / STEP_EVERY_SECONDS)
    while at < began + SECONDS:
        size = 0.5 + chance.uniform(-STEP_SIZE_MAX, STEP_SIZE_MAX)
        faults.append(Fault(at, "clock_step", ALL_NODES, 0.0, size))
        at += chance.expovariate(1 / STEP_EVERY_SECONDS)
    return sorted(faults, key=lambda fault: fault.at)
