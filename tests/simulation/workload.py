"""The jobs of a simulated world: what they do, and how each must end.

All jobs are drawn before the world begins, so that the same seed asks for the same work
whatever fails meanwhile. Every task has a parameter `n`: the number that identifies the
job in the ledger.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from durio import App, Context, Job, Permanent, QueueFull, Retry, Snooze
from durio.app.tasks import Task
from durio.errors import DurioError, KeyConflict, StoreError
from durio.keys import while_active
from durio.limits import Batch
from durio.model.ids import id_bytes
from durio.model.job import PRIORITY_DEFAULT
from durio.worker.middleware import HookEvent
from tests.simulation.batch_workload import BATCH_SIZE, BATCH_WAIT, BatchTasks
from tests.simulation.breaker_workload import SERVICE, call_of, service_calls
from tests.simulation.ledger import Ledger
from tests.simulation.limit_workload import LIMITS, limited_times
from tests.simulation.network import LOCKED
from tests.simulation.plan_workload import (
    PLANS_MAX,
    PLANS_MIN,
    PlanProducer,
    PlanTasks,
    PlanWish,
    draw_plan,
)
from tests.simulation.schedule_workload import (
    FIRST_SECONDS,
    ScheduleProducer,
    ScheduleTasks,
    ScheduleWish,
    draw_schedules,
)
from tests.simulation.world import Node

QUICK_RETRY = Retry(3, delays=(1.0, 2.0, 5.0), jitter=True)
HARD_SECONDS = 20.0
SOFT_SECONDS = 3.0  # of an "endless" job
TIGHT_MAX = 3
BURST_SHARE = 0.5
CROWDS, CROWD = 2, 8  # how often, and how many jobs at once, for the bounded queue
IGNORES_LIMIT_SHARE = 0.5  # of the tasks that get a soft limit
TIGHT_SHARE = 0.2  # of the bounded queue's jobs, for each special kind
LONG_SHARE = 0.6  # of the jobs that are cancelled
LONG_SECONDS_MIN, LONG_SECONDS_MAX = 9.0, 16.0
SEGFAULT = -11

# Options that differ from those of `work(n, seconds)`.
TASK_OF = {
    "flaky": "flaky",
    "hopeless": "flaky",
    "permanent": "permanent",
    "snoozing": "snoozing",
    "telling": "telling",
    "endless": "endless",
    "blocking": "blocking",
    "poison": "poison",
    "modern": "modern",
    "limited": "limited",
    "behind": "behind",
    "batch": "gather",
}
ARGUMENTS_OF = {
    "flaky": ("seconds", "count"),
    "hopeless": ("seconds", "count"),
    "permanent": (),
    "snoozing": ("count",),
    "telling": ("seconds", "count"),
    "endless": (),
    "poison": (),
    "batch": ("seconds", "count"),
}

Die = Callable[[Node, int], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """One job that a producer will ask for."""

    n: int
    at: float
    kind: str
    seconds: float = 0.0  # of work
    count: int = 0  # failures, snoozes, steps
    delay_seconds: float = 0.0
    priority: int = 5
    key: str | None = None
    cancel_seconds: float | None = None  # after the enqueue
    ends: frozenset[str] = field(default=frozenset({"done"}))
    plan: PlanWish | None = None  # this plan, instead of one job
    schedule: ScheduleWish | None = None  # this schedule, instead of one job


# Kind: weight. `tasks_of` says what a kind does.
KINDS = {
    "plain": 40,
    "flaky": 12,
    "hopeless": 3,
    "permanent": 2,
    "snoozing": 6,
    "telling": 6,
    "delayed": 10,
    "keyed": 8,
    "tight": 8,
    "cancelled": 8,
    "endless": 2,
    "blocking": 2,
    "poison": 1,
    "modern": 4,
}

# Jobs that cause faults themselves.
DISTURBING = {"poison", "blocking"}

ENDS = {
    "hopeless": frozenset({"dead"}),
    "permanent": frozenset({"dead"}),
    "endless": frozenset({"dead"}),
    "poison": frozenset({"dead"}),
    "cancelled": frozenset({"done", "cancelled"}),
}


def draw(
    chance: Random, began: float, seconds: float, jobs: int, *, is_calm: bool
) -> list[Wish]:
    """Return all jobs of a world, in the order of their enqueues."""
    times = sorted(began + chance.random() * seconds for _ in range(jobs))
    for place in range(1, jobs):
        if chance.random() < BURST_SHARE:  # jobs often arrive in bursts
            times[place] = times[place - 1]
    kinds = {k: w for k, w in KINDS.items() if not (is_calm and k in DISTURBING)}
    wishes = [wish(chance, n, at, kinds) for n, at in enumerate(times)]
    for _ in range(CROWDS):
        first = chance.randrange(jobs)
        for one in wishes[first : first + CROWD]:
            at = wishes[first].at
            wishes[one.n] = tight(chance, one.n, at)
    return wishes


def wish(chance: Random, n: int, at: float, kinds: dict[str, int]) -> Wish:
    kind = chance.choices(list(kinds), list(kinds.values()))[0]
    if kind == "tight":
        return tight(chance, n, at)
    options: dict[str, Any] = {"seconds": min(chance.expovariate(1 / 3), 12.0)}
    if kind == "flaky":
        options["count"] = chance.randint(1, 3)
    elif kind == "hopeless":
        options["count"] = 1000
    elif kind in ("snoozing", "telling"):
        options["count"] = chance.randint(1, 4)
    elif kind == "delayed":
        options["delay_seconds"] = chance.uniform(0.5, 60)
    elif kind == "keyed":
        options["key"] = f"key-{chance.randint(0, 3)}"
    elif kind == "cancelled":
        options["cancel_seconds"] = chance.expovariate(1 / 4)
        if chance.random() < LONG_SHARE:  # it must be cancelled while it runs
            options["seconds"] = chance.uniform(LONG_SECONDS_MIN, LONG_SECONDS_MAX)
    elif kind == "blocking":
        options["seconds"] = chance.uniform(0.5, HARD_SECONDS * 0.8)
    if chance.random() < 0.2:
        options["priority"] = chance.randint(0, 9)
    return Wish(n, at, kind, **options, ends=ENDS.get(kind, frozenset({"done"})))


def tight(chance: Random, n: int, at: float) -> Wish:
    """Draw a job for the bounded queue: plain, failing once, cancelled, or with a key."""
    seconds, way = chance.uniform(0.5, 12.0), chance.random()
    if way < TIGHT_SHARE:
        return Wish(n, at, "tight", seconds, count=1)
    if way < 2 * TIGHT_SHARE:
        after, ends = chance.expovariate(1 / 4), ENDS["cancelled"]
        return Wish(n, at, "tight", seconds, cancel_seconds=after, ends=ends)
    if way < 3 * TIGHT_SHARE:
        key = f"tight-{chance.randint(0, 1)}"
        return Wish(n, at, "tight", seconds, key=key)
    return Wish(n, at, "tight", seconds)


def with_plans(chance: Random, wishes: list[Wish], seconds: float) -> list[Wish]:
    """Add plans, from their own random numbers."""
    began, first = wishes[0].at, wishes[-1].n + 1
    count = chance.randint(PLANS_MIN, PLANS_MAX)
    plans = [
        Wish(n, began + chance.random() * seconds, "plan", plan=draw_plan(chance, n))
        for n in range(first, first + count)
    ]
    return sorted([*wishes, *plans], key=lambda one: (one.at, one.n))


def with_schedules(chance: Random, wishes: list[Wish], seconds: float) -> list[Wish]:
    """Add schedules, from their own random numbers."""
    began, first = wishes[0].at, max(wish.n for wish in wishes) + 1
    schedules = [
        Wish(n, began + chance.random() * FIRST_SECONDS, "schedule", schedule=one)
        for n, one in enumerate(draw_schedules(chance, began, seconds), first)
    ]
    return sorted([*wishes, *schedules], key=lambda one: (one.at, one.n))


def with_limited(chance: Random, wishes: list[Wish], seconds: float) -> list[Wish]:
    """Add jobs with limits, from their own random numbers."""
    began, first = wishes[0].at, max(wish.n for wish in wishes) + 1
    limited = [
        Wish(n, at, "limited", min(chance.expovariate(1 / 2), 8.0))
        for n, at in enumerate(limited_times(chance, began, seconds), first)
    ]
    return sorted([*wishes, *limited], key=lambda one: (one.at, one.n))


def with_behind(
    chance: Random,
    wishes: list[Wish],
    seconds: float,
    broken: Sequence[tuple[float, float]],
) -> list[Wish]:
    """Add jobs behind a breaker, from their own random numbers."""
    first = max(wish.n for wish in wishes) + 1
    calls = service_calls(chance, wishes[0].at, seconds, broken)
    behind = [
        Wish(n, at, "behind", took, ends=frozenset({"done", "dead"}))
        for n, (at, took) in enumerate(calls, first)
    ]
    return sorted([*wishes, *behind], key=lambda one: (one.at, one.n))


class Acts:
    """What the tasks do, in one process; each writes to the ledger."""

    def __init__(self, node: Node, ledger: Ledger, die: Die) -> None:
        self.node = node
        self.ledger = ledger
        self.die = die

    def note(self, what: str, n: int, **fields: Any) -> None:
        self.ledger.note(self.node.name, what, n, **fields)

    def on_dead(self, event: HookEvent) -> None:
        """The hook that runs when a job is dead."""
        n = self.ledger.number_of.get(UUID(event.job_id).bytes)
        if n is not None:
            self.note("told", n)

    async def work(self, n: int, seconds: float) -> int:
        self.note("start", n, attempt=Context.current().attempt)
        await self.node.clock.sleep(seconds)
        self.note("effect", n)
        return n

    async def flaky(self, n: int, seconds: float, count: int) -> int:
        """Fail `count` times, then succeed."""
        attempt = Context.current().attempt
        self.note("start", n, attempt=attempt)
        await self.node.clock.sleep(seconds)
        if attempt <= count:
            raise ValueError(f"attempt {attempt} of job {n} fails")
        self.note("effect", n)
        return n

    async def permanent(self, n: int) -> None:
        """Fail with no retry."""
        self.note("start", n)
        raise Permanent("never again")

    async def snoozing(self, n: int, count: int) -> int:
        """Snooze `count` times, then succeed."""
        self.note("start", n)
        if self.ledger.starts[n] <= count:
            seconds = 2.0 * self.ledger.starts[n]
            self.note("asks", n, seconds=seconds)
            raise Snooze(seconds)
        self.note("effect", n)
        return n

    async def telling(self, n: int, seconds: float, count: int) -> int:
        self.note("start", n)
        for step in range(count):
            await Context.current().progress(step, count)
            await self.node.clock.sleep(seconds / count)
        self.note("effect", n)
        return n

    async def endless(self, n: int) -> None:
        """Run into the time limits, and sometimes ignore the soft one."""
        self.note("start", n)
        while True:
            try:
                await self.node.clock.sleep(3600)
            except asyncio.CancelledError:
                self.note("warned", n)
                if self.node.chance.random() < IGNORES_LIMIT_SHARE:
                    continue
                raise

    async def blocking(self, n: int, seconds: float) -> int:
        """Block the event loop, for less than the hard limit."""
        self.note("start", n)
        self.ledger.disturb("blocking job", self.node.name, seconds)
        await self.node.block(seconds)
        self.note("effect", n)
        return n

    async def poison(self, n: int) -> None:
        self.note("start", n)
        self.ledger.disturb("poison", self.node.name, 0.0)
        self.die(self.node, SEGFAULT)
        await asyncio.get_running_loop().create_future()


def tasks_of(
    app: App, node: Node, ledger: Ledger, die: Die, *, is_modern: bool
) -> dict[str, Task[..., Any]]:
    """Declare the tasks of this process's code; old code lacks one."""
    acts = Acts(node, ledger, die)
    app.hooks.dead(acts.on_dead)
    app.queue("tight", maxsize=TIGHT_MAX, full_wait=3)
    declared: dict[str, Any] = {
        name: getattr(acts, name)
        for name in ("work", "flaky", "permanent", "snoozing", "telling")
    }
    declared |= {"blocking": acts.blocking, "poison": acts.poison}
    if is_modern:
        declared["modern"] = acts.work
    limits = (HARD_SECONDS * 0.9, HARD_SECONDS)
    tasks: dict[str, Task[..., Any]] = {
        name: app.task(name=name, retry=QUICK_RETRY, timeout=limits)(act)
        for name, act in declared.items()
    }
    tasks["limited"] = app.task(
        name="limited", retry=QUICK_RETRY, timeout=limits, **LIMITS
    )(acts.work)
    tasks["behind"] = app.task(
        name="behind", retry=QUICK_RETRY, timeout=limits, breaker=SERVICE.name
    )(call_of(node, ledger))
    plans = PlanTasks(node, ledger)
    tasks["leaf"] = app.task(name="leaf", retry=QUICK_RETRY, timeout=limits)(plans.leaf)
    tasks["handler"] = app.task(name="handler", retry=QUICK_RETRY)(plans.handler)
    batch = Batch(BATCH_SIZE, BATCH_WAIT)
    gather: Any = app.task(
        name="gather", batch=batch, retry=QUICK_RETRY, timeout=limits
    )(BatchTasks(node, ledger).gather)
    tasks["gather"] = gather
    schedules = ScheduleTasks(node, ledger)
    tasks["tick"] = app.task(name="tick", retry=QUICK_RETRY)(schedules.tick)
    tasks["endless"] = app.task(name="endless", timeout=(SOFT_SECONDS, 5), retry=1)(
        acts.endless
    )
    return tasks


