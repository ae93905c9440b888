"""What a stored job alone says about why it waits, and how it ended."""

from typing import Any

import pytest

from durio.model.explanation import (
    DEAD_TEXTS,
    JobExplanation,
    JobReason,
    attempts_of,
    error_line,
    final_reason,
    moment,
    scheduled_reason,
    why_scheduled,
)
from durio.model.failure import Failure, encode_failure
from durio.model.ids import id_text, uuid7
from durio.model.job import (
    CANCELLED,
    DEAD,
    DONE,
    RUNNING,
    SCHEDULED,
    State,
    StoredJob,
    utc_datetime,
)
from durio.model.outcome import Reason
from durio.model.tick import TickPlace

NOW = 1_800_000_000.0
ID = uuid7(1_763_000_000_000, 0, 0)
FAILED = Failure(type="OSError", message="busy\nat 5", attempt=2, at=NOW - 60)
LOST = Failure(type="WorkerLost", message="", attempt=1, at=NOW - 90, worker="a/1")


def job(*errors: Failure, **fields: Any) -> StoredJob:
    stored = b"[%s]" % b",".join(map(encode_failure, errors)) if errors else None
    known: dict[str, Any] = dict.fromkeys(StoredJob._fields)
    known |= dict.fromkeys(("retried", "losses", "lost", "snoozed"), 0)
    known |= {"id": ID, "state": SCHEDULED, "errors": stored, "created_at": NOW - 99}
    return StoredJob(**{**known, **fields})


CAUSES: dict[str, tuple[StoredJob, str, str]] = {
    "a delay": (job(), "scheduled", "it was enqueued for later"),
    "a retry": (
        job(FAILED, retried=2),
        "retry_wait",
        "attempt 2 failed (OSError: busy) and attempt 3 of 6 follows",
    ),
    "a snooze": (
        job(snoozed=2),
        "snoozed",
        "its task snoozed it (2 times so far)",
    ),
    "a failure after a snooze": (
        job(FAILED, retried=2, snoozed=1, started_at=NOW - 61),
        "retry_wait",
        "attempt 2 failed (OSError: busy) and attempt 3 of 6 follows",
    ),
    "a snooze after a failure": (
        job(FAILED, retried=2, snoozed=1, started_at=NOW - 30),
        "snoozed",
        "its task snoozed it (1 time so far)",
    ),
    "one of both": (
        job(FAILED, retried=2, snoozed=1),
        "retry_or_snooze",
        "it failed (OSError: busy) and was snoozed 1 time",
    ),
    "a delay after an operator's retry": (
        job(FAILED),
        "scheduled",
        "it was enqueued for later",
    ),
}


@pytest.mark.parametrize("name", CAUSES)
def test_why_a_job_is_scheduled(name: str) -> None:
    stored, code, cause = CAUSES[name]
    assert why_scheduled(stored, None, 6) == (code, cause)


def test_a_tick_and_unknown_retries() -> None:
    tick = TickPlace("nightly", NOW)
    assert why_scheduled(job(), tick, None) == (
        "scheduled",
        "schedule nightly made it",
    )
    _, cause = why_scheduled(job(FAILED, retried=2), tick, None)
    assert cause.endswith("and attempt 3 follows")


def test_until_when_it_is_scheduled() -> None:
    waits = scheduled_reason(job(run_at=NOW + 90), None, None, NOW)
    assert waits.text == (
        "it was enqueued for later; scheduled until 2027-01-15 08:01:30Z, due in 90 s"
    )
    assert (waits.command, waits.is_blocking) == (f"durio jobs run {id_text(ID)}", True)
    due = scheduled_reason(job(run_at=NOW - 2), None, None, NOW)
    assert due.text.endswith("due since 2 s: a live worker makes it ready")


