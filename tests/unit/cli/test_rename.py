"""`durio jobs rename`: counted, confirmed, audited; and the names that it refuses."""

import pytest

from tests.unit.cli.terminal import Terminal

OLD = """
from durio import App, Permanent

app = App("sqlite:///jobs.db", name="shop")

@app.task
async def resize(path: str) -> None: ...

@app.task
async def refuse() -> None:
    raise Permanent("no")
"""
NEW = """
from durio import App

app = App("sqlite:///jobs.db", name="shop")

@app.task(aliases=("refuse",))
async def decline() -> None: ...

@app.task(aliases=("resize",))
async def shrink(path: str) -> None: ...
"""
APP = ("--app", "new")


@pytest.fixture
def jobs(terminal: Terminal) -> Terminal:
    """One ready and one scheduled job with a key, and a dead one, of the old code."""
    terminal.write("old.py", OLD)
    terminal.write("new.py", NEW)
    terminal.json("enqueue", "refuse", "--app", "old")
    terminal.ok("worker", "old:app", "--burst", "--log-level", "ERROR")
    for options in ((), ("--delay", "1h", "--key", "k")):
        terminal.json("enqueue", "resize", '["a"]', "--app", "old", *options)
    return terminal


def tasks(terminal: Terminal) -> list[tuple[str, str]]:
    rows = terminal.json("jobs", "ls", *APP)["jobs"]
    return sorted((row["task"], row["state"]) for row in rows)


def test_waiting_and_dead_jobs_are_renamed(jobs: Terminal) -> None:
    rename = ("jobs", "rename", "--yes", "--by", "ann", *APP)
    said = jobs.ok(*rename, "resize", "shrink")
    assert said == "2 of 2 jobs of shop.resize renamed to shop.shrink\n"
    assert jobs.json(*rename, "shop.refuse", "shop.decline") == {
        "counted": 1,
        "done": 1,
        "held": 0,
        "dry_run": False,
    }
    assert tasks(jobs) == [
        ("shop.decline", "dead"),
        ("shop.shrink", "ready"),
        ("shop.shrink", "scheduled"),
    ]
    # The key went along: the same enqueue under the new name is the same job.
    again = jobs.json("enqueue", "shrink", '["a"]', "--key", "k", *APP)
    assert not again["created"]
    lines = jobs.json("audit", "ls", *APP)["audit"]
    assert [
        (line["who"], line["verb"], line["target"], line["jobs"]) for line in lines
    ] == [
        ("ann via cli", "rename", "shop.refuse to shop.decline", 1),
        ("ann via cli", "rename", "shop.resize to shop.shrink", 2),
    ]


def test_a_dry_run_only_counts(jobs: Terminal) -> None:
    before = tasks(jobs)
    said = jobs.ok("jobs", "rename", "resize", "shrink", "--dry-run", *APP)
    assert said == "2 jobs of shop.resize to rename\n"
    assert jobs.json("jobs", "rename", "resize", "shrink", "--dry-run", *APP) == {
        "counted": 2,
        "done": 0,
        "held": 0,
        "dry_run": True,
    }
    assert tasks(jobs) == before


def test_a_job_whose_key_another_one_has_stays(jobs: Terminal) -> None:
    jobs.json("enqueue", "shrink", '["a"]', "--key", "k", "--delay", "1h", *APP)
    said = jobs.ok("jobs", "rename", "resize", "shrink", "--yes", *APP)
    assert said == (
        "1 of 2 jobs of shop.resize renamed to shop.shrink; 1 not: another job has its "
        "key, or an open transaction holds it or its key\n"
    )


def test_an_alias_stands_for_its_task(jobs: Terminal) -> None:
    jobs.ok("jobs", "rename", "refuse", "resize", "--yes", *APP)
    assert ("shop.shrink", "dead") in tasks(jobs)


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("resize", "shrnk", "unknown_task", "no worker knows a task 'shop.shrnk'"),
        ("resiz", "shrink", "unknown_task", "there is no task 'shop.resiz' in App"),
        ("resize", "shop.resize", "usage", "shop.resize is the same task"),
        ("shrink", "resize", "usage", "shop.shrink is the same task"),
        ("bank.resize", "shrink", "usage", "belong to different Apps"),
        ("a b", "shrink", "invalid_name", "cannot be named 'a b'"),
    ],
)
def test_names_that_are_refused(
    jobs: Terminal, old: str, new: str, code: str, words: str
) -> None:
    before = tasks(jobs)
    error = jobs.error("jobs", "rename", old, new, "--yes", *APP, code=2)
    assert (error["code"], words in error["what"]) == (code, True), error
    assert tasks(jobs) == before


def test_a_known_name_without_jobs_is_no_error(jobs: Terminal) -> None:
    rename = ("jobs", "rename", "resize", "shrink", "--yes", *APP)
    jobs.ok(*rename)
    assert jobs.ok(*rename) == "0 jobs of shop.resize to rename\n"
    assert jobs.json(*rename)["counted"] == 0


def test_without_code_a_worker_must_know_the_name(jobs: Terminal) -> None:
    place = ("--store", "sqlite:///jobs.db", "--name", "shop")
    error = jobs.error("jobs", "rename", "resize", "shrink", "--yes", *place, code=2)
    assert error["code"] == "unknown_task"
    jobs.ok("worker", "new:app", "--burst", "--log-level", "ERROR")
    assert jobs.json("jobs", "rename", "resize", "shrink", "--yes", *place)["done"] == 1


def test_it_asks_first(jobs: Terminal) -> None:
    error = jobs.error("jobs", "rename", "resize", "shrink", *APP, code=2)
    assert error["code"] == "not_confirmed"
    assert "2 jobs of shop.resize will be renamed to shop.shrink" in error["what"]
