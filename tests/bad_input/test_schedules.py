"""Mistakes in schedules: each is refused with its value and a cure, and nothing is stored."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from durio import App, Cron
from durio.errors import (
    DurioError,
    InvalidArguments,
    InvalidName,
    InvalidOption,
    InvalidPlan,
    InvalidSchedule,
    ScheduleConflict,
    ScheduleNotFound,
    UnknownTask,
)
from durio.keys import replace
from durio.model.backfill import backfills_kind
from durio.model.schedule import schedules_kind
from durio.plans import chain, group
from tests.bad_input.refusals import declined, refused
from tests.schedules.schedule_harness import DAY, HOUR, Events, at, ticker_of, until
from tests.unit.app.app_harness import MEMORY, records, virtual

PARIS = ZoneInfo("Europe/Paris")


def shop(app: App) -> Any:
    @app.task(name="digest")
    async def digest(user: int, subject: str = "") -> None: ...

    return digest


async def stored_records(app: App) -> list[Any]:
    store = await app.store()
    return [
        *await store.list_records(schedules_kind(app.name)),
        *await store.list_records(backfills_kind(app.name)),
    ]


@asynccontextmanager
async def unchanged(
    app: App, error: type[DurioError], *words: str
) -> AsyncIterator[None]:
    """What happens inside is refused; records and jobs are as they were."""
    before = await stored_records(app)
    async with refused(app, error, *words):
        yield
    assert await stored_records(app) == before


# --- rules and choices: at create, at a change, and in code

BAD_RULES: dict[str, tuple[dict[str, Any], type[DurioError], list[str]]] = {
    "no rule": (
        {},
        InvalidSchedule,
        ["one of cron, every and at", "nothing says when"],
    ),
    "cron and every": (
        {"cron": "0 2 * * *", "every": "5m"},
        InvalidSchedule,
        ["cron and every are given", 'Give one: cron="0 2 * * *"'],
    ),
    "all of them": (
        {"cron": "0 2 * * *", "every": "5m", "at": at(5)},
        InvalidSchedule,
        ["cron and every and at are given"],
    ),
    "@every and every": (
        {"cron": "@every 5m", "every": "5m"},
        InvalidSchedule,
        ["cron and every are given"],
    ),
    "a wrong minute": (
        {"cron": "61 2 * * *"},
        InvalidSchedule,
        ["'61 2 * * *'", "field 1 (minute)", "'61'", "0 to 59"],
    ),
    "a wrong day of the week": (
        {"cron": "0 2 * * MOM"},
        InvalidSchedule,
        ["field 5 (day of week)", "'MOM'", "Did you mean 'MON'?"],
    ),
    "four fields": ({"cron": "0 2 * *"}, InvalidSchedule, ["4 fields, not 5 or 6"]),
    "seven fields": (
        {"cron": "0 0 2 * * * 2030"},
        InvalidSchedule,
        ["7 fields, not 5 or 6", "no field for the year"],
    ),
    "30 February": (
        {"cron": "0 2 30 2 *"},
        InvalidSchedule,
        ["field 3 (day of month)", "'30'", "never occurs"],
    ),
    "the nearest weekday": (
        {"cron": "0 2 15W * *"},
        InvalidSchedule,
        ["'15W'", "W, the nearest weekday, is not supported"],
    ),
    "no text": ({"cron": 5}, InvalidSchedule, ["must be str, not int"]),
    "an unknown zone": (
        {"cron": "0 2 * * *", "tz": "Europe/Pari"},
        InvalidSchedule,
        ["no time zone 'Europe/Pari'", "Did you mean 'Europe/Paris'?"],
    ),
    "an unknown zone of an interval": (
        {"every": "5m", "tz": "Mars"},
        InvalidSchedule,
        ["no time zone 'Mars'"],
    ),
    "the zone of the machine": (
        {"cron": "0 2 * * *", "tz": "local"},
        InvalidSchedule,
        ["'local'", "differs between machines"],
    ),
    "a zone that counts leap seconds": (
        {"cron": "0 2 * * *", "tz": "right/Europe/Paris"},
        InvalidSchedule,
        ["'right/Europe/Paris': its clocks count leap seconds", "tz='Europe/Paris'"],
    ),
    "two zones": (
        {"cron": Cron("0 2 * * *", tz="Asia/Tokyo"), "tz": "Europe/Paris"},
        InvalidSchedule,
        ["in Asia/Tokyo, and tz is Europe/Paris", "Leave tz out"],
    ),
    "an end before the start": (
        {"every": "5m", "start": at(2 * DAY), "end": at(DAY)},
        InvalidSchedule,
        ["the end 2027-01-16 08:00:00", "is not after the start 2027-01-17 08:00:00"],
    ),
    "an end at the start": (
        {"cron": "0 2 * * *", "start": at(DAY), "end": at(DAY)},
        InvalidSchedule,
        ["is not after the start"],
    ),
    "an interval of 0": ({"every": 0}, InvalidSchedule, ["an interval of 0", "100 ms"]),
    "an interval below the bound": (
        {"every": "99ms"},
        InvalidSchedule,
        ["an interval of '99ms' is too short", "The shortest is 100 ms"],
    ),
    "a negative interval": ({"every": -5}, InvalidOption, ["every cannot be -5"]),
    "an interval that is no duration": (
        {"every": "5 minutes"},
        InvalidOption,
        ["every cannot be '5 minutes'", "'5m'"],
    ),
    "@every of nothing": ({"cron": "@every"}, InvalidOption, ["every cannot be ''"]),
    "a naive time": (
        {"at": datetime(2030, 1, 31, 9)},  # noqa: DTZ001 - on purpose
        InvalidSchedule,
        ["at has no time zone: 2030-01-31T09:00:00", "tzinfo=UTC"],
    ),
    "a naive start": (
        {"every": "5m", "start": datetime(2030, 1, 31)},  # noqa: DTZ001 - on purpose
        InvalidSchedule,
        ["start has no time zone"],
    ),
    "a naive end": (
        {"every": "5m", "end": datetime(2030, 1, 31)},  # noqa: DTZ001 - on purpose
        InvalidSchedule,
        ["end has no time zone"],
    ),
    "a time as text": (
        {"at": "2030-01-31T09:00"},
        InvalidSchedule,
        ["at cannot be '2030-01-31T09:00'", "datetime(2030, 1, 31, 9, tzinfo=UTC)"],
    ),
    "a date as a time": ({"at": date(2030, 1, 31)}, InvalidSchedule, ["at cannot be"]),
    "a time that daylight saving skips": (
        {"at": datetime(2027, 3, 28, 2, 30, tzinfo=PARIS)},
        InvalidSchedule,
        [
            "at is 2027-03-28T02:30:00+01:00, a time that daylight saving skips",
            "The clock shows 2027-03-28T03:30:00+02:00",
        ],
    ),
    "a start that daylight saving skips": (
        {"every": "1d", "start": datetime(2027, 3, 28, 2, 30, tzinfo=PARIS)},
        InvalidSchedule,
        ["start is 2027-03-28T02:30:00"],
    ),
    "the end of all times": (
        {"every": "5m", "end": datetime.max.replace(tzinfo=UTC)},
        InvalidSchedule,
        ["end is in the year 9999", "or leave end out"],
    ),
    "jitter of an interval": (
        {"every": "5m", "jitter": "5m"},
        InvalidSchedule,
        ["jitter of 5 min is not shorter than the interval of 5 min"],
    ),
    "jitter of more than an interval": (
        {"cron": "0 * * * *", "jitter": "2h"},
        InvalidSchedule,
        ["jitter of 2 h is not shorter than the interval of 60 min"],
    ),
    "jitter of a shorter interval that comes later": (
        {"cron": "0 9,10 * * *", "jitter": "2h"},
        InvalidSchedule,
        ["jitter of 2 h is not shorter than the interval of 60 min between two ticks"],
    ),
    "jitter of an interval in another month": (
        {"cron": "0 0 1,15,16 * *", "jitter": "1d"},
        InvalidSchedule,
        ["jitter of 24 h is not shorter than the interval of 24 h"],
    ),
    "jitter that is no duration": (
        {"every": "5m", "jitter": "some"},
        InvalidOption,
        ["jitter cannot be 'some'"],
    ),
    "no runs": (
        {"every": "5m", "max_runs": 0},
        InvalidSchedule,
        ["max_runs cannot be 0", "from 1 to 1,000,000,000"],
    ),
    "runs as text": (
        {"every": "5m", "max_runs": "3"},
        InvalidSchedule,
        ["max_runs cannot be '3'"],
    ),
    "no late ticks": (
        {"every": "5m", "catchup_max": 0},
        InvalidSchedule,
        ["catchup_max cannot be 0", "from 1 to 1,000"],
    ),
    "too many late ticks": (
        {"every": "5m", "catchup_max": 1001},
        InvalidSchedule,
        ["catchup_max cannot be 1001"],
    ),
    "an endless window": (
        {"every": "5m", "catchup_window": float("inf")},
        InvalidOption,
        ["catchup_window cannot be inf"],
    ),
    "an unknown overlap": (
        {"every": "5m", "overlap": "skipp"},
        InvalidSchedule,
        ["overlap cannot be 'skipp'", "Did you mean 'skip'?"],
    ),
    "an unknown catchup": (
        {"every": "5m", "catchup": True},
        InvalidSchedule,
        ["catchup cannot be True", "none, latest, all"],
    ),
    "an unknown choice": (
        {"every": "5m", "overlaps": "skip"},
        InvalidSchedule,
        ["a schedule has no 'overlaps'", "Did you mean 'overlap'?"],
    ),
    "a flag that is no flag": (
        {"every": "5m", "pause_on_failure": "yes"},
        InvalidOption,
        ["pause_on_failure cannot be 'yes'", "True or False"],
    ),
    "a fixed delay of cron": (
        {"cron": "0 2 * * *", "fixed_delay": True},
        InvalidSchedule,
        ["fixed_delay is for every="],
    ),
    "a date that is none": (
        {"every": "5m", "exclude": ["2030-02-30"]},
        InvalidSchedule,
        ["exclude has '2030-02-30', which is not a date", "'2030-12-25'"],
    ),
    "dates that are none": (
        {"every": "5m", "exclude": 5},
        InvalidSchedule,
        ["exclude cannot be 5"],
    ),
    "too many dates": (
        {
            "every": "5m",
            "exclude": [date(2027, 1, 1) + timedelta(days=n) for n in range(367)],
        },
        InvalidSchedule,
        ["367 dates are excluded", "at most 366"],
    ),
}
# These are wrong only by the time at which they are stored.
BAD_NOW: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a one-shot in the past": (
        {"at": at(-1)},
        [
            "at is 2027-01-15 07:59:59+00:00, which is in the past",
            "enqueue the task now",
        ],
    ),
    "a one-shot now": ({"at": at(0)}, ["which is in the past"]),
    "a one-shot in the past of a zone": (
        {"at": datetime(2027, 1, 15, 8, 30, tzinfo=timezone(timedelta(hours=2)))},
        ["at is 2027-01-15 06:30:00+00:00"],
    ),
    "an end in the past": (
        {"cron": "0 2 * * *", "end": at(-HOUR)},
        ["the schedule has no time after 2027-01-15 08:00:00+00:00"],
    ),
    "an end before the first tick": (
        {"every": "2h", "end": at(HOUR)},
        ["the schedule has no time after"],
    ),
    "an end before the first delay": (
        {"every": "2h", "fixed_delay": True, "end": at(HOUR)},
        ["the schedule has no time after"],
    ),
    "excluded dates that leave none": (
        {
            "every": "1h",
            "end": at(2 * DAY),
            "exclude": [date(2027, 1, day) for day in (15, 16, 17)],
        },
        ["no date that is not excluded after 2027-01-15 08:00:00", "exclude"],
    ),
    "an excluded one-shot": (
        {"at": at(DAY), "exclude": "2027-01-16"},
        ["no date that is not excluded"],
    ),
}


@pytest.mark.parametrize("name", BAD_RULES)
@virtual
async def test_a_schedule_with_a_mistake(app: App, name: str) -> None:
    """It is not created, and one that is changed so stays as it was."""
    rule, error, words = BAD_RULES[name]
    digest = shop(app)
    async with unchanged(app, error, *words):
        await app.schedules.create("s", digest, args=(42,), **rule)
    await app.schedules.create("s", digest, args=(42,), cron="0 9 * * *")
    if rule:
        async with unchanged(app, error, *words):
            await app.schedules.change("s", **rule)


@pytest.mark.parametrize("name", BAD_RULES)
def test_code_with_a_mistake(name: str) -> None:
    """It is refused when the module is loaded."""
    app = App(MEMORY, name="shop")
    rule, error, words = BAD_RULES[name]
    digest = shop(app)
    with declined(error, *words):
        app.schedules.declare("s", digest, args=(42,), **rule)
    assert app.schedules.declared == {}


@pytest.mark.parametrize("name", BAD_NOW)
@virtual
async def test_a_schedule_that_would_never_run(app: App, name: str) -> None:
    rule, words = BAD_NOW[name]
    digest = shop(app)
    async with unchanged(app, InvalidSchedule, *words):
        await app.schedules.create("s", digest, args=(42,), **rule)
    await app.schedules.create("other", digest, args=(42,), cron="0 9 * * *")
    async with unchanged(app, InvalidSchedule, *words):
        await app.schedules.change("other", **rule)


def test_code_may_be_older_than_its_schedules() -> None:
    """A worker must start, though a time in its code has passed meanwhile."""
    app = App(MEMORY, name="shop")
    digest = shop(app)
    app.schedules.declare(
        "once", digest, args=(42,), at=datetime(2020, 1, 1, tzinfo=UTC)
    )
    assert set(app.schedules.declared) == {"once"}


CRON_TEXTS = {
    "60 * * * *": "field 1 (minute)",
    "* 24 * * *": "field 2 (hour)",
    "* * 0 * *": "field 3 (day of month)",
    "* * * 13 *": "field 4 (month)",
    "* * * * 8": "field 5 (day of week)",
    "60 * * * * *": "field 1 (second)",
    "* * 31 4 *": "field 3 (day of month)",
    "5-1 * * * *": "goes backwards",
    "*/0 * * * *": "step 0",
    "": "0 fields",
    "@dayly": "Did you mean '@daily'?",
    "@reboot": "enqueue the job where your program starts",
    "TZ=UTC 0 2 * * *": "begins with a setting",
}


@pytest.mark.parametrize("text", CRON_TEXTS)
def test_cron_texts_are_refused_by_the_decorator(text: str) -> None:
    app = App(MEMORY, name="shop")

    async def clean() -> None: ...

    with declined(InvalidSchedule, CRON_TEXTS[text]):
        app.cron(text, name="s")(app.task(name="clean")(clean))
    assert app.schedules.declared == {}


def test_intervals_are_refused_by_the_decorator() -> None:
    app = App(MEMORY, name="shop")
    digest = shop(app)
    with declined(InvalidSchedule, "an interval of '1ms' is too short"):
        app.every("1ms", args=(42,))(digest)
    with declined(InvalidArguments, "user"):
        app.every("5m")(digest)
    with declined(InvalidSchedule, "no options of a task", "@app.task(...) below it"):
        app.every("5m", args=(42,))(queue="low")(digest)
    assert app.schedules.declared == {}


# --- names


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 129, "a/b", 5, None])
@virtual
async def test_a_name_that_cannot_be(app: App, name: Any) -> None:
    digest = shop(app)
    async with unchanged(
        app, InvalidSchedule, "a schedule cannot be named", "1 to 128"
    ):
        await app.schedules.create(name, digest, args=(42,), every="5m")
    with declined(InvalidSchedule, "a schedule cannot be named"):
        app.schedules.declare(name, digest, args=(42,), every="5m")


def test_two_declarations_of_one_name() -> None:
    app = App(MEMORY, name="shop")
    digest = shop(app)
    app.every("5m", name="s", args=(42,))(digest)
    words = ["two schedules are named 's'", "test_schedules.py", "name='...'"]
    with declined(InvalidSchedule, *words):
        app.cron("0 2 * * *", name="s", args=(42,))(digest)
    assert app.schedules.declared["s"].definition.rule.every == 300.0


def test_too_many_declarations() -> None:
    app = App(MEMORY, name="shop")
    digest = shop(app)
    for n in range(400):
        app.schedules.declare(f"s{n}", digest, args=(42,), every="5m")
    with declined(InvalidSchedule, "more than 400 schedules", "app.schedules.create"):
        app.schedules.declare("one-more", digest, args=(42,), every="5m")


@virtual
async def test_a_name_that_exists(app: App) -> None:
    digest = shop(app)
    await app.schedules.create("s", digest, args=(42,), every="5m")
    words = ["there is a schedule 's' already", "app.schedules.change"]
    async with unchanged(app, ScheduleConflict, *words):
        await app.schedules.create("s", digest, args=(43,), every="1h")


@pytest.mark.parametrize("name", ["s", "", "a b", "x" * 200, 5, None, b"s", ["s"]])
@virtual
async def test_a_name_that_does_not_exist(app: App, name: Any) -> None:
    times = at(-DAY), at(0)
    calls: list[Callable[[], Any]] = [
        lambda: app.schedules.get(name),
        lambda: app.schedules.preview(name),
        lambda: app.schedules.change(name, every="5m"),
        lambda: app.schedules.change(name, args=(42,)),
        lambda: app.schedules.pause(name),
        lambda: app.schedules.resume(name),
        lambda: app.schedules.reset(name),
        lambda: app.schedules.run(name),
        lambda: app.schedules.delete(name),
        lambda: app.schedules.backfill(name, *times),
    ]
    for call in calls:
        async with unchanged(
            app, ScheduleNotFound, f"no schedule {name!r:.100}", "schedules ls"
        ):
            await call()
    async with unchanged(app, ScheduleNotFound, f"no backfill {name!r:.50}"):
        await app.schedules.cancel_backfill(name)


# --- tasks and arguments


@virtual
async def test_a_task_that_does_not_exist(app: App) -> None:
    digest = shop(app)
    async with unchanged(app, UnknownTask, "'app.digst'", "Did you mean 'app.digest'?"):
        await app.schedules.create("s", "digst", args=(42,), every="5m")
    await app.schedules.create("s", digest, args=(42,), every="5m")
    async with unchanged(app, UnknownTask, "'app.digst'"):
        await app.schedules.change("s", "digst", args=(42,))


@virtual
async def test_a_plan_with_a_task_that_does_not_exist(app: App) -> None:
    digest = shop(app)
    plan = chain(digest.s(42), app.si("digst"))
    async with unchanged(app, UnknownTask, "'app.digst'"):
        await app.schedules.create("s", plan, every="5m")


BAD_ARGUMENTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "missing": ({}, ["digest() needs the argument 'user'"]),
    "too many": ({"args": (1, "a", 2)}, ["digest() takes 2 positional arguments"]),
    "unknown": ({"kwargs": {"user": 1, "to": "a"}}, ["no parameter 'to'"]),
    "of another type": ({"args": ("ann",)}, ["'user'", "int"]),
    "twice": ({"args": (1,), "kwargs": {"user": 2}}, ["'user'"]),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
@virtual
async def test_arguments_that_do_not_fit(app: App, name: str) -> None:
    call, words = BAD_ARGUMENTS[name]
    digest = shop(app)
    async with unchanged(app, InvalidArguments, *words):
        await app.schedules.create("s", digest, every="5m", **call)
    async with unchanged(app, InvalidArguments):
        await app.schedules.create("s", "digest", every="5m", **call)
    await app.schedules.create("s", digest, args=(42,), every="5m")
    async with unchanged(app, InvalidArguments, *words):
        await app.schedules.change("s", digest, **call)


@pytest.mark.parametrize("args", [42, "in", b"x", {"user": 42}, {42}])
@virtual
async def test_args_that_are_no_tuple(app: App, args: Any) -> None:
    """`args=(42)` is a number, and a text would be one argument for each character."""
    digest = shop(app)
    create, change = app.schedules.create, app.schedules.change
    words = f"args cannot be {args!r}", "args=(42,)"
    with declined(InvalidSchedule, *words):
        app.every("5m", args=args)(digest)
    async with unchanged(app, InvalidSchedule, *words):
        await create("s", digest, args=args, every="5m")
    await create("s", digest, args=(42,), every="5m")
    async with unchanged(app, InvalidSchedule, *words):
        await change("s", args=args)
    async with unchanged(app, InvalidSchedule, *words):
        await change("s", digest, args=args)


@pytest.mark.parametrize("kwargs", [42, "in", ["user"], {42: 1}])
@virtual
async def test_kwargs_that_are_no_names(app: App, kwargs: Any) -> None:
    digest = shop(app)
    words = f"kwargs cannot be {kwargs!r}", "kwargs={'user': 42}"
    async with unchanged(app, InvalidSchedule, *words):
        await app.schedules.create("s", digest, kwargs=kwargs, every="5m")


@virtual
async def test_what_a_schedule_cannot_run(app: App) -> None:
    digest, other = shop(app), App(MEMORY, name="bank")
    pay = shop(other)
    create, key = app.schedules.create, "Each tick makes its job once without a key"
    async with unchanged(app, InvalidSchedule, "cannot run 5", "Pass a task, its name"):
        await create("s", 5, every="5m")
    async with unchanged(app, InvalidName, "a task cannot be named"):
        await create("s", "no such name", every="5m")
    async with unchanged(app, InvalidSchedule, "has its arguments", "to .s(...)"):
        await create("s", digest.s(1), args=(2,), every="5m")
    async with unchanged(app, InvalidPlan, "bank.digest"):
        await create("s", pay.s(1), every="5m")
    async with unchanged(app, InvalidSchedule, "cannot have key=", key):
        await create("s", digest.options(key="k").s(1), every="5m")
    async with unchanged(app, InvalidSchedule, "cannot have key="):
        await create("s", digest.options(key="k", unique=replace).s(1), every="5m")
    async with unchanged(app, InvalidSchedule, "cannot have at=", "leave at out"):
        await create("s", digest.options(at=at(DAY)).s(1), every="5m")
    async with unchanged(app, InvalidSchedule, "cannot have key="):
        await create("s", chain(digest.s(1)).options(key="k"), every="5m")
    async with unchanged(app, InvalidSchedule, "on_error handlers", "chain(signature)"):
        await create("s", digest.s(1).on_error(digest.si(2)), every="5m")
    async with unchanged(app, InvalidSchedule, "the plan has 901 jobs", "at most 900"):
        await create("s", group([digest.s(1)] * 901), every="5m")
    async with unchanged(
        app, InvalidSchedule, "bytes", "at most 24,576", "pass its id"
    ):
        await create("s", digest, args=(1, "x" * 25_000), every="5m")
    async with unchanged(
        app, InvalidSchedule, "bytes", "a task that enqueues the plan"
    ):
        await create("s", group([digest.s(1, "x" * 500)] * 50), every="5m")


@virtual
async def test_large_arguments_of_people_and_of_the_code(app: App) -> None:
    """The record keeps both, so they have a bound together."""
    digest = shop(app)
    declare = app.schedules.declare
    declare("s", digest, args=(1, "x" * 20_000), every="5m")
    await app.schedules.declare_at_start()
    async with unchanged(app, InvalidSchedule, "'s' has 10,", "28,672 bytes"):
        await app.schedules.change("s", args=(1, "y" * 10_000))
    await app.schedules.change("s", args=(1, "y" * 5_000))
    app.schedules.declared.clear()
    declare("s", digest, args=(1, "x" * 24_000), every="5m")
    events = Events(app)
    before = await stored_records(app)
    await app.schedules.declare_at_start()
    assert await stored_records(app) == before
    (failed,) = events.named("schedule.failed")
    assert "the code declares 24," in failed["error"]


@virtual
async def test_other_arguments_for_a_plan(app: App) -> None:
    digest = shop(app)
    await app.schedules.create("s", chain(digest.s(1), digest.si(2)), every="5m")
    async with unchanged(app, InvalidSchedule, "'s' runs a plan", "Pass another plan"):
        await app.schedules.change("s", args=(3,))


# --- changes that people make at the same time


@virtual
async def test_an_edit_from_an_older_version(app: App) -> None:
    """The message shows what the schedule is now."""
    digest = shop(app)
    first = await app.schedules.create("s", digest, args=(42,), every="5m")
    await app.clock.sleep(1)
    await app.schedules.change("s", cron="0 9 * * *", overlap="allow", catchup="none")
    words = [
        f"the schedule 's' has version {(await app.schedules.get('s')).version} now",
        f"not {first.version}",
        "At 09:00 every day (UTC)",
        "overlap allow",
        "catch-up none",
        "Read it again",
    ]
    async with unchanged(app, ScheduleConflict, *words):
        await app.schedules.change("s", every="1h", version=first.version)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"args": (43,)}, ['"args":[43]', "Last action: change, by"]),
        ({"args": (43, "x" * 400)}, ["xxx..."]),
        ({"jitter": "10s"}, ["jitter 10 s"]),
        ({"max_runs": 7, "pause_on_failure": True}, ["max runs 7", "failure pause"]),
        ({"catchup_window": "2h", "catchup_max": 9}, ["window 2 h", "catch-up max 9"]),
        (
            {"start": at(HOUR), "end": at(DAY), "tz": "Europe/Paris"},
            ["start 2027-01-15 09:00", "end 2027-01-16 08:00", "tz Europe/Paris"],
        ),
        ({"exclude": ["2027-12-25"]}, ["except on 2027-12-25"]),
        (None, ["paused by ", ": the disk is full", "Last action: pause: the disk"]),
    ],
)
@virtual
async def test_an_older_edit_shows_every_change(
    app: App, change: dict[str, Any] | None, words: list[str]
) -> None:
    """What the refused edit would overwrite, and who did what last."""
    digest = shop(app)
    first = await app.schedules.create("s", digest, args=(42,), every="5m")
    await app.clock.sleep(1)
    if change is None:
        await app.schedules.pause("s", "the disk is full")
    else:
        await app.schedules.change("s", **change)
    async with unchanged(app, ScheduleConflict, *words):
        await app.schedules.change("s", overlap="allow", version=first.version)


@virtual
async def test_an_edit_of_a_schedule_that_was_made_again(app: App) -> None:
    digest = shop(app)
    first = await app.schedules.create("s", digest, args=(42,), every="5m")
    await app.schedules.delete("s")
    async with unchanged(app, ScheduleNotFound, "no schedule 's'"):
        await app.schedules.change("s", every="1h", version=first.version)
    await app.clock.sleep(1)
    await app.schedules.create("s", digest, args=(42,), every="5m")
    async with unchanged(app, ScheduleConflict, f"not {first.version}"):
        await app.schedules.change("s", every="1h", version=first.version)


@virtual
async def test_an_edit_after_a_tick_is_no_conflict(app: App) -> None:
    """Ticks are no changes by people: an editor may be open for a while."""
    digest = shop(app)
    first = await app.schedules.create("s", digest, args=(42,), every="5m")
    await until(app, 300)
    await (await ticker_of(app)).turn()
    assert len(await records(app)) == 1
    changed = await app.schedules.change("s", every="1h", version=first.version)
    assert changed.every == 3600.0


# --- backfills and previews


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (at(0), at(HOUR), ["which is in the future", "end at the present or before"]),
        (at(-HOUR), at(-DAY), ["ends at 2027-01-14T08:00:00", "Exchange them"]),
        (at(-HOUR), at(-HOUR), ["Exchange them"]),
        (at(-36_003_600), at(0), ["more than 10,000 ticks", "shorter times"]),
        (
            at(-1000),
            at(-900),
            [
                "no tick from 2027-01-15T07:43:20",
                "It is due: At the start of every hour",
            ],
        ),
        (at(-DAY).replace(tzinfo=None), at(0), ["start has no time zone"]),
        (at(-DAY), at(0).replace(tzinfo=None), ["end has no time zone"]),
        (
            datetime(2026, 3, 29, 2, 30, tzinfo=PARIS),
            at(0),
            ["start is 2026-03-29T02:30:00+01:00, a time that daylight saving skips"],
        ),
        ("2027-01-01", at(0), ["start cannot be '2027-01-01'"]),
    ],
)
@virtual
async def test_a_backfill_that_cannot_be(
    app: App, start: Any, end: Any, words: list[str]
) -> None:
    await app.schedules.create("s", shop(app), args=(42,), cron="0 * * * *")
    async with unchanged(app, InvalidSchedule, *words):
        await app.schedules.backfill("s", start, end)


@pytest.mark.parametrize("at_a_time", [0, 401, -1, True, "5", 1.5])
@virtual
async def test_a_backfill_with_a_wrong_limit(app: App, at_a_time: Any) -> None:
    await app.schedules.create("s", shop(app), args=(42,), cron="0 * * * *")
    async with unchanged(app, InvalidSchedule, f"cannot be {at_a_time!r}", "1 to 400"):
        await app.schedules.backfill("s", at(-DAY), at(0), at_a_time=at_a_time)


@virtual
async def test_a_backfill_of_a_fixed_delay(app: App) -> None:
    """It has no times in the past."""
    choices: dict[str, Any] = {"every": "5m", "fixed_delay": True}
    await app.schedules.create("s", shop(app), args=(42,), **choices)
    async with unchanged(app, InvalidSchedule, "'s' has a fixed delay"):
        await app.schedules.backfill("s", at(-DAY), at(0))


@virtual
async def test_a_preview_that_cannot_be(app: App) -> None:
    await app.schedules.create("s", shop(app), args=(42,), cron="0 * * * *")
    async with unchanged(app, InvalidSchedule, "after has no time zone"):
        await app.schedules.preview("s", after=at(0).replace(tzinfo=None))
    for count in (0, -1, 1001, True, "5"):
        async with unchanged(
            app, InvalidSchedule, f"have {count!r} ticks", "1 to 1000"
        ):
            await app.schedules.preview("s", count)  # type: ignore[arg-type]


def test_a_decorator_without_parentheses_is_refused_where_it_is_written() -> None:
    app = App(name="forgotten")

    async def clean_up() -> None: ...

    task: Any = app.task(name="clean_up")(clean_up)
    with pytest.raises(InvalidOption, match="every cannot be"):
        app.every(task)
    with pytest.raises(InvalidSchedule):
        app.cron(task)
