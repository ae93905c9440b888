"""The schedules of a simulated world, and what is done to them.

A schedule has the name `s<n>`, with the number of its wish. The first argument of its jobs
is a mark, which each change of the schedule increases: it shows which definition made a job.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from random import Random
from typing import Any

from durio import App, Context
from durio.app.tasks import Task
from durio.errors import (
    InvalidSchedule,
    ScheduleConflict,
    ScheduleNotFound,
    StoreError,
)
from durio.model.ids import id_bytes
from durio.testing.clock import EPOCH, STARTED_SECONDS
from tests.simulation.ledger import Ledger
from tests.simulation.world import Node

ACT_SECONDS = 30.0  # mean time between two requests
FIRST_SECONDS = 20.0  # schedules are created in the first seconds of a world
TRIES_MAX, TRY_PAUSE_SECONDS = 6, 3.0  # of a request that the store does not answer
INTERVALS = (4.1, 7.0, 13.7)
CRONS = ("*/5 * * * * *", "*/10 * * * * *", "*/20 * * * * *", "* * * * *")
DELAYS = (5.3, 16.0)
SMALL_CATCHUP_MAX, LARGE_CATCHUP_MAX = 3, 1000
CRON_SHARE = 0.4  # of the rules
LONG_RUN_SHARE = 0.5  # of the schedules that skip a tick while a run goes on
SHORT_RUN_SECONDS, LONG_RUN_SECONDS = 0.7, 17.0
# Errors that are an answer: the schedule exists, does not exist, is over, or has a run.
REFUSED = ScheduleConflict, ScheduleNotFound, InvalidSchedule
# What is done to a schedule after its creation: weight, requests in this order.
ACTS = {
    "nothing": (8, ()),
    "change": (4, ("change",)),
    "change twice": (2, ("change", "change")),
    "pause": (1, ("pause",)),
    "pause, resume": (4, ("pause", "resume")),
    "delete, create": (4, ("delete", "create")),
    "delete": (1, ("delete",)),
    "run": (2, ("run", "run")),
}


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """A rule, a policy, and how long each run takes."""

    every: float | None = None
    cron: str | None = None
    fixed_delay: bool = False
    catchup: str = "all"
    catchup_max: int = LARGE_CATCHUP_MAX
    overlap: str = "allow"
    run_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ScheduleAct:
    """A request about a schedule."""

    what: str  # change, pause, resume, delete, create or run
    after_seconds: float
    mark: int  # of change and create
    spec: ScheduleSpec


@dataclass(frozen=True, slots=True)
class ScheduleWish:
    """A schedule that a producer will create; no tick is later than `until`."""

    spec: ScheduleSpec
    until: float  # seconds of the world
    acts: tuple[ScheduleAct, ...] = ()


def draw_schedules(chance: Random, began: float, seconds: float) -> list[ScheduleWish]:
    """Draw one schedule that must not miss a tick, one that may, and one with a delay."""
    return [
        draw_schedule(chance, draw_spec, began, seconds)
        for draw_spec in (draw_complete, draw_any, draw_delayed)
    ]


def draw_schedule(
    chance: Random,
    draw_spec: Callable[[Random], ScheduleSpec],
    began: float,
    seconds: float,
) -> ScheduleWish:
    weights = [weight for weight, _ in ACTS.values()]
    _, requests = ACTS[chance.choices(list(ACTS), weights)[0]]
    acts = [
        ScheduleAct(what, chance.expovariate(1 / ACT_SECONDS), mark, draw_spec(chance))
        for mark, what in enumerate(requests, 1)
    ]
    until = began + seconds * chance.uniform(0.6, 1.0)
    return ScheduleWish(draw_spec(chance), round(until, 3), tuple(acts))


def draw_complete(chance: Random) -> ScheduleSpec:
    """Draw a schedule whose ticks all make a job, however late."""
    return draw_rule(chance)


def draw_any(chance: Random) -> ScheduleSpec:
    catchup = chance.choice(["none", "latest", "latest", "all"])
    overlap = chance.choice(["allow", "skip", "queue_all"])
    is_long = overlap == "skip" and chance.random() < LONG_RUN_SHARE
    return replace(
        draw_rule(chance),
        catchup=catchup,
        catchup_max=SMALL_CATCHUP_MAX,
        overlap=overlap,
        run_seconds=LONG_RUN_SECONDS if is_long else SHORT_RUN_SECONDS,
    )


def draw_delayed(chance: Random) -> ScheduleSpec:
    return ScheduleSpec(
        every=chance.choice(DELAYS),
        fixed_delay=True,
        catchup="latest",
        overlap="skip",
        run_seconds=chance.choice([0.0, SHORT_RUN_SECONDS, LONG_RUN_SECONDS]),
    )


def draw_rule(chance: Random) -> ScheduleSpec:
    if chance.random() < CRON_SHARE:
        return ScheduleSpec(cron=chance.choice(CRONS))
    return ScheduleSpec(every=chance.choice(INTERVALS))


@dataclass
class ScheduleTasks:
    """The task of schedules, in one process."""

    node: Node
    ledger: Ledger

    async def tick(self, mark: int, run_seconds: float) -> None:
        ctx = Context.current()
        n = self.ledger.number_of[id_bytes(ctx.job_id)]
        due = None if ctx.tick is None else ctx.tick.due_at.timestamp()
        self.ledger.note(self.node.name, "start", n, mark=mark, due=due)
        await self.node.clock.sleep(run_seconds)
        self.ledger.note(self.node.name, "effect", n)


@dataclass
class ScheduleProducer:
    """Creates schedules, and changes them."""

    app: App
    node: Node
    ledger: Ledger
    task: Task[..., Any]

    async def ask(self, n: int, wish: ScheduleWish) -> None:
        """Create a schedule; then do what was drawn."""
        await self.act(n, wish, ScheduleAct("create", 0.0, 0, wish.spec))
        for act in wish.acts:
            await self.node.clock.sleep(act.after_seconds)
            await self.act(n, wish, act)

    async def act(self, n: int, wish: ScheduleWish, act: ScheduleAct) -> None:
        """Do it, and note what came of it; repeat it while the store does not answer."""
        for _ in range(TRIES_MAX):
            about = {"act": act.what, "mark": act.mark}
            self.note("sched.invoke", n, **about)
            try:
                await self.do(f"s{n}", wish, act)
            except StoreError as error:
                what = "sched.info" if error.unknown else "sched.fail"
                self.note(what, n, **about, error=error.code)
            except REFUSED as error:
                self.note("sched.refused", n, **about, error=type(error).__name__)
                return
            else:
                self.note("sched.ok", n, **about)
                return
            await self.node.clock.sleep(TRY_PAUSE_SECONDS)

    async def do(self, name: str, wish: ScheduleWish, act: ScheduleAct) -> None:
        schedules, args = self.app.schedules, (act.mark, act.spec.run_seconds)
        match act.what:
            case "create":
                choices = choices_of(act.spec, wish.until)
                await schedules.create(name, self.task, args=args, **choices)
            case "change":
                choices = choices_of(act.spec, wish.until)
                await schedules.change(name, self.task, args=args, **choices)
            case "pause":
                await schedules.pause(name)
            case "resume":
                await schedules.resume(name)
            case "run":
                await schedules.run(name)
            case _:
                await schedules.delete(name)

    def note(self, what: str, n: int, **fields: Any) -> None:
        self.ledger.note(self.node.name, what, n, **fields)


def choices_of(spec: ScheduleSpec, until: float) -> dict[str, Any]:
    """Return the choices of `app.schedules.create`."""
    end = datetime.fromtimestamp(EPOCH - STARTED_SECONDS + until, UTC)
    choices: dict[str, Any] = {
        "catchup": spec.catchup,
        "catchup_max": spec.catchup_max,
        "overlap": spec.overlap,
        "end": end,
    }
    if spec.cron is not None:
        return choices | {"cron": spec.cron}
    return choices | {"every": spec.every, "fixed_delay": spec.fixed_delay}
