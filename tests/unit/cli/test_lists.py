"""Lists at any width. The lists themselves are in lists/; to write them again:

UPDATE_SNAPSHOT=1 .venv/bin/python -m pytest tests/unit/cli/test_lists.py
"""

import os
import re
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from durio.cli import audit, dead, jobs, output, queues, workers
from durio.cli.job_output import attempt_text
from durio.cli.table import Column, table_lines
from durio.client.queue_rows import QueueRow
from durio.ports.browse import AuditLine, WorkerRow
from durio.ports.lease import Vitals
from tests.unit.cli.terminal import Terminal

NOW = 1_800_000_000.0
APP = "a" * 63  # the longest legal names
TASK = f"{APP}.{'t' * 128}"
QUEUE = "q" * 128
WIDE = "注文 4711 は配達できません: 住所が見つかりません"
WIDTHS = (50, 80, 120, 200)


def when(seconds: float) -> datetime:
    return datetime.fromtimestamp(NOW - seconds, UTC)


def job(number: int, state: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"0198c2f4-7a31-7c1e-8b8e-{number:012d}",
        "namespace": "shop",
        "task": "shop.send",
        "queue": "default",
        "priority": 5,
        "state": state,
        "attempt": 1,
        "max_attempts": 6,
        "created_at": when(90),
        "finished_at": when(60),
        "reason": None,
        "error_type": None,
        "error": None,
        **fields,
    }


JOBS = [
    job(1, "ready"),
    job(2, "scheduled", attempt=2, error_type="ConnectionError", error="away"),
    job(3, "cancelled", task=TASK, queue=QUEUE, created_at=when(864_000)),
    job(4, "dead", reason="permanent", error_type="Permanent", error=WIDE),
    job(5, "done", attempt=3, error_type="ConnectionError", error="an old error"),
]
DEAD = [
    job(4, "dead", reason="permanent", error_type="Permanent", error=WIDE),
    job(6, "dead", reason="unknown_task", task=TASK, queue=QUEUE, finished_at=when(1)),
    job(
        7,
        "dead",
        reason="exhausted",
        attempt=6,
        error_type="ExceptionGroup",
        error="x" * 300,
    ),
]


def queue(name: str, **given: Any) -> QueueRow:
    plain = {field.name: 0 for field in fields(QueueRow)}
    return QueueRow(
        **{**plain, "queue": name, "oldest_at": None, "maxsize": None, **given}
    )


QUEUES = [
    queue("default", ready=12, running=3, oldest_at=when(7300), workers=2),
    queue(QUEUE, paused=True, closed=True, over=True, ready=999_999, maxsize=1_000_000),
]


def worker(number: int, **fields: Any) -> WorkerRow:
    info = {
        "name": f"web-1/{number}",
        "namespace": "shop",
        "queues": None,
        "concurrency": 10,
        "version": "0.1.0",
        "started_at": NOW - 100_000,
        **fields,
    }
    vitals = Vitals(cpu_seconds=50.0, rss_bytes=2**27, ended=123_456, children=4)
    return WorkerRow(number, info, 24.9, 3, vitals)


WORKERS = [
    worker(3),
    worker(4, name=f"{'h' * 64}/123456", namespace=APP, queues=[QUEUE, "mail"]),
]
AUDIT = [
    AuditLine(NOW - 60, "root", "cancel", JOBS[0]["id"], 1),
    AuditLine(NOW - 90, "root", "retry", ", ".join(row["id"] for row in JOBS), 5),
    AuditLine(NOW - 600, WIDE, "pause", f"{APP}:{QUEUE}", 0),
]
LISTS = {
    "jobs": (jobs.COLUMNS, [jobs.cells(row, NOW) for row in JOBS]),
    "dead": (dead.COLUMNS, [dead.cells(row, NOW) for row in DEAD]),
    "queues": (queues.COLUMNS, [queues.cells(row, NOW) for row in QUEUES]),
    "workers": (workers.COLUMNS, [workers.cells(row, NOW) for row in WORKERS]),
    "audit": (audit.COLUMNS, [audit.cells(row, NOW) for row in AUDIT]),
}


def lines_of(name: str, width: int | None) -> list[str]:
    columns, rows = LISTS[name]
    return table_lines(columns, [texts(row) for row in rows], width)


