"""Which late ticks run after downtime, and how many are counted as skipped."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from durio import App
from durio.schedules import Schedule
from tests.schedules.schedule_harness import (
    DAY,
    HOUR,
    MINUTE,
    Events,
    Runs,
    at,
    offset,
    sleeping_task,
    tick_times,
    ticker_of,
    turns,
    until,
)
from tests.unit.app.app_harness import virtual, working

INTERVAL = 5 * MINUTE  # the first tick is due then
POLICIES: dict[str, dict[str, Any]] = {
    "none": {"catchup": "none"},
    "latest": {"catchup": "latest"},
    "all": {"catchup": "all"},
    "three": {"catchup": "all", "catchup_max": 3},
    "window": {"catchup": "all", "catchup_window": 700},
}
NOTHING = range(0)


class Expected(NamedTuple):
    """The ticks that each policy runs after downtime, of so many."""

    late: float  # seconds from the first tick to the next turn of a scheduler
    ticks: int
    none: range
    latest: range
    all: range
    three: range
    window: range


def tick(number: int) -> range:
    return ticks(number, number)


def ticks(first: int, last: int) -> range:
    """Return the times of the ticks with these numbers, counted from 1."""
    return range(first * 300, last * 300 + 1, 300)


AT_A_RATE = {
    "no downtime": Expected(0, 1, *[tick(1)] * 5),
    "a moment": Expected(60, 1, *[tick(1)] * 5),
    "less than one interval": Expected(120, 1, NOTHING, *[tick(1)] * 4),
    "several intervals": Expected(
        1350, 5, NOTHING, tick(5), ticks(1, 5), ticks(3, 5), ticks(4, 5)
    ),
    # A tick that is due in this minute is not late.
    "several intervals, and a tick is due": Expected(
        1230, 5, tick(5), tick(5), ticks(1, 5), ticks(3, 5), ticks(3, 5)
    ),
    "longer than the window": Expected(
        DAY + 1350,
        293,
        NOTHING,
        tick(293),
        ticks(194, 293),
        ticks(291, 293),
        ticks(292, 293),
    ),
}
ONCE = {
    "no downtime": Expected(0, 1, *[tick(1)] * 5),
    "a moment": Expected(60, 1, *[tick(1)] * 5),
    "a while": Expected(600, 1, NOTHING, *[tick(1)] * 4),
    "longer than one window": Expected(1350, 1, NOTHING, *[tick(1)] * 3, NOTHING),
    "longer than both": Expected(DAY + 1350, 1, *[NOTHING] * 5),
}
# It has one late tick, whose time is only the earliest one: it always runs.
WITH_DELAY = {
    name: Expected(late, 1, *[tick(1)] * 5)
    for name, late in {"no": 0, "a moment": 60, "a day": DAY + 1350}.items()
}
STORIES = [
    *(("cron", name, AT_A_RATE[name]) for name in AT_A_RATE),
    *(("every", name, AT_A_RATE[name]) for name in AT_A_RATE),
    *(("at", name, ONCE[name]) for name in ONCE),
    *(("delay", name, WITH_DELAY[name]) for name in WITH_DELAY),
]
RULES: dict[str, dict[str, Any]] = {
    "cron": {"cron": "*/5 * * * *"},
    "every": {"every": "5m"},
    "at": {"at": at(INTERVAL)},
    "delay": {"every": "5m", "fixed_delay": True},
}


@pytest.mark.parametrize(("kind", "downtime", "expected"), STORIES)
@virtual
async def test_catchup_after_downtime(
    app: App, kind: str, downtime: str, expected: Expected
) -> None:
    del downtime
    work, events = sleeping_task(app, Runs()), Events(app)
    for name, choices in POLICIES.items():
        rule = {**RULES[kind], **choices, "overlap": "allow"}
        await app.schedules.create(name, work, **rule)
    ticker = await ticker_of(app)
    await until(app, INTERVAL + expected.late)
    await ticker.turn()
    for name in POLICIES:
        wanted: range = getattr(expected, name)
        assert await tick_times(app, name) == list(wanted), name
        schedule = await app.schedules.get(name)
        assert schedule.run_count == len(wanted)
        assert schedule.skipped_count == expected.ticks - len(wanted), name
        if kind in {"cron", "every"}:
            assert offset(schedule.next_at) == (expected.ticks + 1) * INTERVAL
        if kind == "at":
            assert schedule.state == "ended"
    lost = {name: expected.ticks - len(getattr(expected, name)) for name in POLICIES}
    assert events.skipped.total() == sum(lost.values())
    assert set(events.skipped) <= {"catchup"}
    is_missed = expected.late > (MINUTE if kind == "at" else INTERVAL)
    assert len(events.named("schedule.missed")) == is_missed * len(POLICIES)


@virtual
async def test_skipped_ticks_are_logged_with_their_times(app: App) -> None:
    events = Events(app)
    await app.schedules.create("s", sleeping_task(app, Runs()), every="5m")
    await until(app, 1350 + INTERVAL)
    await (await ticker_of(app)).turn()
    assert events.named("schedule.skipped") == [
        {
            "schedule": "s",
            "reason": "catchup",
            "count": 4,
            "first_at": at(300).isoformat(),
            "last_at": at(1200).isoformat(),
            "at_least": False,
        }
    ]


@virtual
async def test_very_many_skipped_ticks_are_at_least_so_many(app: App) -> None:
    events = Events(app)
    work = sleeping_task(app, Runs())
    await app.schedules.create("late", work, cron="* * * * *")
    await app.schedules.create("changed", work, cron="* * * * *")
    await until(app, 30 * HOUR)
    await app.schedules.change("changed", every="2h")
    await (await ticker_of(app)).turn()
    counts = {
        fields["schedule"]: (fields["count"], fields["at_least"])
        for fields in events.named("schedule.skipped")
    }
    assert counts == {"changed": (1500, True), "late": (1499, True)}


@virtual
async def test_ticks_of_catchup_run_one_after_the_other(app: App) -> None:
    """`catchup="all"` is of little use if they were skipped for their overlap."""
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create("s", work, args=(2.0,), every="5m", catchup="all")
    await until(app, 1350 + INTERVAL)
    async with working(app):
        await app.clock.sleep(30)
        assert (await app.schedules.get("s")).skipped_count == 0
    assert runs.dues == [300, 600, 900, 1200, 1500]
    assert runs.peak == 1


@virtual
async def test_a_skipped_tick_of_catchup_overlaps_only_by_choice(app: App) -> None:
    """With `overlap="skip"`, one of the late ticks runs, and the others are skipped."""
    runs, events = Runs(), Events(app)
    work = sleeping_task(app, runs)
    choices: dict[str, Any] = {"catchup": "all", "overlap": "skip"}
    await app.schedules.create("s", work, every="5m", **choices)
    await until(app, 1350 + INTERVAL)
    async with working(app):
        await app.clock.sleep(30)
        assert (await app.schedules.get("s")).skipped_count == 4
    assert runs.dues == [300]
    assert events.skipped == {"overlap": 4}


@pytest.mark.parametrize("kind", ["cron", "every"])
@virtual
async def test_no_tick_runs_twice_when_the_clock_goes_back(app: App, kind: str) -> None:
    events = Events(app)
    await app.schedules.create(
        "s", sleeping_task(app, Runs()), overlap="allow", **RULES[kind]
    )
    ticker = await ticker_of(app)
    await turns(ticker, 2 * INTERVAL + 1)
    app.clock.step(-2 * INTERVAL)  # type: ignore[attr-defined]
    await turns(ticker, 4 * INTERVAL)
    assert await tick_times(app, "s") == [300, 600, 900, 1200]
    assert not events.skipped


@pytest.mark.parametrize("kind", ["cron", "every"])
@virtual
async def test_a_clock_that_goes_forward_is_downtime(app: App, kind: str) -> None:
    events = Events(app)
    await app.schedules.create(
        "s", sleeping_task(app, Runs()), overlap="allow", **RULES[kind]
    )
    ticker = await ticker_of(app)
    await turns(ticker, INTERVAL + 1)
    app.clock.step(HOUR)  # type: ignore[attr-defined]
    await turns(ticker, INTERVAL)
    assert await tick_times(app, "s") == [300, 3900, 4200]
    assert events.skipped == {"catchup": 11}


@virtual
async def test_a_clock_that_goes_forward_and_back(app: App) -> None:
    """Ticks of the time that came too early are not repeated: each runs once."""
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, every="5m", overlap="allow")
    ticker = await ticker_of(app)
    app.clock.step(4 * INTERVAL)  # type: ignore[attr-defined]
    await turns(ticker, 1)
    app.clock.step(-4 * INTERVAL)  # type: ignore[attr-defined]
    await turns(ticker, 5 * INTERVAL)
    assert await tick_times(app, "s") == [1200, 1500]
    assert (await app.schedules.get("s")).skipped_count == 3


# --- late ticks of a schedule that is changed before a scheduler has handled them


async def change_rule(app: App) -> Schedule:
    return await app.schedules.change("s", every="2h")


async def deploy(app: App) -> Schedule:
    """Start a worker with another cron text, after downtime."""
    other = App("sqlite:///:memory:", name=app.name, settings=app.settings)
    other.state = app.state
    other.emit = app.emit
    work = sleeping_task(other, Runs())
    other.schedules.declare("s", work, cron="30 * * * *", catchup="all")
    await other.schedules.declare_at_start()
    return await app.schedules.get("s")


async def pause_and_resume(app: App) -> Schedule:
    await app.schedules.pause("s", "maintenance")
    await app.clock.sleep(2 * HOUR)
    return await app.schedules.resume("s")


@pytest.mark.parametrize(
    ("people", "reason"),
    [(change_rule, "changed"), (deploy, "changed"), (pause_and_resume, "paused")],
)
@virtual
async def test_a_change_counts_and_reports_late_ticks(
    app: App, people: Callable[[App], Awaitable[Schedule]], reason: str
) -> None:
    """Without a scheduler for 5.5 h; ticks of the pause itself are not late."""
    events, work = Events(app), sleeping_task(app, Runs())
    app.schedules.declare("s", work, cron="0 * * * *", catchup="all")
    await app.schedules.declare_at_start()
    await until(app, 5.5 * HOUR)
    assert (await app.schedules.get("s")).state == "missed"
    schedule = await people(app)
    assert (schedule.run_count, schedule.skipped_count) == (0, 5)
    assert [(tick.skipped, offset(tick.due_at)) for tick in schedule.ticks] == [
        (reason, 5 * HOUR)
    ]
    assert events.named("schedule.skipped") == [
        {
            "schedule": "s",
            "reason": reason,
            "count": 5,
            "first_at": at(HOUR).isoformat(),
            "last_at": at(5 * HOUR).isoformat(),
            "at_least": False,
        }
    ]
    assert events.named("schedule.missed") == [{"schedule": "s", "seconds": 16200.0}]
    assert schedule.state == "active"
    assert offset(schedule.next_at) > 5.5 * HOUR


@virtual
async def test_skipped_ticks_on_working_days_are_counted_without_holidays(
    app: App,
) -> None:
    """Ten days without a scheduler, two of them excluded."""
    events = Events(app)
    await app.schedules.create(
        "s",
        sleeping_task(app, Runs()),
        every="1h",
        start=at(16 * HOUR),  # midnight
        exclude=["2027-01-18", "2027-01-19"],
    )
    await until(app, 16 * HOUR + 10 * DAY - 1)
    await (await ticker_of(app)).turn()
    assert events.skipped == {"catchup": 8 * 24 - 1}
    assert await tick_times(app, "s") == [16 * HOUR + 10 * DAY - HOUR]
