"""A job of another store as PostgreSQL keeps it."""

import math

import pytest

from durio.errors import OperatingError
from durio.model.job import (
    BLOCKED,
    DEAD,
    DONE,
    JOB_COLUMNS,
    READY,
    RUNNING,
    SCHEDULED,
)
from durio.ports.move import FIRST_KEYS, ImportProgress, JobRow
from durio.stores.postgres.import_jobs import decode_mark, encode_mark
from durio.stores.postgres.import_values import (
    array_literal,
    imported_waits,
    job_values,
)
from durio.stores.postgres.waits import NewWait


def job_row(**fields: object) -> JobRow:
    empty = dict.fromkeys(JobRow._fields)
    known = {"seq": 1, "id": bytes(16), "lane": "shop:mail", "rank": 4, "state": READY}
    known |= {"task": "shop.send", "payload": b"[[],{}]", "created_at": 10.0}
    known |= dict.fromkeys(("retried", "losses", "lost", "snoozed", "claim_no"), 0)
    return JobRow(**{**empty, **known, **fields})


def row(deaths: int = 0, **fields: object) -> dict[str, object]:
    return dict(zip(JOB_COLUMNS, job_values(job_row(**fields), deaths), strict=True))


def test_what_a_job_has_is_kept() -> None:
    fields = {"retried": 3, "claim_no": 4, "run_at": 12.5, "opts": b"{}", "umode": 2}
    told = row(**fields)
    assert {name: told[name] for name in fields} == fields


def test_text_is_made_storable() -> None:
    assert row(state=DEAD, reason="a\0b")["reason"] == "ab"


def test_deaths_are_numbered_after_those_that_are_there() -> None:
    assert row(deaths=100, state=DEAD, died_no=7)["died_no"] == 107
    assert row(deaths=100, state=DEAD)["died_no"] == 100
    assert row(deaths=100, state=DONE)["died_no"] is None


def test_what_is_over_has_an_end() -> None:
    told = row(state=DONE)
    assert (told["finished_at"], told["gone_at"]) == (10.0, 10.0)
    told = row(state=DONE, finished_at=20.0, gone_at=30.0)
    assert (told["finished_at"], told["gone_at"]) == (20.0, 30.0)


def test_a_scheduled_job_has_a_time() -> None:
    assert row(state=SCHEDULED)["run_at"] == 10.0
    assert row(state=READY)["run_at"] is None


def test_a_blocked_job_waits_on() -> None:
    ties = '[["j:shop/1",2],[]]'
    blocked = job_row(state=BLOCKED, ties=ties, run_at=20.0, wait_delay=5.0)
    assert row(state=BLOCKED, ties=ties, run_at=20.0)["run_at"] == math.inf
    found = imported_waits([blocked, job_row(ties=ties)], "gates")
    assert found == [NewWait(bytes(16), "j:shop/1", 2, 5.0, 20.0)]


def test_a_job_with_gates_waits_for_the_end_of_the_move() -> None:
    ties = '[null,[],null,[["1k:a",1,null,null,0,1.0]]]'
    jobs = [job_row(state=state, ties=ties) for state in (BLOCKED, READY)]
    assert imported_waits(jobs, "gates") == [NewWait(bytes(16), "gates", 0)]


def test_a_running_job_does_not_travel() -> None:
    with pytest.raises(OperatingError, match="cannot be moved"):
        row(state=RUNNING)


@pytest.mark.parametrize(
    ("stored", "literal"),
    [
        (None, None),
        (b'[{"a":1},2]', '{"\\\\x7b2261223a317d","\\\\x32"}'),
        (b"no json", '{"\\\\x6e6f206a736f6e"}'),
        (b"[]", None),
    ],
)
def test_errors_are_an_array_of_one_row(
    stored: bytes | None, literal: str | None
) -> None:
    assert row(errors=stored)["errors"] == literal
    assert array_literal(None) is None


def test_a_mark_is_read_as_it_was_written() -> None:
    tables = {**FIRST_KEYS, "entry": ("j:shop/1", 7)}
    mark = ImportProgress("open", 5, b"\x00\xff", 3, tables)
    assert decode_mark(encode_mark(mark, "/a/file.db")) == mark


def test_a_mark_of_an_earlier_version_is_read() -> None:
    mark = '{"stage":"arriving","seq":5,"key":"00","deaths":3}'
    assert decode_mark(mark) == ImportProgress("arriving", 5, b"\0", 3)