def texts(row: Sequence[Any]) -> list[str]:
    return [output.safe(output.cell(value), is_line=True) for value in row]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", list(LISTS))
def test_snapshot(name: str, width: int) -> None:
    lines = lines_of(name, width)
    kept = Path(__file__).parent / "lists" / f"{name}-{width}.txt"
    shown = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_SNAPSHOT"):
        kept.write_text(shown, encoding="utf-8")
    assert shown == kept.read_text(encoding="utf-8")
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("width", range(60, 201))
@pytest.mark.parametrize("name", ["jobs", "dead"])
def test_ids_are_whole_at_every_width(name: str, width: int) -> None:
    lines = lines_of(name, width)
    assert max(map(cell_len, lines)) <= width
    for line, row in zip(lines[1:], LISTS[name][1], strict=True):
        assert line.startswith(row[0])


@pytest.mark.parametrize("width", range(20, 201))
def test_ids_in_a_list_of_ids_are_whole_or_left_out(width: int) -> None:
    text = "\n".join(lines_of("audit", width))
    for part in re.findall(r"0198[0-9a-f-]*", text):
        assert part in {row["id"] for row in JOBS}
    assert JOBS[0]["id"] in text


def test_id_state_task_and_age_fit_80_columns() -> None:
    assert lines_of("jobs", 80)[0].split() == ["id", "state", "task", "age"]


def test_narrow_terminals_get_one_field_per_line() -> None:
    lines = lines_of("jobs", 59)
    assert len(lines) == len(JOBS) * len(jobs.COLUMNS)
    assert lines[0] == f"id {JOBS[0]['id']}"
    assert lines[1] == "  state    ready"
    assert len(lines_of("jobs", 60)) == len(JOBS) + 1


def test_nothing_is_cut_without_a_width() -> None:
    text = "\n".join(lines_of("jobs", None) + lines_of("dead", None))
    for value in (TASK, QUEUE, WIDE, "x" * 300):
        assert value in text


def test_done_jobs_show_no_old_error() -> None:
    text = "\n".join(lines_of("jobs", 200) + lines_of("jobs", 50))
    assert "an old error" not in text
    assert "ConnectionError: away" in text


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-5, "0 s"), (0.4, "0 s"), (119.9, "119 s"), (120, "2 min"), (7199, "119 min"),
     (7200, "2 h"), (172_799, "47 h"), (172_800, "2 d"), (9999 * 86400, "9999 d")],
)  # fmt: skip
def test_age_has_at_most_seven_characters(seconds: float, said: str) -> None:
    assert output.age(when(seconds), NOW) == said
    assert len(said) <= 7


def test_no_rows() -> None:
    columns = (Column("id"), Column("task", least=20))
    assert table_lines(columns, [], 80) == ["id  task"]
    assert table_lines(columns, [], 40) == []


def test_wide_characters_count_twice() -> None:
    columns = (Column("a"), Column("b", least=4), Column("c"))
    rows = [["1", "注文注文注文", "x"], ["2", "ascii", "y"]]
    lines = table_lines(columns, rows, None)
    assert lines[1:] == ["1  注文注文注文  x", "2  ascii         y"]
    assert table_lines(columns, [["1", "注文" * 40, "x"]], 60)[1] == (
        "1  " + "注文" * 13 + "…" + "   x"
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("jobs", "ls"), "no jobs"),
        (("dead", "ls"), "no dead letters"),
        (("workers", "ls"), "no workers"),
        (("audit", "ls"), "no changes recorded"),
    ],
)
def test_empty_lists_say_so(
    shop: Terminal, command: tuple[str, ...], said: str
) -> None:
    shop.json("enqueue", "resize", '["a"]', "--app", "shop")
    shop.ok("worker", "shop:app", "--burst", "--log-level", "ERROR")
    state = ("--state", "dead") if command[0] == "jobs" else ()
    filters = " with state dead" if state else ""
    assert shop.ok(*command, *state, "--app", "shop") == f"{said}{filters}\n"


@pytest.mark.parametrize(
    ("attempt", "most", "text"), [(2, 6, "2 of 6"), (2, None, "2"), (3, 1, "3")]
)
def test_attempts_in_a_list(attempt: int, most: int | None, text: str) -> None:
    """A raised Retry may allow more attempts than the task."""
    assert attempt_text({"attempt": attempt, "max_attempts": most}) == text
