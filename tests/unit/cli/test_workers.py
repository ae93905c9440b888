"""`durio workers`: the list, whom a name means, and workers that do not answer."""

import asyncio
from typing import Any

import apsw
import pytest

from durio import App
from durio.app.worker_commands import WorkerNotFound, find_workers, parse_response
from durio.app.worker_stacks import stack_text
from durio.cli.workers import (
    cells,
    no_response_text,
    report_text,
    worker_fields,
)
from durio.ports.browse import WorkerRow
from durio.ports.lease import Vitals, WorkerInfo
from tests.unit.cli.terminal import Terminal

PLACE = ("--app", "shop")
INFO: dict[str, Any] = {
    "namespace": "shop",
    "name": "here/7",
    "host": "here",
    "pid": 7,
    "queues": ["mail"],
    "concurrency": 4,
    "version": "0.1.0",
    "started_at": 1000.0,
}


def row(number: int = 1, **changed: Any) -> WorkerRow:
    vitals = Vitals(cpu_seconds=5.0, rss_bytes=64 * 2**20, ended=12, children=2)
    known = WorkerRow(number, INFO, 20.0, 3, vitals)
    return known._replace(**changed)


def register(terminal: Terminal, lease_seconds: float = 60.0) -> int:
    """A worker that nobody runs: it never answers."""

    async def main() -> int:
        async with App(f"sqlite:///{terminal.folder}/jobs.db", name="shop") as app:
            known = {name: INFO[name] for name in INFO if name != "started_at"}
            info = WorkerInfo(**{**known, "queues": None})
            return await (await app.store()).register(info, lease_seconds)

    return asyncio.run(main())


def test_a_worker_as_data() -> None:
    fields = worker_fields(row(), 1010.0)
    assert (fields["cpu_percent"], fields["cpu_seconds"]) == (50.0, 5.0)
    assert (fields["rss_bytes"], fields["ended"], fields["children"]) == (
        64 * 2**20,
        12,
        2,
    )
    young = worker_fields(row(vitals=None), 1010.0)
    assert young["cpu_percent"] is young["rss_bytes"] is young["ended"] is None


def test_a_worker_as_a_line() -> None:
    line = [str(cell) for cell in cells(row(), 1010.0)]
    assert line[:6] == ["1", "here/7", "3 of 4", "20 s", "mail", "shop"]
    assert line[7:11] == ["12", "64 MiB", "50 %", "2"]
    for left in (0.0, -1.0):
        assert cells(row(lease_seconds_left=left), 1010.0)[3] == "over"


def test_workers_by_number_or_name() -> None:
    rows = [row(1), row(12, lease_seconds_left=-5.0)]
    assert [r.id for r in find_workers(rows, ["12"])] == [12]
    assert [r.id for r in find_workers(rows, ["here/7", "12"])] == [12]
    assert [r.id for r in find_workers(rows, [])] == [1]  # all that are alive
    with pytest.raises(WorkerNotFound, match="'13'"):
        find_workers(rows, ["13"])


@pytest.mark.parametrize("verb", ["show", "stack", "drain"])
def test_a_worker_that_does_not_answer(shop: Terminal, verb: str) -> None:
    number = str(register(shop))
    line = ("workers", verb, number, *PLACE, "--timeout", "0.1")
    shown = shop.json(*line, code=7)["workers"][0]
    assert (shown["ok"], shown["answer"]) == (False, None)
    assert "no answer within 0.1 s" in shown["error"]
    told = shop.run(*line)
    assert told.exit_code == 7
    assert "lease good for" in told.stdout
    assert "pid 7 on here" in told.stdout


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("", "it has stopped"),
        ("[1]", "cannot be read"),
        ("{", "cannot be read"),
        ('{"error": "it moved"}', "it moved"),
        (None, "no answer within 3 s"),
    ],
)
def test_answers_that_are_none(told: str | None, why: str) -> None:
    found = parse_response(row(), told, 3.0)
    assert found.answer is None
    assert why in found.reason
    assert "pid 7 on here" in no_response_text(found)


