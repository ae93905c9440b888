"""`durio schedules add, edit, pause, resume, reset, rm`: what they write and refuse."""

import json
from typing import Any

import pytest

from durio import App, chain
from durio.cli.schedule_choices import in_flags
from tests.unit.cli.schedules.ticking import (
    PLACE,
    STORE,
    add,
    ls,
    show,
    text,
)
from tests.unit.cli.terminal import Terminal

# --- add


@pytest.mark.proves("M157")
def test_add_answers_with_the_schedule(shop: Terminal) -> None:
    fields = add(shop, "d", "--every", "90s", "--fixed-delay")
    assert (fields["changed"], fields["namespace"]) == (True, "shop")
    assert (fields["every"], fields["fixed_delay"]) == (90.0, True)
    shown = text(shop, "add", "once", "digest", "[1]", "--at", "2090-01-31T09:00:00Z")
    assert shown.startswith("once  active  next 2090-01-31 09:00:00Z (in ")
    by_name = ("schedules", "add", "n", "shop.digest", '{"user": 1}', "--every", "1h")
    assert shop.json(*by_name, "--by", "ann", *PLACE)["link"]["kwargs"] == {"user": 1}
    line = shop.json("audit", "ls", *PLACE)["audit"][0]
    assert (line["who"], line["verb"], line["target"]) == (
        "ann via cli",
        "create",
        "schedule n",
    )


WRONG = [
    ("--cron 61_*_*_*_*", "invalid_schedule", "'61'", "Give 0 to 59"),
    ("--cron */90_*_*_*_*", "invalid_schedule", "step", "use --every 90m."),
    (
        "--every 5m --cron *_*_*_*_*",
        "invalid_schedule",
        "--cron and --every",
        "one",
    ),
    (
        "--at 2090-01-01T00:00Z --every 5m",
        "invalid_schedule",
        "--at are",
        "--every",
    ),
    ("", "invalid_schedule", "nothing says when", "--cron '0 2 * * *'"),
    ("--cron 0_2_*_*_* --tz Europe/Pari", "invalid_schedule", "zone", "--tz UTC"),
    ("--at 2020-01-01T00:00Z", "invalid_schedule", "in the past", "durio enqueue"),
    ("--at 2090-01-01", "usage", "has no time zone", "Z"),
    ("--every 5m --start tomorrow", "usage", "--start: 'tomorrow'", "Z"),
    ("--every 5m --end 2090-01-01T00:00", "usage", "--end: ", "Z"),
    ("--every 1x", "invalid_option", "--every cannot be '1x'", "90s"),
    ("--every 5m --catchup-window x", "invalid_option", "--catchup-window", "90s"),
    ("--every 10ms", "invalid_schedule", "too short", "100 ms"),
    ("--every 5m --jitter 6m", "invalid_schedule", "jitter", "less jitter"),
    ("--every 5m --max-runs 0", "usage", "--max-runs cannot be '0'", "none"),
    ("--every 5m --exclude soon", "invalid_schedule", "'soon'", "2030-12-25"),
    ("--every 5m --overlap never", "usage", "'never'", "--help"),
    ("--every 5m --catchup-max 0", "usage", "0 is not in the range", "--help"),
    (
        *("--cron 0_2_*_*_* --fixed-delay", "invalid_schedule"),
        *("--fixed-delay is for --every,", "Leave --fixed-delay out"),
    ),
]


def test_wrong_options(shop: Terminal) -> None:
    for options, code, what, cure in WRONG:
        given = [option.replace("_", " ") for option in options.split()]
        error = shop.error(*asked("digest", "[1]"), *given, *PLACE, code=2)
        assert (error["code"], what in error["what"]) == (code, True), error
        assert cure in error["cure"], error
    assert [row["name"] for row in shop.json(*ls())["schedules"]] == ["nightly"]


def asked(*task: str) -> tuple[str, ...]:
    return ("schedules", "add", "new", *task)


