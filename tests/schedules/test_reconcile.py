"""What the code declares, what people changed, and which of them counts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from durio import App
from durio.errors import InvalidSchedule, ScheduleNotFound
from durio.maintenance.undeclared import UndeclaredSchedules
from durio.model.effects import Effects, Put
from durio.model.schedule import schedules_kind
from durio.ports.lease import WorkerInfo
from durio.schedules import Schedule
from tests.faults.faulty_store import FaultyStore
from tests.schedules.schedule_harness import (
    DAY,
    HOUR,
    MINUTE,
    Events,
    Runs,
    at,
    body_of,
    offset,
    record_of,
    sleeping_task,
    tick_times,
    ticker_of,
    turns,
    until,
)
from tests.unit.app.app_harness import virtual, working

EXCLUDED = ["2027-01-15", "2027-01-16", "2027-01-17"]
V1, V2, PEOPLE = {"every": "5m"}, {"every": "7m"}, {"every": "11m"}
INTERVALS = {300.0: "v1", 420.0: "v2", 660.0: "people"}


def other_version(app: App, **choices: Any) -> App:
    """Return an App with other code on the same store; without choices, it declares none."""
    other = App("sqlite:///:memory:", name=app.name, settings=app.settings)
    other.state = app.state
    work = sleeping_task(other, Runs())
    if choices:
        other.schedules.declare("s", work, **choices)
    return other


async def undeclared(app: App) -> UndeclaredSchedules:
    store = await app.store()
    return UndeclaredSchedules(store, app.clock, app.emit, app.name)


async def look_for(looking: UndeclaredSchedules, minutes: int) -> None:
    """Let the leader look once a minute."""
    for _ in range(minutes):
        await looking.clock.sleep(await looking.turn())
    await looking.turn()


# --- what people do to a schedule that the code declares


async def leave(app: App) -> None:
    """Do nothing."""


async def edit(app: App) -> None:
    await app.schedules.change("s", **PEOPLE)


async def pause(app: App) -> None:
    await app.schedules.pause("s", "maintenance")


async def delete(app: App) -> None:
    await app.schedules.delete("s")


async def pause_and_resume(app: App) -> None:
    await pause(app)
    await app.schedules.resume("s")


async def edit_and_reset(app: App) -> None:
    await edit(app)
    await app.schedules.reset("s")


async def edit_and_pause(app: App) -> None:
    await edit(app)
    await pause(app)


class Found(NamedTuple):
    """A schedule after people and the second version of the code."""

    rule: str
    state: str
    origin: str
    code: str | None = None  # what the code says, if it does not count


GONE = None
STORIES: dict[tuple[Any, str], Found | None] = {
    (leave, "same"): Found("v1", "active", "code"),
    (leave, "changed"): Found("v2", "active", "code"),
    (leave, "removed"): Found("v1", "paused", "code"),
    (edit, "same"): Found("people", "active", "manual", "v1"),
    (edit, "changed"): Found("people", "active", "manual", "v2"),
    (edit, "removed"): Found("people", "active", "manual"),
    (pause, "same"): Found("v1", "paused", "code"),
    (pause, "changed"): Found("v2", "paused", "code"),
    (pause, "removed"): Found("v1", "paused", "code"),
    (pause_and_resume, "same"): Found("v1", "active", "code"),
    (pause_and_resume, "changed"): Found("v2", "active", "code"),
    (pause_and_resume, "removed"): Found("v1", "paused", "code"),
    (edit_and_reset, "same"): Found("v1", "active", "code"),
    (edit_and_reset, "changed"): Found("v2", "active", "code"),
    (edit_and_reset, "removed"): Found("v1", "paused", "code"),
    (edit_and_pause, "same"): Found("people", "paused", "manual", "v1"),
    (edit_and_pause, "changed"): Found("people", "paused", "manual", "v2"),
    (edit_and_pause, "removed"): Found("people", "paused", "manual"),
    (delete, "same"): Found("v1", "active", "code"),
    (delete, "changed"): Found("v2", "active", "code"),
    (delete, "removed"): GONE,
}
CODE = {"same": V1, "changed": V2, "removed": {}}


def found(schedule: Schedule) -> Found:
    code = schedule.code
    rule = None if code is None else INTERVALS[code["rule"]["every"]]
    assert schedule.every is not None
    return Found(INTERVALS[schedule.every], schedule.state, schedule.origin, rule)


@pytest.mark.parametrize(
    ("people", "code"), STORIES, ids=lambda part: getattr(part, "__name__", part)
)
@virtual
async def test_people_and_the_next_version(
    app: App, people: Callable[[App], Any], code: str
) -> None:
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    await app.schedules.declare_at_start()
    await people(app)
    second = other_version(app, **CODE[code])
    await second.schedules.declare_at_start()
    if code == "removed":
        await look_for(await undeclared(app), minutes=6)
    expected = STORIES[people, code]
    if expected is GONE:
        with pytest.raises(ScheduleNotFound):
            await app.schedules.get("s")
        return
    schedule = await app.schedules.get("s")
    assert found(schedule) == expected
    if people in {pause, edit_and_pause}:
        assert schedule.note is not None
        assert schedule.note.endswith("maintenance"), "still the words of people"


@virtual
async def test_the_same_declaration_writes_nothing(app: App) -> None:
    """Or each start would move the ticks of an interval."""
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    await app.schedules.declare_at_start()
    before = await record_of(app, "s")
    await app.clock.sleep(MINUTE)
    await app.schedules.declare_at_start()
    assert await record_of(app, "s") == before


@virtual
async def test_a_changed_rule_counts_from_the_start_of_the_worker(app: App) -> None:
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    await app.schedules.declare_at_start()
    await until(app, 4 * MINUTE)
    await other_version(app, **V2).schedules.declare_at_start()
    assert offset((await app.schedules.get("s")).next_at) == 11 * MINUTE


@virtual
async def test_other_choices_leave_the_next_tick_as_it_is(app: App) -> None:
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    await app.schedules.declare_at_start()
    await until(app, 4 * MINUTE)
    second = other_version(app, **V1, overlap="allow", max_runs=3)
    await second.schedules.declare_at_start()
    schedule = await app.schedules.get("s")
    assert offset(schedule.next_at) == 5 * MINUTE
    assert (schedule.overlap, schedule.max_runs) == ("allow", 3)


@virtual
async def test_two_versions_do_not_fight(app: App) -> None:
    """Both run during a deploy; the later start wins, and nothing moves after it."""
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    second = other_version(app, **V2)
    async with working(app):
        await until(app, MINUTE)
        async with working(second):
            written = (await record_of(app, "s")).version
            await app.clock.sleep(2 * MINUTE)
            assert (await record_of(app, "s")).version == written
            schedule = await app.schedules.get("s")
            assert found(schedule) == Found("v2", "active", "code")
            assert offset(schedule.next_at) == 8 * MINUTE


@virtual
async def test_the_version_that_starts_later_wins(app: App) -> None:
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    second = other_version(app, **V2)
    for version, rule in ((app, "v1"), (second, "v2"), (app, "v1"), (second, "v2")):
        await version.schedules.declare_at_start()
        assert found(await app.schedules.get("s")).rule == rule


@virtual
async def test_a_deploy_that_removes_a_schedule(app: App) -> None:
    """It runs while an old worker lives; five minutes later the leader pauses it."""
    app.schedules.declare("s", sleeping_task(app, Runs()), every="1m")
    second = other_version(app)
    events = Events(second)
    async with working(second):
        async with working(app):
            await until(app, 1.5 * MINUTE)
        await until(app, 5 * MINUTE)
        assert (await app.schedules.get("s")).state == "active"
        await until(app, 7.5 * MINUTE)
        schedule = await app.schedules.get("s")
        assert schedule.state == "paused"
        assert schedule.note is not None
        assert "no live worker declares it" in schedule.note
        assert events.named("schedule.paused") == [
            {"schedule": "s", "why": "no live worker declares it"}
        ]
        ran = schedule.run_count
        await until(app, 8.5 * MINUTE)
        assert (await app.schedules.get("s")).run_count == ran


@virtual
async def test_a_later_declaration_resumes(app: App) -> None:
    """Ticks of the pause are not made up for, whatever `catchup` says."""
    choices: dict[str, Any] = {"every": "1m", "catchup": "all", "overlap": "allow"}
    app.schedules.declare("s", sleeping_task(app, Runs()), **choices)
    await app.schedules.declare_at_start()
    await look_for(await undeclared(app), minutes=6)
    assert (await app.schedules.get("s")).state == "paused"
    await app.schedules.declare_at_start()
    schedule = await app.schedules.get("s")
    assert (schedule.state, schedule.note) == ("active", None)
    assert schedule.skipped_count == 5, "late before the pause, which is at 5 min"
    await turns(await ticker_of(app), 2 * MINUTE)
    assert await tick_times(app, "s") == [7 * MINUTE, 8 * MINUTE]
    assert (await app.schedules.get("s")).skipped_count == 5


@virtual
async def test_people_may_resume_what_the_code_no_longer_declares(app: App) -> None:
    """It is theirs then, so the leader does not pause it again."""
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    await app.schedules.declare_at_start()
    looking = await undeclared(app)
    await look_for(looking, minutes=6)
    await app.schedules.resume("s")
    await look_for(looking, minutes=12)
    schedule = await app.schedules.get("s")
    assert (schedule.note, schedule.origin) == (None, "manual")
    assert schedule.next_at is not None, "the leader has not paused it again"
    with pytest.raises(InvalidSchedule, match="no code declares"):
        await app.schedules.reset("s")


@virtual
async def test_a_changed_schedule_that_the_code_drops(app: App) -> None:
    """It goes on as people said, and cannot be given back to code that is gone."""
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    await app.schedules.declare_at_start()
    await edit(app)
    edited = await app.schedules.get("s")
    looking = await undeclared(app)
    await look_for(looking, minutes=4)
    assert found(await app.schedules.get("s")).code == "v1"
    await look_for(looking, minutes=2)
    schedule = await app.schedules.get("s")
    assert found(schedule) == Found("people", "active", "manual")
    assert (schedule.next_at, schedule.version) == (edited.next_at, edited.version)
    with pytest.raises(InvalidSchedule, match="no code declares the schedule 's'"):
        await app.schedules.reset("s")
    assert found(await app.schedules.get("s")) == found(schedule)
    await app.schedules.change("s", max_runs=9, version=edited.version)
    written = (await record_of(app, "s")).version
    await look_for(looking, minutes=6)
    assert (await record_of(app, "s")).version == written, "nothing is left to do"
    await app.schedules.declare_at_start()
    assert found(await app.schedules.get("s")).code == "v1"
    await app.schedules.reset("s")
    assert found(await app.schedules.get("s")) == Found("v1", "active", "code")


@virtual
async def test_a_pause_of_people_outlives_a_declaration(app: App) -> None:
    """Also if the leader had paused the schedule before them."""
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    await app.schedules.declare_at_start()
    await look_for(await undeclared(app), minutes=6)
    await app.schedules.pause("s", "never again")
    await app.schedules.declare_at_start()
    schedule = await app.schedules.get("s")
    assert schedule.state == "paused"
    assert schedule.note is not None
    assert schedule.note.endswith("never again")


@virtual
async def test_a_schedule_is_absent_for_five_minutes_without_a_break(app: App) -> None:
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    await app.schedules.declare_at_start()
    looking = await undeclared(app)
    await look_for(looking, minutes=4)
    store = await app.store()
    info = WorkerInfo(app.name, "x/1", "x", 1, (), 1, "0", {}, schedules=("s",))
    worker = await store.register(info, 600)
    await look_for(looking, minutes=1)
    await store.leave(worker)
    await look_for(looking, minutes=4)
    assert (await app.schedules.get("s")).state == "active"
    await look_for(looking, minutes=2)
    assert (await app.schedules.get("s")).state == "paused"


@virtual
async def test_a_worker_whose_lease_has_ended_declares_nothing(app: App) -> None:
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    await app.schedules.declare_at_start()
    store = await app.store()
    info = WorkerInfo(app.name, "x/1", "x", 1, (), 1, "0", {}, schedules=("s",))
    await store.register(info, 2 * MINUTE)
    looking = await undeclared(app)
    await look_for(looking, minutes=6)
    assert (await app.schedules.get("s")).state == "active"
    await look_for(looking, minutes=2)
    assert (await app.schedules.get("s")).state == "paused"


@virtual
async def test_the_leader_pauses_only_what_it_has_read(app: App) -> None:
    """People change the schedule between its read and its write: theirs counts."""
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    await app.schedules.declare_at_start()
    slow: Any = FaultyStore(await app.store(), app.clock)
    looking = UndeclaredSchedules(slow, app.clock, app.emit, app.name)
    await look_for(looking, minutes=4)
    before = await record_of(app, "s")
    await app.clock.sleep(MINUTE)
    await edit(app)
    await looking._end_declaration(before)
    assert found(await app.schedules.get("s")) == Found(
        "people", "active", "manual", "v1"
    )


@virtual
async def test_manual_ended_and_damaged_schedules_are_not_paused(app: App) -> None:
    work, events = sleeping_task(app, Runs()), Events(app)
    app.schedules.declare("ended", work, every="1m", max_runs=1)
    app.schedules.declare("broken", work, every="1m")
    await app.schedules.declare_at_start()

    @app.task(name="note")
    async def note(body: dict[str, bool]) -> None: ...

    # Its arguments look like the record of a schedule of the code.
    await app.schedules.create("manual", note, args=({"is_manual": False},), **V1)
    await turns(await ticker_of(app), MINUTE)
    broken = (await record_of(app, "broken")).body.replace(
        b'"every":60', b'"every":"x"'
    )
    put = Put(schedules_kind(app.name), "broken", broken, due_at=app.clock.now())
    await (await app.store()).commit(Effects(puts=[put]))
    await look_for(await undeclared(app), minutes=6)
    assert events.named("schedule.paused") == []
    states = {
        name: (await app.schedules.get(name)).state for name in ("ended", "manual")
    }
    assert states == {"ended": "ended", "manual": "active"}


@virtual
async def test_the_leader_looks_at_all_schedules(app: App) -> None:
    """Also at those on a later page of the list."""
    app.schedules.declare("s", sleeping_task(app, Runs()), every="1h")
    await app.schedules.declare_at_start()
    record = await record_of(app, "s")
    kind, store = schedules_kind(app.name), await app.store()
    names = [f"s{n:03}" for n in range(520)]
    puts = [Put(kind, name, record.body, due_at=record.due_at) for name in names]
    await store.commit(Effects(puts=puts))
    await look_for(await undeclared(app), minutes=6)
    states = {schedule.state for schedule in await app.schedules.list()}
    assert states == {"paused"}


@pytest.mark.parametrize(
    ("choices", "rule"),
    [
        ({"at": at(-HOUR)}, "Once, at 2027-01-15 07:00:00+00:00"),
        (
            {"cron": "0 9 * * *", "end": at(2 * DAY), "exclude": EXCLUDED},
            "At 09:00 every day (UTC), except on 2027-01-15, 2027-01-16, 2027-01-17",
        ),
    ],
)
@virtual
async def test_a_declaration_without_a_tick(
    app: App, choices: dict[str, Any], rule: str
) -> None:
    """It is stored as ended, with one warning: at import no store has the time."""
    events, work = Events(app), sleeping_task(app, Runs())
    app.schedules.declare("s", work, **choices)
    for _ in range(2):
        await app.schedules.declare_at_start()
    assert (await app.schedules.get("s")).state == "ended"
    warnings = events.named("schedule.never_due")
    assert len(warnings) == 1
    assert warnings[0] == {"schedule": "s", "rule": rule}


# --- back to the code


@virtual
async def test_reset_gives_a_schedule_back_to_the_code(app: App) -> None:
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    await app.schedules.declare_at_start()
    await edit(app)
    await other_version(app, **V2).schedules.declare_at_start()
    await until(app, MINUTE)
    schedule = await app.schedules.reset("s")
    assert found(schedule) == Found("v2", "active", "code")
    assert offset(schedule.next_at) == 8 * MINUTE
    await app.schedules.declare_at_start()
    assert found(await app.schedules.get("s")).rule == "v1", "the code counts again"


@virtual
async def test_reset_needs_code(app: App) -> None:
    await app.schedules.create("s", sleeping_task(app, Runs()), **V1)
    with pytest.raises(InvalidSchedule, match="no code declares the schedule 's'"):
        await app.schedules.reset("s")


@virtual
async def test_a_schedule_that_people_created_first(app: App) -> None:
    """The code declares the same name later: it stays, and shows what the code says."""
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, **PEOPLE)
    app.schedules.declare("s", work, **V1)
    await app.schedules.declare_at_start()
    assert found(await app.schedules.get("s")) == Found(
        "people", "active", "manual", "v1"
    )


@virtual
async def test_counts_and_history_outlive_a_new_version(app: App) -> None:
    app.schedules.declare("s", sleeping_task(app, Runs()), **V1)
    await app.schedules.declare_at_start()
    await turns(await ticker_of(app), 11 * MINUTE)
    before = await app.schedules.get("s")
    await other_version(app, **V2).schedules.declare_at_start()
    after = await app.schedules.get("s")
    assert (after.run_count, after.skipped_count) == (1, 1)
    assert (after.ticks, after.last_at) == (before.ticks, before.last_at)
    assert (await body_of(app, "s")).live, "its run still counts for overlap"


@virtual
async def test_a_damaged_record_stops_no_worker(app: App) -> None:
    events, work = Events(app), sleeping_task(app, Runs())
    put = Put(schedules_kind(app.name), "broken", b"{", due_at=app.clock.now())
    await (await app.store()).commit(Effects(puts=[put]))
    app.schedules.declare("broken", work, **V1)
    app.schedules.declare("fine", work, **V1)
    await app.schedules.declare_at_start()
    (failed,) = events.named("schedule.failed")
    assert "broken" in failed["error"]
    assert (await app.schedules.get("fine")).state == "active"
    await app.schedules.delete("broken")
    await app.schedules.declare_at_start()
    assert (await app.schedules.get("broken")).state == "active"
