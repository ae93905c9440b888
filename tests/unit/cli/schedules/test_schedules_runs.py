"""`durio schedules run, preview, backfill`: runs now, to come, and in the past."""

from typing import Any

import pytest

from durio import App
from durio.model.schedule import TickRun
from durio.ports.control import AuditNote, QueueChange
from tests.unit.cli.schedules.ticking import (
    PLACE,
    add,
    in_shop,
    rewrite,
    show,
    text,
)
from tests.unit.cli.terminal import Terminal

SPRING = ("--after", "2027-03-27T00:00Z", "--count", "3")
GAP = "clocks go forward: 02:30 does not exist, runs at 03:00"
PAST = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-11T00:00Z")


# --- run


def test_run_prints_the_id_of_its_job(shop: Terminal) -> None:
    add(shop)
    answer = shop.json("schedules", "run", "digest", "--by", "ann", *PLACE)
    assert answer == {
        "id": answer["id"],
        "is_plan": False,
        "task": "shop.digest",
        "schedule": "digest",
    }
    job = shop.json("jobs", "show", answer["id"], *PLACE)
    assert (job["state"], job["args"] or job["kwargs"]) == ("ready", {"user": 42})
    error = shop.error("schedules", "run", "digest", *PLACE, code=1)
    assert (error["code"], answer["id"] in error["what"]) == ("schedule_conflict", True)
    assert "--force" in error["cure"]
    shown = text(shop, "run", "digest", "--force")
    assert shown.startswith("enqueued  ")
    assert shown.endswith("  shop.digest\n")
    assert show(shop, "digest")["run_count"] == 2
    lines = shop.json("audit", "ls", *PLACE)["audit"]
    ran = [line["who"] for line in lines if line["verb"] == "run"]
    assert (len(ran), ran[-1]) == (2, "ann via cli")


def test_run_of_a_paused_schedule(shop: Terminal) -> None:
    text(shop, "pause", "nightly")
    assert shop.json("schedules", "run", "nightly", *PLACE)["task"] == "shop.nightly"
    assert show(shop, "nightly")["state"] == "paused"


def test_run_into_a_closed_queue(shop: Terminal) -> None:
    async def story(app: App, _: Any) -> None:
        change, note = QueueChange(closed=True), AuditNote(who="me")
        await (await app.store()).set_queue("shop:default", change, note)

    in_shop(story)
    error = shop.error("schedules", "run", "nightly", *PLACE, code=1)
    assert error["code"] == "schedule_conflict"
    assert "closed queue" in error["cure"]
    assert show(shop, "nightly")["run_count"] == 0


# --- preview


@pytest.mark.proves("M162")
def test_preview_has_words_two_zones_and_notes(shop: Terminal) -> None:
    seen = shop.json("schedules", "preview", "nightly", *SPRING, *PLACE)
    assert seen == {
        "schedule": "nightly",
        "rule": "At 02:30 every day (Europe/Paris)",
        "tz": "Europe/Paris",
        "other_tz": "UTC",
        "runs": [
            {
                "at": "2027-03-27T02:30:00+01:00",
                "at_other": "2027-03-27T01:30:00+00:00",
                "note": None,
            },
            {
                "at": "2027-03-28T03:00:00+02:00",
                "at_other": "2027-03-28T01:00:00+00:00",
                "note": GAP,
            },
            {
                "at": "2027-03-29T02:30:00+02:00",
                "at_other": "2027-03-29T00:30:00+00:00",
                "note": None,
            },
        ],
    }
    shown = text(shop, "preview", "nightly", "--tz", "Asia/Tokyo", *SPRING)
    head, names, _, second, _ = shown.splitlines()
    assert head == "At 02:30 every day (Europe/Paris)"
    assert names.split() == ["Europe/Paris", "Asia/Tokyo", "in", "note"]
    times = "Sun 2027-03-28 03:00:00+02:00  Sun 2027-03-28 10:00:00+09:00"
    assert second.startswith(times)
    assert second.endswith(GAP)


def test_preview_of_a_text_needs_no_app(terminal: Terminal) -> None:
    cron = ("schedules", "preview", "--cron", "30 2 * * *")
    shown = terminal.ok(*cron, "--tz", "Europe/Paris", *SPRING)
    assert shown.splitlines()[0] == "At 02:30 every day (Europe/Paris)"
    assert "Sun 2027-03-28 03:00:00+02:00  Sun 2027-03-28 01:00:00Z" in shown
    assert GAP in shown
    seen = terminal.json(*cron)
    assert (seen["schedule"], seen["tz"], len(seen["runs"])) == (None, "UTC", 10)
    assert terminal.ok(*cron).splitlines()[1].split() == ["UTC", "in"]
    every = terminal.ok("schedules", "preview", "--cron", "@every 90m")
    assert every.startswith("Every 90 min\n")
    assert not list(terminal.folder.iterdir())


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ((), "neither NAME nor --cron is given"),
        (("x", "--cron", "* * * * *"), "NAME and --cron are both given"),
        (("--cron", "61 * * * *"), "'61'"),
        (("--cron", "* * * * *", "--tz", "Paris"), "no time zone 'Paris'"),
        (("--cron", "* * * * *", "--count", "0"), "0 is not in the range"),
        (("--cron", "* * * * *", "--after", "2027-03-27"), "--after: "),
    ],
)
def test_wrong_preview(terminal: Terminal, args: tuple[str, ...], what: str) -> None:
    assert what in terminal.error("schedules", "preview", *args, code=2)["what"]


