"""`durio schedules`: lists, details, changes and deletes; the errors of all commands."""

from typing import Any

import click
import pytest

from durio import App
from durio.cli import output, schedule_output, schedules
from durio.model.ids import id_text, uuid7
from durio.model.schedule import TickNote, TickRun
from tests.unit.cli.schedules.ticking import (
    PLACE,
    STORE,
    add,
    damage,
    in_shop,
    ls,
    rewrite,
    show,
    text,
)
from tests.unit.cli.terminal import Terminal

GONE = id_text(uuid7(1_780_000_000_000, 0, 0))


# --- ls


def test_list_has_rule_next_tick_and_origin(shop: Terminal) -> None:
    add(shop)
    rows = shop.json("schedules", "ls", *PLACE)["schedules"]
    assert [(row["name"], row["state"], row["origin"]) for row in rows] == [
        ("digest", "active", "manual"),
        ("nightly", "active", "code"),
    ]
    assert rows[0] | {"next_at": None} == {
        "name": "digest",
        "namespace": "shop",
        "state": "active",
        "task": "shop.digest",
        "is_plan": False,
        "rule": "Every 60 min",
        "cron": None,
        "every": 3600.0,
        "at": None,
        "tz": "UTC",
        "next_at": None,
        "last_at": None,
        "run_count": 0,
        "skipped_count": 0,
        "waiting": 0,
        "origin": "manual",
        "note": None,
        "version": rows[0]["version"],
        "last_tick": None,
    }
    head, first, second = text(shop, "ls").splitlines()
    assert head.split() == [
        *("name", "state", "task", "when", "next", "at", "last", "tick", "origin")
    ]
    assert (
        "Every 60 min  in 59 min" in " ".join(first.split("  ")) or "in 59 min" in first
    )
    assert "At 02:30 every day (Europe/Paris)" in second


def test_list_by_prefix_of_one_app_or_all(shop: Terminal) -> None:
    for name in ("user-1", "user-2"):
        add(shop, name)
    names = [row["name"] for row in shop.json(*ls("user-"))["schedules"]]
    assert names == ["user-1", "user-2"]
    assert text(shop, "ls", "x") == "no schedules of App shop that begin with x\n"
    shop.ok("schedules", "run", "user-1", *PLACE)  # an App is known by its jobs
    shown = shop.ok("schedules", "ls", "--all-apps", *STORE)
    assert shown.splitlines()[0].startswith("app   name")
    assert "shop  nightly" in shown
    assert shop.ok("schedules", "ls", "zz", "--all-apps", *STORE) == (
        "no schedules that begin with zz\n"
    )


def test_an_app_that_has_only_schedules_is_the_app_of_the_store(
    shop: Terminal,
) -> None:
    """No job, no worker and no published task is needed."""
    rows = shop.json("schedules", "ls", *STORE)["schedules"]
    assert [(row["namespace"], row["name"]) for row in rows] == [("shop", "nightly")]


def test_list_says_what_no_worker_has_stored(shop: Terminal) -> None:
    shop.ok("schedules", "rm", "nightly", "--yes", *PLACE)
    assert shop.json(*ls()) == {"schedules": [], "not_stored": ["nightly"]}
    shown = text(shop, "ls").splitlines()
    assert shown[0] == "no schedules of App shop"
    assert shown[1].startswith("not stored yet: nightly (a worker that starts")


def test_last_tick_and_its_outcome(shop: Terminal) -> None:
    add(shop)
    job = shop.json("schedules", "run", "digest", *PLACE)["id"]
    assert ": ready" in text(shop, "ls", "digest")
    shop.ok("jobs", "cancel", job, *PLACE)
    (row,) = shop.json(*ls("digest"))["schedules"]
    assert (row["last_tick"]["state"], row["run_count"]) == ("cancelled", 1)
    assert "s ago: cancelled" in text(shop, "ls", "digest")
    rewrite("digest", ticks=(TickNote(0.0, None, "overlap"),))
    assert "ago: skipped (overlap)" in text(shop, "ls", "digest")
    rewrite("digest", ticks=(TickNote(0.0, TickRun(GONE)),))
    assert "ago: gone" in text(shop, "ls", "digest")


