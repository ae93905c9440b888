"""Both sides of a move, compared; and which moves there are."""

import pytest

from durio.app.move import check_stores
from durio.app.move_verify import (
    Comparison,
    compare_job,
    compare_rows,
    digest_bytes,
    job_digest,
    lasting,
)
from durio.errors import InvalidURL, UsageError
from durio.model.job import DONE, READY, RUNNING, SCHEDULED
from durio.ports.move import JobDigest, JobRow, LogHeadRow

NOW = 1000.0


def job_row(**fields: object) -> JobRow:
    empty = dict.fromkeys(JobRow._fields)
    known = {"seq": 1, "id": bytes(16), "lane": "shop:mail", "rank": 4, "state": READY}
    known |= {"task": "shop.send", "payload": b"[[],{}]", "claim_no": 3}
    return JobRow(**{**empty, **known, "created_at": 10.0, **fields})


def judged(one: JobRow, *there: JobDigest) -> Comparison:
    verdict = Comparison()
    compare_job(verdict, one, there, NOW)
    return verdict


def test_the_same_is_the_same() -> None:
    one = job_row()
    verdict = Comparison()
    other = compare_job(verdict, one, [job_digest(one)], NOW)
    assert verdict.differences == []
    assert digest_bytes(other) == digest_bytes(job_digest(one))


@pytest.mark.parametrize(
    "change",
    [
        {"state": RUNNING},
        {"state": SCHEDULED},
        {"claim_no": 4},
        {"payload": b"[[1],{}]"},
        {"lane": "shop:other"},
        {"rank": 5},
        {"task": "shop.other"},
        {"run_at": 5.0},
        {"created_at": 10.5},
        {"result": b"1"},
    ],
)
def test_whatever_differs_is_told(change: dict[str, object]) -> None:
    one = job_row()
    verdict = judged(one, job_digest(one)._replace(**change))
    assert len(verdict.differences) == 1
    assert "00000000-0000-0000-0000-000000000000" in verdict.differences[0]


def test_a_job_is_there_once() -> None:
    one = job_row()
    assert "0 times" in judged(one).differences[0]
    assert "2 times" in judged(one, job_digest(one), job_digest(one)).differences[0]


@pytest.mark.parametrize(("run_at", "wrong"), [(NOW - 1, 0), (NOW + 1, 1)])
def test_a_due_job_may_have_become_ready(run_at: float, wrong: int) -> None:
    one = job_row(state=SCHEDULED, run_at=run_at)
    verdict = judged(one, job_digest(one)._replace(state=READY))
    assert len(verdict.differences) == wrong


@pytest.mark.parametrize(
    ("fields", "pruned"),
    [
        ({"state": DONE, "gone_at": NOW - 1}, 1),
        ({"state": DONE, "gone_at": NOW + 1}, 0),
        ({"state": DONE, "gone_at": NOW + 1, "bucket": "shop.send"}, 1),
        ({"state": READY, "gone_at": NOW - 1}, 0),
    ],
)
def test_only_what_is_over_may_be_gone(fields: dict[str, object], pruned: int) -> None:
    verdict = judged(job_row(**fields))
    assert (verdict.pruned, len(verdict.differences)) == (pruned, 1 - pruned)


@pytest.mark.parametrize(
    ("source", "target", "named"),
    [
        ("sqlite:///a.db", "sqlite:///b.db", "to sqlite:///b.db"),
        ("postgresql://u:geheim@h/d", "sqlite:///a.db", "away from postgresql://u:"),
        ("sqlite:///:memory:", "postgresql://h/d", "away from sqlite:///:memory:"),
    ],
)
def test_other_ways_are_refused(source: str, target: str, named: str) -> None:
    with pytest.raises(UsageError, match="cannot be moved") as caught:
        check_stores(source, target)
    assert named in caught.value.what
    assert "geheim" not in str(caught.value)


def test_a_url_of_no_store_is_refused() -> None:
    with pytest.raises(InvalidURL):
        check_stores("sqlite:///a.db", "mysql://h/d")
    check_stores("sqlite:///a.db", "postgres://h/d")


def test_rows_that_differ_are_named() -> None:
    verdict, one = Comparison(), LogHeadRow("j:1", 3, None)
    compare_rows(verdict, "log", [one], [one])
    assert verdict.differences == []
    compare_rows(verdict, "log", [one], [one._replace(length=4)])
    compare_rows(verdict, "log", [one, one._replace(name="j:2")], [one])
    assert verdict.differences == [
        "log j:1 differs in the new store",
        "log j:2 differs in the new store",
    ]


def test_rows_that_have_expired_are_not_compared() -> None:
    rows = [LogHeadRow("j", 1, at) for at in (None, NOW - 1, NOW + 1)]
    assert lasting(rows, NOW) == [rows[0], rows[2]]