def test_preview_knows_how_many_runs_are_left(shop: Terminal) -> None:
    add(shop, "few", "--every", "1h", "--max-runs", "2")
    assert len(runs(shop, "few")) == 2
    rewrite("few", run_count=2, next_at=None)
    assert runs(shop, "few") == []
    assert text(shop, "preview", "few") == "Every 60 min\nnone\n"
    add(shop, "once", "--at", "2090-01-31T09:00:00Z")
    assert [run["at"] for run in runs(shop, "once")] == ["2090-01-31T09:00:00+00:00"]


def test_of_a_fixed_delay_one_run_is_known(shop: Terminal) -> None:
    add(shop, "slow", "--every", "1h", "--fixed-delay")
    assert len(runs(shop, "slow")) == 1
    rewrite("slow", next_at=None, live=(TickRun("x"),))
    assert runs(shop, "slow") == []
    assert text(shop, "preview", "slow").endswith(
        "known when the run before has ended\n"
    )
    assert "after this run" in text(shop, "ls", "slow")


def test_preview_says_that_it_is_paused(shop: Terminal) -> None:
    text(shop, "pause", "nightly", "--reason", "disk", "--by", "ann")
    last = text(shop, "preview", "nightly").splitlines()[-1]
    assert last.startswith("It is paused by ann via cli at ")
    assert last.endswith(": disk: no run until it is resumed.")


def runs(shop: Terminal, name: str) -> list[dict[str, Any]]:
    return shop.json("schedules", "preview", name, *PLACE)["runs"]


# --- backfill


def backfill(name: str, *args: str) -> tuple[str, ...]:
    return ("schedules", "backfill", name, *args, *PLACE)


def test_dry_run_counts_ticks(shop: Terminal) -> None:
    seen = shop.json(*backfill("nightly", *PAST, "--dry-run"))
    assert seen == {
        "id": "",
        "schedule": "nightly",
        "total": 10,
        "made": 0,
        "failed": 0,
        "at_a_time": 10,
        "first_at": "2026-01-01T01:30:00Z",
        "last_at": "2026-01-10T01:30:00Z",
        "until": "2026-01-11T00:00:00Z",
        "is_over": False,
        "dry_run": True,
    }
    day = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-01T12:00:00+01:00")
    assert shop.ok(*backfill("nightly", *day, "--dry-run")) == (
        "1 job of schedule nightly, of the tick 2026-01-01 01:30:00Z, would be made\n"
    )
    assert show(shop, "nightly")["backfills"] == []


@pytest.mark.usefixtures("person")
def test_backfill_asks_and_starts(shop: Terminal) -> None:
    asked = backfill("nightly", *PAST, "--at-a-time", "2")
    what = (
        "10 jobs of schedule nightly, of ticks from 2026-01-01 01:30:00Z to "
        "2026-01-10 01:30:00Z, at most 2 at a time, will be made"
    )
    no = shop.run(*asked, stdin=b"n\n")
    assert (no.exit_code, f"{what}.\n" in no.stderr) == (1, True)
    assert show(shop, "nightly")["backfills"] == []
    yes = shop.run(*asked, stdin=b"y\n")
    assert yes.exit_code == 0
    assert f": {what} by the workers\n" in yes.stdout
    assert yes.stdout.endswith("durio schedules show nightly --app ticking\n")
    (seen,) = show(shop, "nightly")["backfills"]
    assert (seen["total"], seen["made"], seen["at_a_time"]) == (10, 0, 2)
    shown = text(shop, "show", "nightly")
    assert "backfills of the last 7 days\nid" in shown
    assert f"{seen['id']}  0 of 10" in shown


def test_backfill_is_cancelled(shop: Terminal) -> None:
    first = shop.json(*backfill("nightly", *PAST, "--yes"))["id"]
    second = shop.json(*backfill("nightly", *PAST, "--yes"))["id"]
    wrong = shop.error(*backfill("nightly", "--cancel", "ff"), code=1)
    assert wrong["code"] == "backfill_not_found"
    assert first in wrong["cure"]
    wrong = shop.error(*backfill("nightly", "--cancel", first[:6]), code=1)
    assert "begins several ids of a backfill of nightly" in wrong["what"]
    answer = shop.json(*backfill("nightly", "--cancel", first))
    assert answer == {
        "id": first,
        "schedule": "nightly",
        "made": 0,
        "total": 10,
        "cancelled": True,
    }
    shown = shop.ok(*backfill("nightly", "--cancel", second[:9]))
    assert shown == f"{second}  cancelled, 0 of 10 ticks made\n"
    assert show(shop, "nightly")["backfills"] == []


def test_wrong_backfills(shop: Terminal) -> None:
    add(shop, "slow", "--every", "1h", "--fixed-delay")
    start = ("--from", "2026-01-01T00:00Z")
    for args, code, what in (
        (("nightly",), "usage", "--from and --to are needed"),
        (("nightly", *start), "usage", "--from and --to are needed"),
        (("nightly", *start, "--to", "2026-01-02"), "usage", "no time zone"),
        (
            ("nightly", *start, "--to", "2099-01-01T00:00Z"),
            "invalid_schedule",
            "future",
        ),
        (("nightly", *start, "--to", "2025-01-01T00:00Z"), "invalid_schedule", "ends"),
        (
            ("nightly", *start, "--to", "2026-01-01T00:10Z"),
            "invalid_schedule",
            "no tick",
        ),
        (("slow", *PAST), "invalid_schedule", "fixed delay"),
        (("nightly", *PAST, "--at-a-time", "0"), "usage", "0 is not in the range"),
        (("nightly", *PAST), "not_confirmed", "this needs a confirmation"),
    ):
        error = shop.error(*backfill(*args), code=2)
        assert (error["code"], what in error["what"]) == (code, True), error