def test_task_and_arguments_are_checked(shop: Terminal) -> None:
    every = ("--every", "1h", *PLACE)
    error = shop.error(*asked("digst"), *every, code=2)
    assert (error["code"], "'shop.digest'" in error["cure"]) == ("unknown_task", True)
    error = shop.error(*asked("digest", '["x"]'), *every, code=2)
    assert error["code"] == "invalid_arguments"
    error = shop.error(*asked("digest", "7"), *every, code=2)
    assert error["cure"].endswith("durio schedules add new digest '[7]'")
    error = shop.error(*asked("far.digest"), *every, code=2)
    assert (error["code"], "App 'far'" in error["what"]) == ("unknown_task", True)
    error = shop.error("schedules", "add", "a b", "digest", "[1]", *every, code=2)
    assert "cannot be named 'a b'" in error["what"]


def test_add_needs_a_new_name(shop: Terminal) -> None:
    add(shop)
    error = shop.error(
        *("schedules", "add", "digest", "digest", "[1]", "--every", "1h"),
        *PLACE,
        code=1,
    )
    assert error["code"] == "schedule_conflict"
    assert "durio schedules edit digest --app ticking" in error["cure"]


def test_no_app(terminal: Terminal) -> None:
    assert terminal.error("schedules", "ls", code=3)["code"] == "store_unavailable"
    given = ("schedules", "add", "n", "work", "--every", "1h")
    assert terminal.error(*given, code=3)["code"] == "store_unavailable"
    terminal.ok("migrate", *STORE)
    error = terminal.error("schedules", "show", "n", *STORE, code=2)
    assert "has no App yet" in error["what"]


def test_a_full_task_name_names_the_app(terminal: Terminal) -> None:
    given = ("schedules", "add", "n", "far.work", "--every", "1h", *STORE)
    assert terminal.json(*given)["namespace"] == "far"
    named = ("schedules", "show", "n", "--name", "far", *STORE)
    assert terminal.json(*named)["task"] == "far.work"


def test_add_with_options_of_its_jobs(shop: Terminal) -> None:
    options = ("--queue", "night", "--priority", "2", "--expires", "5m")
    fields = add(shop, "d", "--every", "1h", *options, "--meta", '{"tenant": 7}')
    assert fields["link"]["options"]["queue"] == "night"
    assert fields["link"]["options"]["meta"] == {"tenant": 7}
    run = shop.json("schedules", "run", "d", *PLACE)
    job = shop.json("jobs", "show", run["id"], *PLACE)
    assert (job["queue"], job["priority"], job["meta"]) == ("night", 2, {"tenant": 7})
    for wrong in (("--key", "k"), ("--unique", "while_waiting")):
        error = shop.error(*asked("digest", "[1]"), "--every", "1h", *wrong, code=2)
        assert "No such option" in error["what"], error
    bad = ("--every", "1h", "--priority", "12", *PLACE)
    assert shop.error(*asked("digest", "[1]"), *bad, code=2)["code"] == "invalid_option"


def plan_of(task: str) -> str:
    app = App("sqlite:///:memory:", name="shop")
    return json.dumps(chain(app.si(task, 1), app.si("nightly")).to_dict())


def test_add_and_edit_a_plan(shop: Terminal) -> None:
    shop.write("plan.json", plan_of("digest"))
    every = ("--every", "1h", *PLACE)
    fields = shop.json(*asked(), "--plan", "plan.json", *every)
    assert (fields["is_plan"], fields["task"]) == (True, "shop.digest")
    assert [each["task"] for each in fields["link"]["chain"]] == [
        "shop.digest",
        "shop.nightly",
    ]
    add(shop, "d", "--every", "1h")
    assert edited(shop, "d", "--plan", "plan.json")["link"] == fields["link"]
    refused = ("schedules", "edit", "d", "--queue", "night", *PLACE)
    error = shop.error(*refused, code=2)
    assert "runs a plan" in error["what"]
    assert edited(shop, "d", "--task", "digest", "--args", "[5]")["is_plan"] is False