def test_every_reason_of_a_death_has_a_text() -> None:
    known = {value for name, value in vars(Reason).items() if name.isupper()}
    assert known == {*DEAD_TEXTS}
    retry = f"durio jobs retry {id_text(ID)}"
    for reason in known:
        found = final_reason(
            job(state=DEAD, reason=reason, finished_at=NOW), None, None
        )
        assert (found.code, found.command) == ("dead", retry)
        assert f"({reason}): {DEAD_TEXTS[reason][0]}" in found.text
    other = final_reason(job(state=DEAD, reason="custom"), None, None)
    assert other.text == "dead since an unknown time (custom): reason custom"


def test_how_a_cancelled_job_ended() -> None:
    def found(reason: str | None, failed: str | None = None) -> JobReason:
        stored = job(state=CANCELLED, reason=reason, finished_at=NOW)
        return final_reason(stored, "the-plan", failed)

    own = f"durio jobs retry {id_text(ID)}"
    assert found(None).text.endswith("an operator or code asked for it")
    assert found(None).command == own
    assert found("parent_dead", "x").command == "durio jobs retry x"
    assert found("parent_dead", "x").text.endswith("has failed: job x")
    assert found("parent_dead").command == own
    assert found("plan_cancelled").text.endswith("was cancelled: plan the-plan")
    assert found("next_tick").text.endswith("its schedule replaced it")


def test_a_done_job_needs_nothing() -> None:
    found = final_reason(job(state=DONE, finished_at=NOW), None, None)
    assert found == JobReason("done", "done at 2027-01-15 08:00:00Z", is_blocking=False)


def story(*errors: Failure, **fields: Any) -> list[tuple[int, str]]:
    return [(each.number, each.outcome) for each in attempts_of(job(*errors, **fields))]


def test_the_story_of_the_attempts() -> None:
    both = (LOST, FAILED)
    counts: dict[str, Any] = {"retried": 1, "losses": 1, "started_at": NOW - 5}
    ended: dict[str, Any] = {**counts, "finished_at": NOW}
    known = [(1, "lost"), (2, "failed")]
    assert story() == []
    assert story(*both, **counts) == known
    assert story(*both, **counts, state=RUNNING) == [*known, (3, "running")]
    assert story(*both, **ended, state=DONE) == [*known, (3, "done")]
    assert story(*both, **ended, state=CANCELLED) == [*known, (3, "cancelled")]
    assert story(FAILED, retried=1, started_at=NOW, state=CANCELLED) == [(2, "failed")]
    assert story(FAILED, retried=1, started_at=NOW, state=DEAD) == [(2, "failed")]
    lost, _, last = attempts_of(job(*both, **counts, state=RUNNING, worker=7))
    assert (lost.worker, lost.error) == ("a/1", "WorkerLost")
    assert (last.worker, last.at) == ("7", utc_datetime(NOW - 5))
    done = attempts_of(job(**ended, state=DONE))[0]
    assert (done.seconds, done.worker) == (5.0, None)
    (unknown,) = attempts_of(job(started_at=NOW, state=DONE))
    assert unknown.seconds is None


def test_an_explanation_is_plain_data() -> None:
    note = JobReason("queue_closed", "closed", is_blocking=False)
    waits = JobReason("no_worker", "no worker", "Start one.", "durio worker")
    found = JobExplanation(
        "id", "shop.pay", "mail", State.READY, utc_datetime(NOW), (waits, note)
    )
    assert (found.blocking, found.command) == ((waits,), "durio worker")
    plain = found.to_dict()
    assert (plain["state"], plain["at"]) == ("ready", "2027-01-15T08:00:00Z")
    assert plain["reasons"][1]["is_blocking"] is False
    assert waits.of_job("x").text == "job x: no worker"
    assert JobExplanation("id", "t", "q", State.DONE, None, (note,)).command is None


def test_texts_are_short() -> None:
    assert moment(None) == "an unknown time"
    assert error_line(Failure(type="E", message="")) == "E"
    long = error_line(Failure(type="E", message="x" * 999))
    assert (len(long), long[-3:]) == (200, "...")
