"""`durio queues`: what they show, and what hands do to them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from durio import App
from durio.ports.browse import WorkerRow
from tests.unit.cli.terminal import Terminal

PLACE = ("--app", "shop")
BY = ("--by", "ann")


def enqueue(shop: Terminal, jobs: int, *options: str, task: str = "resize") -> None:
    for _ in range(jobs):
        shop.json("enqueue", task, *PLACE, '{"path": "a"}', *options)


def enqueue_many(shop: Terminal, jobs: int, queue: str) -> None:
    """More than a command line each would do."""

    async def ask() -> None:
        async with App(f"sqlite:///{shop.folder}/jobs.db", name="shop") as app:

            @app.task(name="resize", queue=queue)
            async def resize(path: str) -> None:
                del path

            await resize.enqueue_many([("a",)] * jobs)

    asyncio.run(ask())


def queues(shop: Terminal) -> dict[str, dict[str, Any]]:
    return {q["queue"]: q for q in shop.json("queues", "ls", *PLACE)["queues"]}


def states(shop: Terminal) -> list[str]:
    return sorted(job["state"] for job in shop.json("jobs", "ls", *PLACE)["jobs"])


# --- ls


def test_list_counts_by_state(shop: Terminal) -> None:
    enqueue(shop, 2)
    enqueue(shop, 1, "--delay", "1h")
    shop.json("enqueue", "refuse", *PLACE)
    shop.ok("worker", "shop:app", "-q", "mail", "--burst", "--log-level", "ERROR")
    found = queues(shop)
    assert list(found) == ["default", "mail"]
    default, mail = found["default"], found["mail"]
    assert (default["ready"], default["scheduled"], default["depth"]) == (2, 1, 3)
    assert (default["running"], default["dead"], default["workers"]) == (0, 0, 0)
    assert default["oldest_at"] is not None
    assert (mail["ready"], mail["dead"], mail["oldest_at"]) == (0, 1, None)
    assert (mail["maxsize"], mail["by_hand"], mail["over"]) == (None, False, False)
    shown = shop.ok("queues", "ls", *PLACE)
    assert shown.startswith("queue    state  ready  scheduled  running  dead")
    assert "default  open   2      1          0        0" in shown


def test_list_of_nothing_names_the_app(shop: Terminal) -> None:
    enqueue(shop, 1)
    store = ("--store", "sqlite:///jobs.db")
    shown = shop.ok("queues", "ls", *store, "--name", "bank")
    assert shown == "no queues of App bank\n"
    assert shop.ok("queues", "ls", *store, "--name", "shop").startswith("queue")


@pytest.mark.parametrize(
    ("told", "left", "is_served"),
    [
        (None, 20.0, True),
        (["mail"], 20.0, True),
        (["ma*"], 20.0, True),
        (["default", "[lm]ail"], 20.0, True),
        (["Mail", "mai"], 20.0, False),
        (["mail"], 0.0, False),
    ],
)
def test_who_serves_a_queue(told: Any, left: float, *, is_served: bool) -> None:
    worker = WorkerRow(1, {"queues": told}, left, 0)
    assert worker.serves("mail") is is_served


# --- pause, resume, limit


def test_pause_holds_jobs_back_until_resume(shop: Terminal) -> None:
    enqueue(shop, 2)
    (row,) = shop.json("queues", "pause", "default", *PLACE)["queues"]
    assert (row["queue"], row["paused"]) == ("default", True)
    shop.ok("worker", "shop:app", "--burst", "--log-level", "ERROR")
    assert states(shop) == ["ready", "ready"]
    enqueue(shop, 1)  # it still takes jobs
    assert "open " in shop.ok("queues", "resume", "default", *PLACE)
    shop.ok("worker", "shop:app", "--burst", "--log-level", "ERROR")
    assert states(shop) == ["done"] * 3


def test_unknown_queue_changes_none(shop: Terminal) -> None:
    enqueue(shop, 1)
    for verb in ("pause", "resume"):
        error = shop.error("queues", verb, "default", "defualt", *PLACE, code=2)
        assert error["code"] == "unknown_queue"
        assert error["cure"].endswith("Did you mean 'default'?")
    assert queues(shop)["default"]["paused"] is False
    for args in (["purge", "x"], ["move", "x", "mail"], ["drain", "x"]):
        assert shop.error("queues", *args, *PLACE, code=2)["code"] == "unknown_queue"
    error = shop.error("queues", "limit", "a b", "--maxsize", "1", *PLACE, code=2)
    assert error["code"] == "invalid_name"


def test_queue_that_only_code_names_is_known(shop: Terminal) -> None:
    enqueue(shop, 1)
    assert shop.json("queues", "pause", "mail", *PLACE)["queues"][0]["paused"]


def test_limit_by_hand(shop: Terminal) -> None:
    enqueue(shop, 2)

    def limit(size: str) -> tuple[Any, ...]:
        answer = shop.json("queues", "limit", "default", "--maxsize", size, *PLACE)
        row = answer["queues"][0]
        return row["maxsize"], row["by_hand"], row["depth"]

    assert limit("5") == (5, True, 2)
    assert "2/5*" in shop.ok("queues", "ls", *PLACE)
    assert limit("none") == (None, True, 2)
    assert limit("code") == (None, False, 2)
    for bad in ("0", "-3", "many", "1.5", "99999999999", "²"):
        args = ["queues", "limit", "default", f"--maxsize={bad}"]
        assert shop.error(*args, *PLACE, code=2)["cure"].endswith("none or code.")


# --- drain


def test_drain_of_an_empty_queue_closes_it(shop: Terminal) -> None:
    enqueue(shop, 1)
    shop.ok("worker", "shop:app", "--burst", "--log-level", "ERROR")
    answer = shop.json("queues", "drain", "default", *PLACE)
    assert answer == {"queue": "default", "closed": True, "waiting": 0, "running": 0}
    assert queues(shop)["default"]["closed"] is True
    error = shop.error("enqueue", "resize", '["a"]', *PLACE, code=75)
    assert error["code"] == "queue_closed"
    assert queues(shop)["default"]["depth"] == 0
    shop.ok("queues", "resume", "default", *PLACE)
    enqueue(shop, 1)


def test_drain_ends_when_its_time_is_over(shop: Terminal) -> None:
    enqueue(shop, 1)
    result = shop.run("queues", "drain", "default", *PLACE, "--timeout", "100ms")
    assert result.exit_code == 7
    assert "draining: 1 ready, 0 scheduled, 0 running, no worker" in result.stderr
    assert "until: durio queues resume default --app shop" in result.stderr
    assert queues(shop)["default"]["closed"] is True


def test_paused_queue_cannot_drain(shop: Terminal) -> None:
    enqueue(shop, 1)
    shop.ok("queues", "pause", "default", *PLACE)
    error = shop.error("queues", "drain", "default", *PLACE, code=2)
    cure = "Resume it first: durio queues resume default --app shop"
    assert error["cure"] == cure
    assert queues(shop)["default"]["closed"] is False


# --- move


def test_move_keeps_every_job(shop: Terminal) -> None:
    enqueue(shop, 2)
    enqueue(shop, 1, "--delay", "1h")
    dry = shop.json("queues", "move", "default", "mail", *PLACE, "--dry-run")
    assert dry == {"counted": 3, "done": 0, "held": 0, "dry_run": True}
    assert queues(shop)["default"]["depth"] == 3
    answer = shop.json("queues", "move", "default", "mail", *PLACE, "--yes")
    assert answer == {"counted": 3, "done": 3, "held": 0, "dry_run": False}
    found = queues(shop)
    assert (found["default"]["depth"], found["mail"]["depth"]) == (0, 3)
    assert found["mail"]["scheduled"] == 1
    shown = shop.ok("queues", "move", "default", "mail", *PLACE)
    assert shown == "no waiting jobs of queue default to move\n"


def test_move_to_a_queue_that_nobody_knows(shop: Terminal) -> None:
    enqueue(shop, 1)
    move = ("queues", "move", "default")
    error = shop.error(*move, "mial", *PLACE, "--yes", code=2)
    assert error["cure"].endswith("Did you mean 'mail'?")
    assert shop.error(*move, "default", *PLACE, "--yes", code=2)["code"] == "usage"
    assert shop.error(*move, "a b", "--create", *PLACE, "--yes", code=2)
    assert queues(shop)["default"]["depth"] == 1
    shown = shop.ok(*move, "later", "--create", "--yes", *PLACE)
    assert shown == "1 waiting job moved from default to later\n"
    assert queues(shop)["later"]["depth"] == 1


# --- purge


def test_purge_cancels_and_erases_nothing(shop: Terminal) -> None:
    enqueue(shop, 2)
    enqueue(shop, 1, "--delay", "1h")
    shop.json("enqueue", "refuse", *PLACE)
    assert shop.json("queues", "purge", "default", *PLACE, "--dry-run")["counted"] == 3
    assert shop.ok("queues", "purge", "default", *PLACE, "--yes") == (
        "3 waiting jobs cancelled\n"
    )
    assert states(shop) == ["cancelled", "cancelled", "cancelled", "ready"]
    (cancelled, *_) = shop.json("jobs", "ls", "--state", "cancelled", *PLACE)["jobs"]
    shop.ok("jobs", "retry", cancelled["id"], *PLACE)


@pytest.mark.parametrize("verb", [["purge", "default"], ["move", "default", "mail"]])
def test_without_a_terminal_it_needs_a_yes(shop: Terminal, verb: list[str]) -> None:
    enqueue(shop, 2)
    error = shop.error("queues", *verb, *PLACE, code=2)
    assert error["code"] == "not_confirmed"
    assert error["what"].startswith("2 waiting jobs of queue default will ")
    assert "--yes" in error["cure"]
    assert queues(shop)["default"]["depth"] == 2


@pytest.mark.usefixtures("person")
def test_person_is_asked(shop: Terminal) -> None:
    enqueue(shop, 2)
    purge = ("queues", "purge", "default", *PLACE)
    refused = shop.run(*purge, stdin=b"n\n")
    assert refused.exit_code == 1
    assert "2 waiting jobs of queue default will be cancelled." in refused.stderr
    assert refused.stderr.splitlines()[-1] == "nothing was changed"
    assert queues(shop)["default"]["depth"] == 2
    agreed = shop.run(*purge, stdin=b"y\n")
    assert (agreed.exit_code, agreed.stdout) == (0, "2 waiting jobs cancelled\n")


@pytest.mark.usefixtures("person")
def test_many_jobs_need_the_name_typed(shop: Terminal) -> None:
    enqueue_many(shop, 101, "default")
    purge = ("queues", "purge", "default", *PLACE)
    assert shop.run(*purge, stdin=b"y\n").exit_code == 1
    assert queues(shop)["default"]["depth"] == 101
    assert shop.run(*purge, stdin=b"default\n").exit_code == 0
    assert queues(shop)["default"]["depth"] == 0


@pytest.mark.parametrize("verb", ["purge", "move"])
def test_more_than_a_step(shop: Terminal, verb: str) -> None:
    enqueue_many(shop, 1201, "default")
    target = ["mail"] if verb == "move" else []
    answer = shop.json("queues", verb, "default", *target, "--yes", *PLACE)
    assert answer == {"counted": 1201, "done": 1201, "held": 0, "dry_run": False}
    assert queues(shop)["default"]["depth"] == 0


# --- who did it


def test_hands_on_queues_are_written_down(shop: Terminal) -> None:
    enqueue(shop, 2)
    shop.ok("queues", "pause", "default", *PLACE, *BY)
    shop.ok("queues", "resume", "default", *PLACE, *BY)
    shop.ok("queues", "limit", "default", "--maxsize", "9", *PLACE, *BY)
    shop.ok("queues", "move", "default", "mail", "--yes", *PLACE, *BY)
    shop.ok("queues", "purge", "mail", "--yes", *PLACE, *BY)
    lines = shop.json("audit", "ls", *PLACE)["audit"]
    assert {line["who"] for line in lines} == {"ann via cli"}
    told = [(line["verb"], line["jobs"]) for line in reversed(lines)]
    assert told[0] == ("pause", 0)
    assert ("resume", 0) in told
    assert told[-2:] == [("move", 2), ("cancel", 2)]
    assert any(line["verb"] == "limit" for line in lines)


def test_only_what_changed_is_written_down(shop: Terminal) -> None:
    """A queue that is so already is left alone, and nobody is said to have acted."""
    enqueue(shop, 1)
    shop.ok("queues", "pause", "default", *PLACE)
    for _ in range(2):
        shop.ok("queues", "resume", "default", *PLACE)
        shop.ok("queues", "limit", "default", "--maxsize", "9", *PLACE)
    shop.ok("queues", "limit", "default", "--maxsize", "code", *PLACE)
    shop.ok("queues", "limit", "default", "--maxsize", "code", *PLACE)
    lines = shop.json("audit", "ls", *PLACE)["audit"]
    told = [line["verb"] for line in reversed(lines)]
    assert told == ["pause", "resume", "limit", "limit"]


def test_json_is_one_object_also_when_a_person_is_asked(
    shop: Terminal, person: None
) -> None:
    del person
    enqueue(shop, 1)
    result = shop.run("queues", "purge", "default", *PLACE, "--json", stdin=b"y\n")
    assert json.loads(result.stdout) == {
        "counted": 1,
        "done": 1,
        "held": 0,
        "dry_run": False,
    }


def test_asking_makes_no_store(terminal: Terminal, tmp_path: Path) -> None:
    for args in (["queues", "ls"], ["queues", "pause", "x"], ["dead", "ls"]):
        assert terminal.error(*args, code=3)["code"] == "store_unavailable"
    assert not list(tmp_path.iterdir())