class Producer:
    """A process that enqueues jobs, as a web server would."""

    def __init__(
        self, app: App, node: Node, ledger: Ledger, tasks: dict[str, Task[..., Any]]
    ) -> None:
        self.app = app
        self.node = node
        self.ledger = ledger
        self.tasks = tasks
        self.plans = PlanProducer(app, node, ledger)
        self.schedules = ScheduleProducer(app, node, ledger, tasks["tick"])

    async def ask(self, wish: Wish) -> None:
        """Enqueue it and note the result or the error; perhaps cancel it later."""
        note, name = self.ledger.note, self.node.name
        if wish.plan is not None:
            await self.plans.ask(wish.n, wish.plan)
            return
        if wish.schedule is not None:
            await self.schedules.ask(wish.n, wish.schedule)
            return
        note(name, "enq.invoke", wish.n, kind=wish.kind, key=wish.key)
        try:
            job = await self._call(wish)
        except (QueueFull, KeyConflict) as error:
            note(name, "enq.fail", wish.n, error=type(error).__name__)
            return
        except StoreError as error:
            unknown = getattr(error, "unknown", False)
            about = {"locked": True} if error.what == LOCKED.error.what else {}
            kind = "enq.info" if unknown else "enq.fail"
            note(name, kind, wish.n, error=error.code, **about)
            return
        got = self.ledger.number_of.get(id_bytes(job.id))
        note(name, "enq.ok", wish.n, created=job.created, job=got)
        if wish.cancel_seconds is not None:
            await self.node.clock.sleep(wish.cancel_seconds)
            await self._cancel(wish, job)

    async def _call(self, wish: Wish) -> Job[Any]:
        options: dict[str, Any] = {}
        if wish.priority != PRIORITY_DEFAULT:
            options["priority"] = wish.priority
        if wish.delay_seconds:
            options["delay"] = wish.delay_seconds
        if wish.key is not None:
            options |= {"key": wish.key, "unique": while_active}
        if wish.kind == "tight":
            options["queue"] = "tight"
        kind = "flaky" if wish.kind == "tight" and wish.count else wish.kind
        task = self.tasks[TASK_OF.get(kind, "work")]
        arguments: dict[str, Any] = {"n": wish.n}
        for name in ARGUMENTS_OF.get(kind, ("seconds",)):
            arguments[name] = getattr(wish, name)
        if kind == "batch":
            arguments = {"item": arguments}
        return await task.options(**options).enqueue(**arguments)

    async def _cancel(self, wish: Wish, job: Job[Any]) -> None:
        note, name = self.ledger.note, self.node.name
        note(name, "cancel.invoke", wish.n)
        try:
            state = await job.cancel()
        except DurioError as error:
            note(name, "cancel.info", wish.n, error=error.code)
        else:
            note(name, "cancel.ok", wish.n, state=state.value)