WRONG_PLANS = [
    ('["digest"]', "not an object"),
    ("{", "not JSON"),
    ('{"chain": 7}', "is damaged"),
    ('{"task": "shop.digest", "args": [1], "kwargs": {}}', "not a PlanValue"),
    (plan_of("digst"), "digst"),
]


def test_wrong_plans(shop: Terminal) -> None:
    every = ("--every", "1h", *PLACE)
    for text_of_file, what in WRONG_PLANS:
        shop.write("plan.json", text_of_file)
        error = shop.error(*asked(), "--plan", "plan.json", *every, code=2)
        assert what in error["what"], error
    error = shop.error(*asked(), "--plan", "none.json", *every, code=2)
    assert "'none.json' cannot be read" in error["what"]
    assert "no TASK" in shop.error(*asked(), *every, code=2)["what"]
    both = (*asked("digest"), "--plan", "plan.json", *every)
    assert "both given" in shop.error(*both, code=2)["what"]
    options = (*asked(), "--plan", "plan.json", "--queue", "night", *every)
    assert "--plan and --queue" in shop.error(*options, code=2)["what"]
    edit = ("schedules", "edit", "nightly", "--plan", "plan.json", "--args", "[1]")
    assert "--plan and --args" in shop.error(*edit, *PLACE, code=2)["what"]
    assert [row["name"] for row in shop.json(*ls())["schedules"]] == ["nightly"]


# --- edit


def test_edit_keeps_what_is_not_given(shop: Terminal) -> None:
    add(shop, "d", "--every", "1h", "--max-runs", "5", "--end", "2090-01-31T00:00Z",
        "--exclude", "2089-12-25", "--pause-on-failure")  # fmt: skip
    fields = edited(shop, "d", "--overlap", "allow")
    assert (fields["overlap"], fields["max_runs"], fields["every"]) == (
        "allow",
        5,
        3600,
    )
    none = ("--max-runs", "none", "--end", "none", "--exclude", "none")
    fields = edited(shop, "d", *none, "--no-pause-on-failure")
    assert (fields["max_runs"], fields["end"], fields["exclude"]) == (None, None, [])
    assert not fields["pause_on_failure"]
    fields = edited(shop, "d", "--cron", "0 2 * * *", "--tz", "Europe/Paris")
    assert (fields["every"], fields["cron"]) == (None, "0 2 * * *")
    fields = edited(shop, "d", "--task", "digest", "--args", '{"user": 9}')
    assert (fields["link"]["kwargs"], fields["cron"]) == ({"user": 9}, "0 2 * * *")
    fields = edited(shop, "d", "--args", "[7]")
    assert fields["link"]["args"] == [7]
    shown = text(shop, "edit", "d", "--args", "[8]", "--end", "2090-01-31T00:00Z")
    assert '"args":[7]' in shown
    assert "  end: none -> 2090-01-31 01:00:00+01:00\n" in shown
    shown = text(shop, "edit", "d", "--exclude", "2089-12-25", "--pause-on-failure")
    assert '  exclude: none -> ["2089-12-25"]\n' in shown
    assert "  pause_on_failure: no -> yes\n" in shown


def edited(shop: Terminal, *args: str) -> dict[str, Any]:
    return shop.json("schedules", "edit", *args, *PLACE)


def test_edit_of_job_options(shop: Terminal) -> None:
    """Task, arguments and other options stay."""
    add(shop, "d", "--every", "1h", "--queue", "night")
    before = show(shop, "d")["link"]
    link = edited(shop, "d", "--priority", "2")["link"]
    assert link["args"] == before["args"]
    assert {"queue", "priority"} <= link["options"].keys()
    link = edited(shop, "d", "--args", "[8]")["link"]
    assert link["args"] == [8]
    assert {"queue", "priority"} <= link["options"].keys()
    assert (
        "options" not in edited(shop, "d", "--task", "digest", "--args", "[9]")["link"]
    )