def test_commands_are_audited(shop: Terminal) -> None:
    register(shop)
    shop.run("workers", "stack", "1", *PLACE, "--timeout", "0", "--by", "eve")
    (done,) = shop.json("audit", "ls", *PLACE)["audit"]
    assert (done["who"], done["verb"], done["target"]) == (
        "eve via cli",
        "stack",
        "worker 1",
    )


def test_no_such_worker(shop: Terminal) -> None:
    register(shop)
    error = shop.error("workers", "stack", "99", *PLACE, code=1)
    assert error["code"] == "worker_not_found"


@pytest.mark.parametrize(
    "args",
    [
        ["drain"],
        ["drain", "1", "--all"],
        ["drain", "--all"],  # no terminal and no --yes
        ["show"],
        ["stack", "1", "--timeout", "soon"],
        ["drain", "1", "--by", " "],
    ],
)
def test_bad_questions(shop: Terminal, args: list[str]) -> None:
    register(shop)
    assert shop.error("workers", *args, *PLACE, code=2)["what"]


def test_a_lease_that_is_over(shop: Terminal) -> None:
    """For how long is told to people; as data there is nothing left of it."""
    register(shop, 0.0)
    db = apsw.Connection(str(shop.folder / "jobs.db"))
    db.execute("update worker set expires_at = expires_at - 3 * 86400").fetchall()
    db.close()
    (shown,) = shop.json("workers", "ls", *PLACE)["workers"]
    assert shown["lease_seconds_left"] == 0
    told = shop.run("workers", "show", "1", *PLACE, "--timeout", "0")
    assert "(lease over for 3 d, pid 7 on here, no jobs)" in told.stdout


def test_nobody_to_ask(shop: Terminal) -> None:
    register(shop, 0.0)  # its lease is over
    assert shop.json("workers", "drain", "--all", "--yes", *PLACE) == {"workers": []}
    assert shop.ok("workers", "stack", "--all", *PLACE) == "no workers\n"


def test_answers_for_people() -> None:
    attempt = {
        "job_id": "01",
        "task": "shop.mail",
        "queue": "mail",
        "attempt": 2,
        "seconds": 3.25,
        "hard_seconds": None,
        "progress": {"done": 1},
    }
    name = {"worker": 3, "name": "here/7", "loop_lag_seconds": 0.0012}
    answer = {
        **name,
        "attempts": [{**attempt, "where": "loop", "stack": "  File x\n    y\n"}],
        "threads": [{"name": "MainThread", "stack": "  File z\n"}],
        "children": [{"pid": 9, "stack": "  File c\n"}],
        "left_out": 2,
    }
    assert stack_text(answer, is_all=False).splitlines() == [
        "worker 3 here/7: loop lag 1.2 ms",
        "shop.mail 01 queue mail attempt 2, for 3.25 s, on the event loop",
        "      File x",
        "        y",
        "child process 9",
        "      File c",
        "  1 thread of the process: --all",
        "... 2 more do not fit into one answer",
    ]
    full = stack_text(answer, is_all=True)
    assert "thread MainThread\n      File z" in full
    assert "--all" not in full
    idle = {**answer, "attempts": [], "children": [], "left_out": 0}
    assert "  no running jobs" in stack_text(idle, is_all=False).splitlines()
    report = report_text(
        {
            **name,
            "loop_lag_seconds": None,
            "namespace": "shop",
            "version": "0.1.0",
            "active": [
                {**attempt, "hard_seconds": 300.0},
                {**attempt, "progress": None},
            ],
            "reserved": [attempt],
            "registered": ["shop.mail"],
            "queues": [],
            "slots": {"mail": 2},
            "weights": {},
            "stats": {
                "concurrency": 10,
                "running": 1,
                "reserved": 1,
                "cpu_seconds": 1.5,
                "rss_bytes": 2**21,
                "ended": 5,
                "children": 0,
            },
        }
    )
    assert "its event loop is blocked" in report
    assert 'limit 5 min, progress {"done":1}' in report
    assert "no limit" in report
    assert "mail=2" in report
    assert "weights" not in report
