"""`durio jobs retry|cancel|run|discard`: by id and by filters, and the filters of `ls`."""

from collections.abc import Callable

import pytest

from tests.unit.cli.terminal import Terminal

UNKNOWN = "0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55"
PLACE = ("--app", "shop")
Ended = Callable[..., str]


def listed(shop: Terminal, *options: str) -> list[str]:
    return [job["id"] for job in shop.json("jobs", "ls", *PLACE, *options)["jobs"]]


def test_a_list_has_the_filters_of_dead_letters(shop: Terminal, ended: Ended) -> None:
    dead = ended("refuse", '{"text": "no such order"}')
    ready = shop.json("enqueue", "resize", '["a"]', *PLACE)["id"]
    assert listed(shop, "--error", "ORDER") == [dead]
    assert listed(shop, "--reason", "permanent") == [dead]
    assert listed(shop, "--newer", "1h") == [ready, dead]
    assert listed(shop, "--older", "1h") == []
    shown = shop.ok("jobs", "ls", *PLACE, "--older", "1h", "--task", "resize")
    assert shown == "no jobs of task resize, older than 1h\n"


def test_a_scheduled_job_is_run_now(shop: Terminal) -> None:
    later = shop.json("enqueue", "resize", '["a"]', *PLACE, "--delay", "1h")["id"]
    assert shop.ok("jobs", "run", later, *PLACE) == f"{later}  scheduled -> ready\n"
    (row,) = shop.json("jobs", "run", later, *PLACE, code=1)["jobs"]
    assert (row["ok"], row["error"]["code"]) == (False, "wrong_state")
    assert "is ready and is not scheduled" in row["error"]["what"]
    (row,) = shop.json("jobs", "run", UNKNOWN, *PLACE, code=1)["jobs"]
    assert row["error"]["code"] == "job_not_found"
    first = shop.json("audit", "ls", *PLACE)["audit"][-1]
    assert (first["verb"], first["jobs"]) == ("run_now", 1)


def test_many_are_chosen_by_filters(shop: Terminal) -> None:
    for text in "abc":
        shop.json("enqueue", "resize", f'["{text}"]', *PLACE, "--delay", "1h")
    chosen = ("--task", "resize", *PLACE)
    counts = shop.json("jobs", "run", *chosen, "--dry-run")
    assert counts == {"counted": 3, "done": 0, "held": 0, "dry_run": True}
    assert shop.ok("jobs", "run", *chosen, "--limit", "2", "--yes") == (
        "2 jobs of task resize made ready\n"
    )
    assert len(listed(shop, "--state", "ready")) == 2
    counts = shop.json("jobs", "cancel", *PLACE, "--state", "ready", "--yes")
    assert counts == {"counted": 2, "done": 2, "held": 0, "dry_run": False}
    counts = shop.json("jobs", "retry", "--all", *PLACE, "--yes")
    assert (counts["counted"], counts["done"]) == (2, 2)
    assert shop.ok("jobs", "discard", "--all", *PLACE, "--yes") == "no jobs\n"


def test_many_dead_jobs_are_discarded(shop: Terminal, ended: Ended) -> None:
    dead = ended("refuse")
    assert (
        shop.error("jobs", "discard", dead, *PLACE, code=2)["code"] == "not_confirmed"
    )
    assert (
        shop.ok("jobs", "discard", dead, *PLACE, "--yes") == f"{dead}  dead -> gone\n"
    )


@pytest.mark.parametrize("verb", ["retry", "cancel", "run", "discard"])
def test_nothing_is_chosen(shop: Terminal, verb: str) -> None:
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    error = shop.error("jobs", verb, *PLACE, code=2)
    assert error["what"] == "no jobs are chosen"
    assert "--all" in error["cure"]


def test_a_state_that_the_action_cannot_change(shop: Terminal) -> None:
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    error = shop.error("jobs", "retry", "--state", "ready", *PLACE, code=2)
    assert "retry changes dead or cancelled jobs, not ready ones" in error["what"]


def test_the_attempts_are_known_without_the_code(shop: Terminal, ended: Ended) -> None:
    """A worker has published them."""
    place = ("--store", "sqlite:///jobs.db")
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    assert [job["max_attempts"] for job in shop.json("jobs", "ls", *place)["jobs"]] == [
        None
    ]
    ended("resize", '["b"]')
    rows = shop.json("jobs", "ls", *place)["jobs"]
    assert [job["max_attempts"] for job in rows] == [3, 3]
    assert "1 of 3" in shop.ok("jobs", "ls", *place)


def test_a_pause_keeps_its_reason(shop: Terminal) -> None:
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    shop.ok("queues", "pause", "default", "--reason", "provider is down", *PLACE)
    (line,) = shop.json("audit", "ls", *PLACE)["audit"]
    assert line["target"] == "shop:default (provider is down)"
    error = shop.error("queues", "pause", "default", "--reason", " ", *PLACE, code=2)
    assert "reason cannot be ' '" in error["what"]
