"""The query language on the command line: words beside options, ids, and clear errors."""

import pytest

from tests.unit.cli.terminal import Terminal

PLACE = ("--app", "shop")


@pytest.fixture
def jobs(shop: Terminal) -> list[str]:
    """Jobs `resize` with a, b and c; that with c is scheduled."""
    made = [
        shop.json("enqueue", "resize", f'["{text}"]', *PLACE)["id"] for text in "ab"
    ]
    later = shop.json("enqueue", "resize", '["c"]', *PLACE, "--delay", "1h")
    return [*made, later["id"]]


def listed(shop: Terminal, *words: str) -> list[str]:
    return [job["id"] for job in shop.json("jobs", "ls", *PLACE, *words)["jobs"]]


def test_words_choose_jobs(shop: Terminal, jobs: list[str]) -> None:
    a, b, c = jobs
    assert listed(shop) == [c, b, a]
    assert listed(shop, "state:ready") == [b, a]
    assert listed(shop, "state:ready queue:default") == [b, a]
    assert listed(shop, "-state:ready") == [c]
    assert listed(shop, "state:ready", "--task", "resize", "-id:" + a) == [b]
    assert listed(shop, "--state", "scheduled", "resize") == [c]
    assert listed(shop, f"id:{a}", f"id:{b}") == []
    assert c in shop.ok("jobs", "ls", *PLACE, "--", "-state:ready", "-task:x")
    assert listed(shop, "--error", "-state:ready") == []


def test_words_have_pages(shop: Terminal, jobs: list[str]) -> None:
    page = shop.json("jobs", "ls", "-state:dead", *PLACE, "--limit", "2")
    assert [job["id"] for job in page["jobs"]] == jobs[:0:-1]
    again = ("--cursor", page["cursor"])
    rest = shop.json("jobs", "ls", "-state:dead", *PLACE, *again)
    assert ([job["id"] for job in rest["jobs"]], rest["cursor"]) == ([jobs[0]], None)
    wrong = shop.error("jobs", "ls", "-state:done", *PLACE, *again, code=2)
    assert wrong["code"] == "invalid_cursor"


def test_counts_by_state(shop: Terminal, jobs: list[str]) -> None:
    assert jobs
    assert shop.json("jobs", "count", *PLACE) == {
        "count": 3,
        "capped": False,
        "partial": False,
        "by_state": {"scheduled": 1, "ready": 2},
    }
    said = shop.ok("jobs", "count", "args.path:a", "--task", "resize", *PLACE)
    assert said.startswith("1 job of task resize matching args.path:a")
    assert (
        shop.ok("jobs", "count", "state:dead", *PLACE)
        == "no jobs matching state:dead\n"
    )


def test_commands_that_change_jobs_take_words(shop: Terminal, jobs: list[str]) -> None:
    asked = ("jobs", "cancel", "state:ready", "-id:" + jobs[0], *PLACE)
    assert shop.json(*asked, "--dry-run")["counted"] == 1
    done = shop.json(*asked, "--yes")
    assert (done["counted"], done["done"]) == (1, 1)
    assert listed(shop, "state:cancelled") == [jobs[1]]
    again = shop.json("jobs", "retry", "task:resize", "--yes", "--limit", "5", *PLACE)
    assert again["done"] == 1
    ran = shop.json("jobs", "run", "state:scheduled", "--yes", *PLACE)
    assert ran["done"] == 1


def test_ids_are_still_ids(shop: Terminal, jobs: list[str]) -> None:
    answer = shop.json("jobs", "cancel", jobs[0], jobs[1], *PLACE)
    assert [one["ok"] for one in answer["jobs"]] == [True, True]
    assert shop.error("jobs", "cancel", "resize", *PLACE, code=2)["code"] == (
        "invalid_job_id"
    )
    both = shop.error("jobs", "cancel", "state:ready", "--all", *PLACE, code=2)
    assert "--all and filters" in both["what"]


def test_dead_letters_take_words(shop: Terminal, ended: object) -> None:
    job = ended("refuse", '{"text": "no such order"}')  # type: ignore[operator]
    found = shop.json("dead", "ls", "error:order", "-task:resize", *PLACE)["jobs"]
    assert [one["id"] for one in found] == [job]
    assert shop.json("dead", "ls", "state:ready", *PLACE)["jobs"] == []
    lines = shop.ok("dead", "export", "args.text:*", *PLACE)
    assert lines.count("\n") == 1
    done = shop.json("dead", "discard", "args.text:*", "--yes", *PLACE)
    assert done["done"] == 1


@pytest.mark.parametrize(
    ("words", "caret"),
    [
        (("stat:dead",), ("stat:dead", "^")),
        (("state:dead", "attempt:two"), ("state:dead attempt:two", " " * 19 + "^")),
        (('error:"open',), ('error:"open', " " * 6 + "^")),
        (("x" * 1001,), ("x" * 51, " " * 50 + "^")),
    ],
)
def test_a_mistake_is_marked(
    shop: Terminal, jobs: list[str], words: tuple[str, ...], caret: tuple[str, str]
) -> None:
    assert jobs
    for command in ("ls", "count"):
        error = shop.error("jobs", command, *words, *PLACE, code=2)
        assert error["code"] == "invalid_query"
        assert error["cure"].splitlines()[:2] == list(caret)
        assert "Expected" in error["cure"]


def test_unknown_names_are_refused(shop: Terminal, jobs: list[str]) -> None:
    assert jobs
    assert shop.error("jobs", "ls", "task:rezise", *PLACE, code=2)["code"] == (
        "unknown_task"
    )
    assert shop.error("jobs", "cancel", "queue:mial", *PLACE, code=2)["code"] == (
        "unknown_queue"
    )


def test_every_app_is_searched_on_request(shop: Terminal, jobs: list[str]) -> None:
    store = ("--store", "sqlite:///jobs.db")
    shop.json("enqueue", "other.resize", *store)
    assert jobs
    found = shop.json("jobs", "ls", "task:resize", *store, "--all-apps")["jobs"]
    assert len(found) == 4
    assert (
        len(shop.json("jobs", "ls", "task:other.resize", *store, "--all-apps")["jobs"])
        == 1
    )
