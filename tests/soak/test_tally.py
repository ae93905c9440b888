"""The counts of the soak's ledger: each way to lose, double or repeat a job is seen."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.soak.record import Fault
from tests.soak.tally import Tally

PRODUCER, WORKER, OTHER = 10, 20, 21
KILL = Fault("kill", "worker 2", WORKER, 2.0, 2.0)
STOP = Fault("stop", "worker 1", 99, 2.0, 6.0)


class Book:
    """Lines of a ledger, as processes would write them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.tally = Tally(folder, 0)

    def write(self, pid: int, letter: str, at: float, number: int = 1) -> None:
        line = f"{letter} {number if letter in 'iksfe' else 0} job{number} 1 {at * 1e9:.0f}"
        with (self._folder / str(pid)).open("a") as file:
            file.write(f"{line}\n")

    def enqueued(self, number: int = 1, at: float = 0.0) -> None:
        self.write(PRODUCER, "i", at, number)
        self.write(PRODUCER, "k", at + 0.1, number)

    def ran(self, pid: int, letters: str, at: float, number: int = 1) -> None:
        for place, letter in enumerate(letters):
            self.write(pid, letter, at + place / 100, number)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)


def test_a_job_that_went_well(book: Book) -> None:
    book.enqueued()
    book.ran(WORKER, "sea", 1.0)
    fresh = book.tally.look()
    assert (fresh.ends, fresh.waits) == ({WORKER: 1}, [1.0])
    totals = book.tally.totals([])
    assert (totals.attempted, totals.acknowledged, totals.ok) == (1, 1, 1)
    assert not totals.problems
    assert not book.tally.open
    assert not book.tally.look().ends  # only new lines count


def test_half_a_line_waits_for_its_other_half(book: Book, tmp_path: Path) -> None:
    with (tmp_path / str(PRODUCER)).open("a") as file:
        file.write("i 1 - 0 1000000")
        file.flush()
        book.tally.look()
        assert not book.tally.stories
        file.write("000\n")
        file.flush()
    book.tally.look()
    assert book.tally.stories[1].asked == 1.0


@pytest.mark.parametrize("letters", ["", "s", "se", "sed", "sa"])
def test_a_lost_job(book: Book, letters: str) -> None:
    """Never started, never ended, dead, or done without its effect."""
    book.enqueued()
    book.ran(WORKER, letters, 1.0)
    book.tally.look()
    totals = book.tally.totals([])
    assert (totals.lost, totals.ok) == (1, 0)
    assert totals.problems


def test_an_end_that_was_accepted_twice(book: Book) -> None:
    book.enqueued()
    book.ran(WORKER, "sea", 1.0)
    book.ran(OTHER, "sea", 3.0)
    book.tally.look()
    assert book.tally.totals([KILL]).duplicated == 1


def test_a_job_that_nobody_asked_for(book: Book) -> None:
    book.ran(WORKER, "sea", 1.0)
    book.write(OTHER, "a", 2.0, number=2)
    book.tally.look()
    assert book.tally.totals([]).unexpected == 2


def test_an_enqueue_whose_caller_was_killed(book: Book) -> None:
    book.write(PRODUCER, "i", 0.0)
    book.write(PRODUCER, "i", 0.0, number=2)  # this one never arrived
    book.ran(WORKER, "sea", 1.0)
    book.tally.look()
    totals = book.tally.totals([])
    assert (totals.attempted, totals.acknowledged, totals.recovered) == (2, 0, 1)
    assert not totals.problems


@pytest.mark.parametrize(
    ("faults", "unexplained"),
    [([], 1), ([KILL], 0), ([STOP], 0), ([Fault("kill", "worker 2", OTHER, 2, 2)], 1)],
)
def test_every_second_start_needs_a_reason(
    book: Book, faults: list[Fault], unexplained: int
) -> None:
    """Its own process was killed; or one was paused, which may delay all others."""
    book.enqueued()
    book.ran(WORKER, "s", 1.0)
    book.ran(OTHER, "sea", 3.0)
    book.tally.look()
    totals = book.tally.totals(faults)
    assert (totals.reruns, totals.unexplained) == (1, unexplained)


def test_a_failure_is_a_reason(book: Book) -> None:
    book.enqueued()
    book.ran(WORKER, "sf", 1.0)
    book.ran(OTHER, "sea", 3.0)
    book.tally.look()
    assert not book.tally.totals([]).problems


@pytest.mark.parametrize(("state", "lost"), [("done", 0), ("running", 1), (None, 1)])
def test_an_end_that_nobody_saw_is_looked_up(
    book: Book, state: str | None, lost: int
) -> None:
    """The worker was killed between the store's answer and its own line."""
    book.enqueued()
    book.ran(WORKER, "se", 1.0)
    book.tally.look()
    asked: list[str] = []

    def look(jobs: Sequence[str]) -> dict[str, str]:
        asked.extend(jobs)
        return {job: state for job in jobs if state is not None}

    book.tally.ask_store(1.5, look)
    assert not asked  # its line may still come
    book.tally.ask_store(4.0, look)
    assert asked == ["job1"]
    assert book.tally.totals([KILL]).lost == lost


def test_what_a_run_that_was_cut_short_left_in_the_store_is_not_lost(
    book: Book,
) -> None:
    for number in (1, 2, 3, 4):
        book.enqueued(number)
    book.ran(WORKER, "s", 1.0, number=2)
    book.ran(WORKER, "se", 1.0, number=3)
    book.tally.look()
    stored = {"job1": "ready", "job2": "running", "job3": "done"}
    book.tally.leave_waiting(lambda _: stored)
    totals = book.tally.totals([])
    assert (totals.acknowledged, totals.unfinished, totals.ok) == (4, 2, 1)
    assert totals.lost == 1  # the fourth is nowhere
