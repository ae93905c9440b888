"""`durio doctor` finds schedules that are missed, unknown, paused or damaged."""

import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from durio import App
from durio.client.schedule_store import read_schedule
from durio.doctor import schedules
from durio.doctor.examine import examine_content
from durio.maintenance.undeclared import REASON
from durio.model.effects import Effects, Put
from durio.model.finding import Finding
from durio.model.schedule import Pause, TickNote, schedule_put, schedules_kind
from durio.model.version import __version__
from durio.ports.lease import WorkerInfo
from durio.ports.store import Store
from durio.testing.clock import VirtualClock, run_virtual
from durio.worker.register import task_puts

MEMORY = "sqlite:///:memory:"
HERE = socket.gethostname()
TASKS = {
    name: {"queue": "default", "priority": 5, "parameters": []}
    for name in ("shop.known", "shop.other")
}
Story = Callable[[App, Store], Awaitable[None]]


def examined(story: Story, *, has_code: bool = False) -> list[Finding]:
    """Return what the doctor finds about schedules, in virtual time."""

    async def main(clock: VirtualClock) -> list[Finding]:
        async with App(MEMORY, name="shop", clock=clock) as app:

            @app.task(name="known")
            async def known() -> None: ...

            await story(app, await app.store())
            return await examine_content(app, has_code=has_code, is_named=True)

    return [each for each in run_virtual(main) if each.group == "schedules"]


def findings(story: Story, *, has_code: bool = False) -> dict[str, Finding]:
    found = examined(story, has_code=has_code)
    return {finding.name.partition(".")[2]: finding for finding in found}


async def rewrite(app: App, name: str, late: float | None = None, **given: Any) -> None:
    """Change the record of a schedule; `late`: it is due since so many seconds."""
    record, stored = await read_schedule(app, name)
    due_at = record.due_at if late is None else app.now() - late
    put = schedule_put("shop", name, replace(stored, **given), record.version, due_at)
    await (await app.store()).commit(Effects(puts=[put]))


async def worker(store: Store) -> None:
    info = WorkerInfo(
        namespace="shop",
        name=f"{HERE}/1",
        host=HERE,
        pid=1,
        queues=None,
        concurrency=1,
        version=__version__,
    )
    await store.register(info, 60, *task_puts("shop", TASKS))


def test_without_schedules_there_is_nothing_to_say() -> None:
    async def story(_app: App, store: Store) -> None:
        await worker(store)

    assert findings(story) == {}


def test_healthy_schedules() -> None:
    async def story(app: App, store: Store) -> None:
        await worker(store)
        await app.schedules.create("a", "known", every="1h")
        await app.schedules.create("b", "known", cron="30 2 * * *")
        await app.schedules.create("mine", "known", every="1h")
        await app.schedules.pause("mine", "I know why")

    found = findings(story)
    assert {name: finding.severity for name, finding in found.items()} == {
        "records": "ok",
        "missed": "ok",
        "set_ahead": "ok",
        "unknown_tasks": "ok",
        "paused": "ok",
        "never_due": "ok",
        "daylight_saving": "ok",
    }
    assert found["records"].evidence == "3 schedules, all readable"
    assert found["daylight_saving"].evidence == "no fixed time is skipped within a year"


@pytest.mark.proves("M163")
@pytest.mark.parametrize("has_worker", [True, False])
def test_a_missed_schedule(*, has_worker: bool) -> None:
    async def story(app: App, store: Store) -> None:
        if has_worker:
            await worker(store)
        for name, every, late in (
            ("late", "30s", 90.0),
            ("soon", "30s", 50.0),
            ("hourly", "1h", 1800.0),
            ("mine", "30s", 900.0),
        ):
            await app.schedules.create(name, "known", every=every)
            await rewrite(app, name, late)
        await app.schedules.pause("mine")

    finding = findings(story)["missed"]
    assert (finding.severity, finding.evidence) == ("error", "late (due for 90 s)")
    assert ("durio worker MODULE:APP" in finding.fix) is not has_worker
    assert ("logs" in finding.fix) is has_worker


def test_a_clock_that_was_ahead() -> None:
    """Its ticks have moved schedules into the future, where nobody looks at them."""

    async def story(app: App, store: Store) -> None:
        await worker(store)
        for name in ("moved", "mine", "yearly"):
            cron = "0 0 1 1 *" if name == "yearly" else "* * * * *"
            await app.schedules.create(name, "known", cron=cron)
            if name != "yearly":
                next_at = app.now() + 5 * 365 * 86400
                await rewrite(app, name, late=-5 * 365 * 86400.0, next_at=next_at)
        await app.schedules.pause("mine")
        end = datetime.fromtimestamp(app.now(), UTC) + timedelta(days=90)
        await app.schedules.create("over", "known", every="1h", end=end)
        last = (TickNote(end.timestamp()),)
        await rewrite(app, "over", next_at=None, ticks=last)

    finding = findings(story)["set_ahead"]
    assert finding.severity == "error"
    assert "later than the rule says: moved (2" in finding.evidence
    assert finding.evidence.endswith("); over (none)")
    assert "mine" not in finding.evidence
    assert "durio schedules resume moved" in finding.fix