@pytest.mark.proves("M163")
def test_missed_stands_out(shop: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    add(shop, "digest", "--every", "30s")
    rewrite("digest", late=50.0)
    assert "due 50 s ago" in text(shop, "ls", "digest")
    rewrite("digest", late=600.0)
    monkeypatch.setattr(schedules, "has_colour", lambda: True)
    monkeypatch.setattr(schedule_output, "has_colour", lambda: True)
    shown = text(shop, "ls", "digest")
    assert click.style("missed", fg="bright_red", bold=True) in shown
    monkeypatch.undo()
    monkeypatch.chdir(shop.folder)
    shown = text(shop, "ls", "digest").splitlines()
    assert "due 10 min ago" in shown[1]
    assert shown[2] == ("1 missed: no worker has handled what is due; see durio doctor")
    assert "no worker has handled it" in text(shop, "show", "digest")


def test_a_damaged_record_does_not_hide_the_others(shop: Terminal) -> None:
    damage("broken")
    rows = shop.json(*ls())["schedules"]
    assert [(row["name"], row["state"]) for row in rows] == [
        ("broken", "damaged"),
        ("nightly", "active"),
    ]
    assert "the record of the schedule 'broken' is damaged" in text(shop, "ls")
    error = shop.error("schedules", "show", "broken", *PLACE, code=2)
    assert error["code"] == "invalid_schedule"
    assert text(shop, "rm", "broken", "--yes") == "broken  deleted\n"


# --- show


def test_show_has_everything(shop: Terminal) -> None:
    add(shop, "d", "--cron", "30 2 * * *", "--tz", "Europe/Paris", "--jitter", "5m",
        "--catchup", "all", "--catchup-max", "7", "--max-runs", "900", "--overlap",
        "queue_one", "--end", "2090-01-31T00:00Z", "--pause-on-failure",
        "--exclude", "2089-12-25", "--exclude", "2089-12-26")  # fmt: skip
    fields = show(shop, "d")
    assert fields["link"] == {"task": "shop.digest", "args": [42], "kwargs": {}}
    assert (fields["overlap"], fields["jitter"]) == ("queue_one", 300.0)
    assert (fields["max_runs"], fields["pause_on_failure"]) == (900, True)
    assert fields["exclude"] == ["2089-12-25", "2089-12-26"]
    assert fields["end"] == "2090-01-31T00:00:00Z"
    assert (fields["ticks"], fields["backfills"], fields["code"]) == ([], [], None)
    assert len(fields["next_runs"]) == 5
    assert "02:30:00" in fields["next_runs"][0]["at"]
    shown = text(shop, "show", "d")
    for line in (
        "schedule d  active\n",
        "  app         shop\n",
        "  task        shop.digest\n",
        "  args        [42]\n",
        "  cron        30 2 * * *\n",
        "  time zone   Europe/Paris\n",
        "  end         2090-01-31 00:00:00Z\n",
        "  catch-up    all, of the last 24 h, at most 7\n",
        "  jitter      5 min\n",
        "  max runs    900\n",
        "  on failure  pause\n",
        "  made        no runs, 0 skipped\n",
        "last ticks\nnone yet\n",
        "No code declares it.\n",
    ):
        assert line in shown


def test_show_has_ticks_with_the_states_of_their_jobs(shop: Terminal) -> None:
    add(shop)
    job = shop.json("schedules", "run", "digest", *PLACE)["id"]
    skipped = TickNote(1.0, None, "overlap")
    rewrite(
        "digest",
        ticks=(skipped, TickNote(2.0, TickRun(job)), TickNote(3.0, TickRun(GONE))),
    )
    ticks = show(shop, "digest")["ticks"]
    assert [(tick["skipped"], tick["state"]) for tick in ticks] == [
        ("overlap", None),
        (None, "ready"),
        (None, None),
    ]
    shown = text(shop, "show", "digest")
    assert "skipped  -" in shown
    assert "the run before it had not ended" in shown
    assert f"1970-01-01 00:00:02Z  ready    {job}\n" in shown
    assert f"gone     {GONE}\n" in shown


def test_a_schedule_of_a_plan(shop: Terminal) -> None:
    async def story(app: App, space: dict[str, Any]) -> None:
        plan = eval("digest.s(1) | digest.s()", space)  # noqa: S307
        await app.schedules.create("both", plan, every="1h")

    in_shop(story)
    answer = shop.json("schedules", "run", "both", *PLACE)
    assert answer["is_plan"]
    assert text(shop, "run", "both", "--force").startswith("enqueued  plan ")
    tick = show(shop, "both")["ticks"][0]
    assert (tick["run"], tick["is_plan"], tick["state"]) == (
        answer["id"],
        True,
        "running",
    )
    assert "shop.digest (plan)" in text(shop, "ls", "both")
    assert '  plan        {"chain":[' in text(shop, "show", "both")
    error = shop.error("schedules", "edit", "both", "--args", "[2]", *PLACE, code=2)
    assert "runs a plan" in error["what"]


def test_show_has_what_the_code_declares(shop: Terminal) -> None:
    assert "in code" not in text(shop, "show", "nightly")
    shown = text(shop, "edit", "nightly", "--cron", "0 3 * * *", "--jitter", "1m")
    assert "  cron: 30 2 * * * -> 0 3 * * *\n  jitter: 0 s -> 60 s\n" in shown
    reset = "durio schedules reset nightly --app ticking"
    assert shown.endswith(f"Deploys no longer change it. To undo that: {reset}\n")
    shown = text(shop, "show", "nightly")
    assert "  cron            0 3 * * *  (in code: 30 2 * * *)\n" in shown
    assert f"Give it back to the code: {reset}\n" in shown
    fields = show(shop, "nightly")
    assert (fields["origin"], fields["code"]["rule"]["cron"]) == (
        "manual",
        "30 2 * * *",
    )
    text(shop, "edit", "nightly", "--cron", "30 2 * * *", "--jitter", "0s")
    assert "The code declares the same.\n" in text(shop, "show", "nightly")
    text(shop, "edit", "nightly", "--cron", "0 3 * * *")
    shown = text(shop, "reset", "nightly")
    assert "  cron: 0 3 * * * -> 30 2 * * *\n" in shown
    assert show(shop, "nightly")["origin"] == "code"
    assert not shop.json("schedules", "reset", "nightly", *PLACE)["changed"]


# --- names and help


def test_unknown_names_get_a_suggestion(shop: Terminal) -> None:
    times = "--from 2020-01-01T00:00Z --to 2020-01-02T00:00Z"
    for args in (
        *("show", "edit --every 5m", "pause", "resume", "run", "preview", "rm --yes"),
        *("reset", f"backfill {times}", "backfill --cancel 0"),
    ):
        command, *options = args.split()
        error = shop.error("schedules", command, "nihgtly", *options, *PLACE, code=1)
        assert error["code"] == "schedule_not_found"
        assert error["what"] == "there is no schedule 'nihgtly'"
        assert error["cure"] == (
            "Known: nightly. Did you mean 'nightly'?\n"
            "See: durio schedules ls --app ticking"
        )


def test_a_name_that_is_only_in_the_code(shop: Terminal) -> None:
    shop.ok("schedules", "rm", "nightly", "--yes", *PLACE)
    error = shop.error("schedules", "show", "nightly", *PLACE, code=1)
    assert error["cure"] == "The code declares it. It is stored when a worker starts."
    error = shop.error("schedules", "show", "other", *PLACE, code=1)
    assert error["cure"].startswith("App shop has no schedules.")


@pytest.mark.parametrize("name", sorted(schedules.command.commands))
def test_every_command_has_help_and_json(terminal: Terminal, name: str) -> None:
    shown = terminal.ok("schedules", name, "--help")
    assert "With --json: " in shown
    assert "Example" in shown
    assert f"  {name} " in terminal.ok("schedules", "--help")


def test_columns_fit_80(monkeypatch: pytest.MonkeyPatch, shop: Terminal) -> None:
    add(shop, "a-name-of-some-length")
    monkeypatch.setattr(schedules, "is_terminal", lambda: True)
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    lines = text(shop, "ls").splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["name", "state", "task", "next", "last", "tick"]