def test_edit_of_an_older_version(shop: Terminal) -> None:
    version = add(shop)["version"]
    edited(shop, "digest", "--args", "[43]", "--version", str(version))
    edited(shop, "digest", "--every", "2h", "--jitter", "10s")
    stale = ("schedules", "edit", "digest", "--every", "3h", "--version", str(version))
    error = shop.error(*stale, *PLACE, code=1)
    assert error["code"] == "schedule_conflict"
    for words in ('"args":[43]', "jitter 10 s", "Last action: change, by "):
        assert words in error["what"]
    assert "durio schedules show digest --app ticking" in error["cure"]
    assert show(shop, "digest")["every"] == 7200


def test_edit_of_nothing(shop: Terminal) -> None:
    error = shop.error("schedules", "edit", "nightly", *PLACE, code=2)
    assert error["what"] == "nothing to change is given"


# --- pause, resume, reset, rm


def test_pause_and_resume(shop: Terminal) -> None:
    assert text(shop, "pause", "nightly", "--reason", "disk", "--by", "ann") == (
        "nightly  active -> paused\n"
    )
    first, second = text(shop, "pause", "nightly", "--reason", "other").splitlines()
    assert first == "nightly  paused  (unchanged)"
    assert second.startswith("  paused by ann via cli at ")
    assert second.endswith(": disk")
    shown = text(shop, "show", "nightly")
    assert "  paused      by ann via cli at " in shown
    assert "next runs, if it is resumed\n" in shown
    assert "durio schedules resume nightly --app ticking\n" in shown
    assert text(shop, "ls").count("paused") == 1
    assert text(shop, "resume", "nightly").startswith(
        "nightly  paused -> active  next "
    )
    assert "active  (unchanged)  next" in text(shop, "resume", "nightly")
    answer = shop.json("schedules", "pause", "nightly", *PLACE)
    assert (answer["state"], answer["changed"]) == ("paused", True)
    assert shop.json("schedules", "resume", "nightly", *PLACE)["state"] == "active"


def test_reset_needs_code(shop: Terminal) -> None:
    add(shop)
    error = shop.error("schedules", "reset", "digest", *PLACE, code=2)
    assert error["code"] == "invalid_schedule"
    assert "durio schedules edit digest" in error["cure"]


@pytest.mark.usefixtures("person")
def test_rm_asks(shop: Terminal) -> None:
    no = shop.run("schedules", "rm", "nightly", *PLACE, stdin=b"n\n")
    assert (no.exit_code, "nothing was changed" in no.stderr) == (1, True)
    assert "schedule nightly of App shop will be deleted." in no.stderr
    assert show(shop, "nightly")
    yes = shop.run("schedules", "rm", "nightly", *PLACE, stdin=b"y\n")
    assert (yes.exit_code, yes.stdout) == (0, "nightly  deleted\n")
    assert "warning: the code declares nightly" in yes.stderr


def test_rm_without_a_terminal(shop: Terminal) -> None:
    add(shop)
    error = shop.error("schedules", "rm", "digest", *PLACE, code=2)
    assert error["code"] == "not_confirmed"
    answer = shop.json("schedules", "rm", "digest", "--yes", *PLACE)
    assert answer == {"name": "digest", "namespace": "shop", "deleted": True}
    assert [row["name"] for row in shop.json(*ls())["schedules"]] == ["nightly"]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("Give tz='Europe/Paris' or tz='UTC'.", "Give --tz Europe/Paris or --tz UTC."),
        ("fixed_delay is for every=, and", "--fixed-delay is for --every, and"),
        ('cron="0 2 * * *"', "--cron 0 2 * * *"),
        ("start at 5, every day", "start at 5, every day"),
    ],
)
def test_messages_write_options_as_flags(said: str, wanted: str) -> None:
    assert in_flags(said) == wanted
