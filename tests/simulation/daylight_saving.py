"""Schedulers under faults while clocks change: each tick has exactly one job.

    .venv/bin/python -m tests.simulation.daylight_saving --days 7

Plays a world for each of five zones and each of its two changes in 2027, with the change in
the middle: three scheduler processes with faults, new leaders and steps of the clock, and
cron schedules in the zone. The ticks that are expected come from a walk through real time,
which shares no code with the engine.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile
from random import Random
from zoneinfo import ZoneInfo

from durio.errors import ScheduleConflict, StoreError
from durio.maintenance.ticker import IDLE_SECONDS, Ticker
from durio.testing.clock import EPOCH, STARTED_SECONDS
from tests.simulation import nemesis
from tests.simulation.checks import Case, Violation, nothing_goes_wrong_unnoticed
from tests.simulation.nemesis import Fault
from tests.simulation.schedule_workload import (
    ScheduleSpec,
    ScheduleTasks,
    ScheduleWish,
)
from tests.simulation.schedule_world import (
    CONNECTIONS,
    KINDS,
    STEP_SIZE_MAX,
    SchedulerWorld,
)
from tests.simulation.workload import Wish
from tests.simulation.world import Node, World
from tests.unit.model.cron_walk import walk

DAY = 86400.0
# In UTC: forward, back. Lord Howe changes by half an hour, Santiago at midnight.
CHANGES = {
    "Europe/Paris": ("2027-03-28 01:00", "2027-10-31 01:00"),
    "America/New_York": ("2027-03-14 07:00", "2027-11-07 06:00"),
    "Australia/Lord_Howe": ("2027-10-02 15:30", "2027-04-03 15:00"),
    "America/Santiago": ("2027-09-05 04:00", "2027-04-04 03:00"),
    "Pacific/Auckland": ("2027-09-25 14:00", "2027-04-03 14:00"),
}
TEXTS = (
    "30 2 * * *",
    "15 1 * * *",
    "0 0 * * *",
    "0,30 0-3 * * *",
    "45 1,2 * * SAT,SUN",
    "0 * * * *",
    "30 */2 * * *",
    "*/10 * * * *",
    "*/15 2 * * *",
    "20 */5 * * * *",
)
BEFORE_SECONDS = 20.0  # after a full minute: schedules are created between their ticks
QUIET_SECONDS = 60.0  # without faults, while they are created
# Longer than in a worker: nothing but ticks happens here, so a day takes less real time.
LEASE_SECONDS = 30.0
LOOK_SECONDS = 10.0  # how often schedulers look whether something has changed
FAULTS_PER_WORLD_MIN = 60
FAULT_EVERY_SECONDS = 900.0
LASTS_SECONDS = 45.0  # longest fault: longer than a lease


@dataclass
class DaylightWorld(SchedulerWorld):
    """A world of schedulers whose schedules are in one zone."""

    tz: str = "UTC"

    def turn_of(self, ticker: Ticker) -> Callable[[], Awaitable[float]]:
        async def turn() -> float:
            pause = await ticker.turn()
            return LOOK_SECONDS if pause >= IDLE_SECONDS else pause

        return turn

    async def produce(self, node: Node) -> None:
        """Create the schedules."""
        app, _link = self.app_of(node)
        task = app.task(name="tick")(ScheduleTasks(node, self.ledger).tick)
        for wish in self.wishes:
            assert wish.schedule is not None
            end = datetime.fromtimestamp(wall_of(wish.schedule.until), UTC)
            try:
                await app.schedules.create(
                    f"s{wish.n}",
                    task,
                    args=(0, 0.0),
                    cron=wish.schedule.spec.cron,
                    tz=self.tz,
                    overlap="allow",
                    catchup="all",
                    catchup_max=1000,
                    end=end,
                )
            except (StoreError, ScheduleConflict) as error:  # no fault happens so early
                raise AssertionError("a schedule was not created") from error

    def judge(self) -> list[Violation]:
        case = Case(
            self.ledger, self.wishes, [], self.world, self.knobs, self.healed_at
        )
        found = list(nothing_goes_wrong_unnoticed(case))
        return found + [each for wish in self.wishes for each in self.judge_one(wish)]

    def judge_one(self, wish: Wish) -> Iterator[Violation]:
        """Compare the jobs of a schedule with its ticks."""
        assert wish.schedule is not None
        made = Counter(
            line.fields["due"]
            for line in self.ledger.of("tick")
            if line.fields["schedule"] == wish.n
        )
        text = wish.schedule.spec.cron or ""
        due = expected_ticks(text, self.tz, wish.at, wish.schedule.until)
        for moment in sorted({*made, *due}):
            if made[moment] != (moment in due):
                at = datetime.fromtimestamp(moment, ZoneInfo(self.tz))
                what = f"{text} at {at} has {made[moment]} jobs"
                yield Violation("I13", wish.n, what)


def expected_ticks(text: str, tz: str, since: float, until: float) -> set[float]:
    """Return the ticks between two times of the world, in seconds since 1970."""
    after = datetime.fromtimestamp(wall_of(since), UTC)
    last = datetime.fromtimestamp(wall_of(until), UTC)
    runs = takewhile(lambda run: run <= last, walk(text, tz, after))
    return {run.timestamp() for run in runs}


def wall_of(seconds: float) -> float:
    """Return what the clock shows at a time of the world, before a fault sets it."""
    return EPOCH - STARTED_SECONDS + seconds


def draw_faults(chance: Random, world: World, until: float) -> list[Fault]:
    """Draw faults until this time; one of five sets the clock by up to 9 s."""
    began = world.seconds + QUIET_SECONDS
    seconds = until - began
    every = min(FAULT_EVERY_SECONDS, seconds / FAULTS_PER_WORLD_MIN)
    known = {kind: nemesis.KINDS[kind] for kind in KINDS}
    known |= {kind: nemesis.CONNECTIONS[kind] for kind in CONNECTIONS}
    weight = sum(weight for weight, _, _ in known.values())
    known["clock_step"] = (weight // 4, 0.0, 0.0)
    short = {
        kind: (weight, least, min(most, LASTS_SECONDS))
        for kind, (weight, least, most) in known.items()
    }
    schedulers = ["scheduler-0", "scheduler-1", "scheduler-2"]
    faults = nemesis.draw_of(
        chance, short, began, seconds, schedulers, schedulers, every
    )
    return [
        replace(one, size=0.5 + STEP_SIZE_MAX * (2 * one.size - 1))
        if one.kind == "clock_step"
        else one
        for one in faults
    ]


def play(
    tz: str, change: str, days: float, seed: int
) -> tuple[DaylightWorld, list[Violation]]:
    """Play a world with a change of the clock in its middle."""
    changed_at = datetime.fromisoformat(f"{change}+00:00").timestamp()
    offsets = {
        datetime.fromtimestamp(changed_at + n, ZoneInfo(tz)).utcoffset()
        for n in (-1, 0)
    }
    assert len(offsets) == 2, f"clocks in {tz} do not change at {change}"
    world = World(seed)
    world.seconds += changed_at - days * DAY / 2 + BEFORE_SECONDS - EPOCH
    until = world.seconds + days * DAY
    wishes = [
        Wish(
            n,
            world.seconds,
            "schedule",
            schedule=ScheduleWish(ScheduleSpec(cron=text), until),
        )
        for n, text in enumerate(TEXTS)
        if expected_ticks(text, tz, world.seconds, until)  # else it would be refused
    ]
    is_led = world.chance("schedules").random() < 0.7
    scene = DaylightWorld(world, wishes, is_led, LEASE_SECONDS, LOOK_SECONDS, tz=tz)
    faults = draw_faults(world.chance("faults"), world, until)
    return scene, scene.run(scene.disturbed(faults))


def stories() -> Iterator[tuple[str, str, str]]:
    """Yield zone, direction and time of each change."""
    for tz, (forward, back) in CHANGES.items():
        yield tz, "forward", forward
        yield tz, "back", back


def main(arguments: Sequence[str] | None = None) -> int:
    """Play all worlds; return 1 if a tick has not exactly one job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=float, default=7.0, help="length of each world")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    began, broken, totals = time.process_time(), 0, Counter[str]()
    for number, (tz, direction, change) in enumerate(stories()):
        seed = len(CHANGES) * 2 * options.seed + number
        scene, violations = play(tz, change, options.days, seed)
        faults = scene.faults
        figures = {
            "ticks": scene.ticks,
            "faults": faults.total() - faults["clock_step"],
            "steps of the clock": faults["clock_step"],
            "new leaders": scene.recorder.leaders,
            "not exactly one job": len(violations),
        }
        totals.update(figures)
        text = ", ".join(f"{count:,} {what}" for what, count in figures.items())
        print(f"{tz} {direction}: {text}", flush=True)
        for violation in violations[:5]:
            print(f"  {violation}")
        broken += bool(violations)
    text = ", ".join(f"{count:,} {what}" for what, count in totals.items())
    print(f"all: {text}; {time.process_time() - began:.0f} s of CPU")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
