"""Weights, slots, globs and order, with a real worker process."""

import asyncio
from collections import Counter

import pytest

from durio.model.ids import id_text
from durio.model.job import RUNNING
from durio.model.options import NO_OPTIONS
from tests.e2e.workers import Place, wait_until

SECONDS = 60.0
SHARES = ("--weight", "high=6", "--weight", "default=3", "--weight", "low=1")


def enqueue(place: Place, task: str, counts: dict[str, int]) -> None:
    async def ask() -> None:
        async with place.app() as app, asyncio.TaskGroup() as group:
            for queue, count in counts.items():
                options = NO_OPTIONS.with_changes({"queue": queue})
                for _ in range(count):
                    group.create_task(app.enqueue_named(task, (), {}, options))

    asyncio.run(ask())


def in_order(place: Place) -> list[str]:
    """The queues of all jobs that were started, in the order of their starts."""
    queues = {
        id_text(job): queue.partition(":")[2]
        for job, queue in place.select("select id, queue from job")
    }
    starts = sorted(place.ledger.of("start"), key=lambda line: line.mono_ns)
    return [queues[line.job] for line in starts]


@pytest.mark.proves("M50")
@pytest.mark.parametrize("slots", ["1", "10"])
def test_full_queues_are_served_by_weight(place: Place, slots: str) -> None:
    enqueue(place, "nothing", {"high": 700, "default": 400, "low": 200})
    worker = place.begin_worker("--burst", "-c", slots, *SHARES)
    assert worker.ended(SECONDS) == 0
    shares = Counter(in_order(place)[:1000])
    print(f"{slots} slots: {dict(shares)}")
    assert shares["high"] == pytest.approx(600, abs=50)
    assert shares["default"] == pytest.approx(300, abs=50)
    assert shares["low"] == pytest.approx(100, abs=50)
    assert len(in_order(place)) == 1300


@pytest.mark.proves("M51")
def test_strict_drains_in_order(place: Place) -> None:
    enqueue(place, "nothing", {"low": 50, "default": 50, "high": 50})
    flags = ("-q", "high", "-q", "d*", "-q", "low", "--strict")
    assert place.begin_worker("--burst", *flags).ended(SECONDS) == 0
    assert in_order(place) == ["high"] * 50 + ["default"] * 50 + ["low"] * 50


@pytest.mark.proves("M49")
def test_slots_of_each_queue(place: Place) -> None:
    enqueue(place, "held", {"high": 9, "default": 9, "low": 9})
    place.worker("-q", "high=4", "-q", "default=2", "-q", "low=1", "--prefetch", "0")
    wait_until(lambda: len(in_order(place)) == 7, SECONDS, "seven jobs run")
    assert place.count(RUNNING) == 7
    assert Counter(in_order(place)) == {"high": 4, "default": 2, "low": 1}
    place.open_gate()
    wait_until(lambda: len(in_order(place)) == 27, SECONDS, "all of them start")


def test_unknown_queue_ends_with_a_clear_error(place: Place) -> None:
    worker = place.begin_worker("-q", "defualt")
    assert worker.ended() == 2
    assert "Did you mean 'default'?" in worker.log
