"""The demo's checker finds every fault that is planted in an otherwise good ledger."""

from collections.abc import Callable

import pytest

from durio.demo.record import LedgerLine, LedgerLineKind
from durio.demo.verdict import DemoVerdict, judge, not_exercised

WORKER, VICTIM, OTHER, CHILD = 11, 12, 13, 20


class Book:
    """A ledger in the making, and the store beside it."""

    def __init__(self) -> None:
        self.entries: list[LedgerLine] = []
        self.stored: dict[str, str] = {}

    def add(self, event: str, job: str = "", pid: int = 1, **fields: object) -> None:
        number = len(self.entries) + 1
        self.entries.append(
            LedgerLine(n=number, pid=pid, mono_ns=number, ev=event, job=job, **fields)  # type: ignore[arg-type]
        )

    def attempt(self, job: str, pid: int, end: str) -> None:
        self.add(LedgerLineKind.STARTED, job, pid)
        self.add(end, job, pid)

    def end(self, job: str, state: str, pid: int = WORKER, reason: str = "") -> None:
        self.add(LedgerLineKind.FINISHED, job, pid, state=state, reason=reason)
        self.stored[job] = state

    def judged(self) -> DemoVerdict:
        return judge(self.entries, self.stored)


@pytest.fixture
def book() -> Book:
    """One of everything that a demo must see, all promises kept."""
    book = Book()
    jobs = ("plain", "flaky", "poison", "crash", "inner", "rerun", "unseen", "waiting")
    for job in jobs:
        book.add(LedgerLineKind.ENQUEUED, job, task="any")
    book.add(LedgerLineKind.REPEATED, "plain", task="any")
    book.attempt("plain", WORKER, LedgerLineKind.EFFECT)
    book.end("plain", "done")
    book.attempt("flaky", WORKER, LedgerLineKind.FAILED)
    book.add(LedgerLineKind.RETRIED, "flaky", WORKER, task="any")
    book.attempt("flaky", OTHER, LedgerLineKind.EFFECT)
    book.end("flaky", "done", OTHER)
    book.attempt("poison", WORKER, LedgerLineKind.FAILED)
    book.end("poison", "dead")
    for pid in (CHILD, CHILD + 1, CHILD + 2):
        book.attempt("crash", pid, LedgerLineKind.CRASHING)
    book.end("crash", "dead", reason="worker_lost")
    book.add(LedgerLineKind.REFUSED, task="any")
    # In a child of the worker that was killed: it died with it.
    book.add(LedgerLineKind.STARTED, "inner", CHILD + 3, parent=VICTIM)
    book.add(LedgerLineKind.CANCELLED, "waiting", task="any")
    book.stored["waiting"] = "cancelled"
    book.add(LedgerLineKind.STARTED, "rerun", VICTIM)
    # Accepted by the store, but its worker was killed before it could say so.
    book.attempt("unseen", VICTIM, LedgerLineKind.EFFECT)
    book.stored["unseen"] = "done"
    book.add(LedgerLineKind.KILLING, victim=VICTIM)
    book.add(LedgerLineKind.KILLED, victim=VICTIM)
    book.attempt("rerun", OTHER, LedgerLineKind.EFFECT)
    book.end("rerun", "done", OTHER)
    book.attempt("inner", CHILD + 4, LedgerLineKind.EFFECT)
    book.end("inner", "done", OTHER)
    return book


def test_promises_kept(book: Book) -> None:
    verdict = book.judged()
    assert not verdict.problems
    assert not not_exercised(verdict)
    assert verdict.line == "7 jobs: 5 done, 2 dead, 0 lost, 0 doubled"
    assert (verdict.cancelled, verdict.rerun, verdict.kills) == (1, 2, 1)
    assert (verdict.refused, verdict.poisoned) == (1, 1)
    assert verdict.rows["any"].enqueued == 8
    assert verdict.rows["any"].retried == 1


def lose(book: Book) -> None:
    del book.stored["plain"]


def leave_unfinished(book: Book) -> None:
    book.stored["plain"] = "running"


def finish_twice(book: Book) -> None:
    book.end("plain", "done", OTHER)


def finish_without_effect(book: Book) -> None:
    book.add(LedgerLineKind.ENQUEUED, "hollow", task="any")
    book.add(LedgerLineKind.STARTED, "hollow", WORKER)
    book.end("hollow", "done")


def store_unasked(book: Book) -> None:
    book.stored["stranger"] = "done"


def run_unasked(book: Book) -> None:
    book.add(LedgerLineKind.STARTED, "stranger", WORKER)


def run_again(book: Book) -> None:
    book.attempt("plain", OTHER, LedgerLineKind.EFFECT)


def disagree(book: Book) -> None:
    book.stored["poison"] = "done"
    book.add(LedgerLineKind.EFFECT, "poison", WORKER)


def end_unseen(book: Book) -> None:
    book.add(LedgerLineKind.ENQUEUED, "quiet", task="any")
    book.attempt("quiet", WORKER, LedgerLineKind.EFFECT)
    book.stored["quiet"] = "done"


def cancel_unasked(book: Book) -> None:
    book.add(LedgerLineKind.ENQUEUED, "wanted", task="any")
    book.end("wanted", "cancelled")


def ignore_cancel(book: Book) -> None:
    book.add(LedgerLineKind.CANCELLED, "plain", task="any")


def kill_harmless_job(book: Book) -> None:
    book.add(LedgerLineKind.ENQUEUED, "victim", task="any")
    book.add(LedgerLineKind.STARTED, "victim", CHILD + 5, parent=VICTIM)
    book.end("victim", "dead", reason="worker_lost")


def spare_crashing_job(book: Book) -> None:
    book.add(LedgerLineKind.ENQUEUED, "lucky", task="any")
    book.attempt("lucky", CHILD + 6, LedgerLineKind.CRASHING)
    book.attempt("lucky", CHILD + 7, LedgerLineKind.EFFECT)
    book.end("lucky", "done")


FAULTS: dict[Callable[[Book], None], str] = {
    lose: "1 lost: plain",
    leave_unfinished: "1 lost: plain",
    finish_twice: "1 doubled: plain",
    finish_without_effect: "1 lost: hollow",
    store_unasked: "1 stored but never acknowledged: stranger",
    run_unasked: "1 seen but never acknowledged: stranger",
    run_again: "1 ran again for no reason: plain",
    disagree: "1 ended otherwise than the store says: poison",
    end_unseen: "1 ended without an end in the ledger: quiet",
    cancel_unasked: "1 cancelled without a request: wanted",
    ignore_cancel: "1 not cancelled after a request: plain",
    kill_harmless_job: "1 dead for crashes of other jobs: victim",
    spare_crashing_job: "1 crashed and not dead-lettered: lucky",
}


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_every_fault_is_found(book: Book, plant: Callable[[Book], None]) -> None:
    plant(book)
    assert FAULTS[plant] in book.judged().problems


def test_a_quiet_run_proves_nothing() -> None:
    assert len(not_exercised(Book().judged())) == 9