def test_a_task_that_no_worker_has() -> None:
    async def story(app: App, store: Store) -> None:
        for name in ("old", "paused"):
            await app.schedules.create(name, "known", every="1h")
            await relink(app, name, signature("shop.gone"))
        await app.schedules.pause("paused")
        await app.schedules.create("far", "far.away", every="1h")
        await worker(store)

    finding = findings(story)["unknown_tasks"]
    assert (finding.severity, finding.evidence) == (
        "error",
        "no code and no worker has the task: old runs shop.gone",
    )
    assert "durio schedules edit old --task TASK" in finding.fix


def test_without_workers_and_code_tasks_are_not_judged() -> None:
    async def story(app: App, _store: Store) -> None:
        await app.schedules.create("a", "known", every="1h")

    assert "no worker has registered" in findings(story)["unknown_tasks"].evidence
    found = findings(story, has_code=True)["unknown_tasks"]
    assert (found.severity, found.evidence) == ("ok", "every scheduled task is known")


def test_tasks_of_a_plan_and_a_damaged_link() -> None:
    async def story(app: App, store: Store) -> None:
        await worker(store)
        for name in ("plan", "bad"):
            await app.schedules.create(name, "known", every="1h")
        chain = [signature("shop.known"), signature("shop.gone")]
        await relink(app, "plan", {"chain": chain})
        await relink(app, "bad", {"chain": 7})

    finding = findings(story)["unknown_tasks"]
    assert finding.evidence.endswith(": plan runs shop.gone")


def signature(task: str) -> dict[str, Any]:
    return {"task": task, "args": [], "kwargs": {}}


async def relink(app: App, name: str, link: dict[str, Any]) -> None:
    """Let a stored schedule run something else, unchecked."""
    definition = (await read_schedule(app, name)).schedule.definition
    await rewrite(app, name, definition=replace(definition, link=link))


def test_schedules_that_durio_has_paused() -> None:
    async def story(app: App, store: Store) -> None:
        await worker(store)
        now = app.now()
        for name, pause in (
            ("gone", Pause("durio", now, REASON, is_undeclared=True)),
            ("failing", Pause("durio", now, "run 7 failed")),
        ):
            await app.schedules.create(name, "known", every="1h")
            await rewrite(app, name, pause=pause)

    found = [each for each in examined(story) if each.name == "schedules.paused"]
    first, second = found
    assert (first.severity, second.severity) == ("warning", "warning")
    assert first.evidence == "paused, no live worker declares it: gone"
    assert first.fix.endswith("delete it: durio schedules rm gone")
    assert second.evidence == "paused: failing (run 7 failed)"
    assert second.fix.endswith("durio schedules resume failing")


def test_a_declared_schedule_without_a_tick() -> None:
    """One that ran, or whose late tick was skipped, is none of them."""

    async def story(app: App, store: Store) -> None:
        await worker(store)
        begin = datetime.fromtimestamp(app.now(), UTC)
        app.schedules.declare("past", "known", at=begin - timedelta(hours=1))
        await app.schedules.declare_at_start()
        for name, counts in (("ran", {"run_count": 1}), ("late", {"skipped_count": 1})):
            await app.schedules.create(name, "known", at=begin + timedelta(hours=1))
            await rewrite(app, name, is_manual=False, next_at=None, **counts)
        await app.schedules.create("mine", "known", at=begin + timedelta(hours=1))
        await rewrite(app, "mine", next_at=None)

    finding = findings(story)["never_due"]
    assert finding.severity == "warning"
    assert finding.evidence == (
        "no tick, now or later: past (Once, at 2027-01-15 07:00:00+00:00)"
    )


def test_fixed_times_that_daylight_saving_skips() -> None:
    async def story(app: App, store: Store) -> None:
        await worker(store)
        for name, cron, tz in (
            ("paris", "30 2 * * *", "Europe/Paris"),
            ("seconds", "5 30 2 * * *", "Europe/Paris"),
            ("winter", "30 2 * 1 *", "Europe/Paris"),
            ("often", "*/10 * * * *", "Europe/Paris"),
            ("noon", "0 12 * * *", "Europe/Paris"),
            ("utc", "30 2 * * *", "UTC"),
        ):
            await app.schedules.create(name, "known", cron=cron, tz=tz)
        await app.schedules.create("hourly", "known", every="1h", tz="Europe/Paris")

    finding = findings(story)["daylight_saving"]
    assert finding.severity == "ok"
    note = "clocks go forward: 02:30 does not exist, runs at 03:00"
    assert f"paris on 2027-03-28 (Europe/Paris): {note}" in finding.evidence
    assert {each.split()[0] for each in finding.evidence.split("; ")} <= {
        "paris",
        "seconds",
    }


def test_damaged_records() -> None:
    async def story(app: App, store: Store) -> None:
        await worker(store)
        await app.schedules.create("good", "known", every="1h")
        put = Put(schedules_kind("shop"), "bad", b"{")
        await store.commit(Effects(puts=[put]))

    found = findings(story)
    assert found["records"].severity == "error"
    assert found["records"].evidence == "cannot be read: bad"
    assert found["records"].fix.endswith("durio schedules rm bad")
    assert found["missed"].severity == "ok"


def test_many_schedules_are_read_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "PAGE", 2)

    async def story(app: App, store: Store) -> None:
        await worker(store)
        for number in range(5):
            await app.schedules.create(f"s{number}", "known", every="1h")

    assert findings(story)["records"].evidence.startswith("5 schedules")
    monkeypatch.setattr(schedules, "SCHEDULES_MAX", 3)
    assert findings(story)["records"].evidence.startswith("4 schedules")
