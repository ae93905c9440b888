"""A bounded queue between real processes: never one job too many, and none lost."""

from collections.abc import Callable

import pytest

from tests.e2e.bounded import MAIL, MAXSIZE
from tests.e2e.workers import Place, Process, wait_until

PRODUCERS = 8
# Depth and count in one look: nothing can happen between them.
LOOK = (
    "select depth, (select count(*) from job where queue = name and state < 3)"
    " from queue where name = ?"
)


class Sampler:
    """Looks at the queue again and again, from outside."""

    def __init__(self, place: Place, most: int | None) -> None:
        self.place = place
        self.most = most
        self.looks = 0
        self.highest = 0

    def look(self) -> int:
        rows = self.place.select(LOOK, MAIL)
        if not rows:
            return 0  # nobody has declared it yet
        depth, waiting = rows[0]
        assert depth == waiting, "the depth is not what waits"
        assert self.most is None or waiting <= self.most, "the bound was exceeded"
        self.looks += 1
        self.highest = max(self.highest, waiting)
        return waiting

    def until(
        self, holds: Callable[[], bool], what: str, seconds: float = 120.0
    ) -> None:
        """Look all along, until something holds."""

        def look_on() -> bool:
            for _ in range(10):
                self.look()
            return holds()

        wait_until(look_on, seconds, what)


def producers(place: Place, how: str, jobs: int, callers: int = 10) -> list[Process]:
    place.enqueue("nothing")  # the file is made, with its schema
    return [
        place.run("tests.e2e.bounded", how, str(jobs), str(callers))
        for _ in range(PRODUCERS)
    ]


def worker(place: Place, **settings: object) -> Process:
    process = place.run("durio", "worker", "tests.e2e.bounded:app", **settings)
    place.started(process)
    return process


def all_ended(processes: list[Process]) -> bool:
    codes = [process.exit_code for process in processes]
    assert {*codes} <= {0, None}, [process.log for process in processes]
    return None not in codes


@pytest.mark.proves("M35", "M36", "M37")
def test_eight_producers_never_exceed_the_bound(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURIO_QUEUE__FULL_SECONDS", "120")
    sampler = Sampler(place, MAXSIZE)
    sending = producers(place, "plain", 250)
    sampler.until(lambda: sampler.highest == MAXSIZE, "the queue is full")
    for _ in range(100):  # all of them press on
        assert sampler.look() == MAXSIZE

    monkeypatch.setenv("DURIO_QUEUE__FULL_SECONDS", "0.2")
    late = place.run("durio", "enqueue", "drip", "--app", "tests.e2e.bounded:app")
    assert late.ended() == 75, late.log
    assert "Try again in" in late.log

    victim = sending.pop()
    victim.kill()
    worker(place)
    sampler.until(lambda: all_ended(sending), "every producer got rid of its jobs")
    sampler.until(lambda: sampler.look() == 0, "the queue is empty")
    acknowledged = place.ledger.jobs("enq.ok")
    rows = place.wait_final(sorted(acknowledged), 60.0)
    assert len(acknowledged) >= 250 * len(sending)
    assert {row.state for row in rows.values()} == {4}
    print(f"{sampler.looks} looks, at most {sampler.highest} jobs, {len(rows)} in all")


@pytest.mark.proves("M36", "M37")
def test_the_depth_is_true_under_keys_retries_and_cancels(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURIO_QUEUE__FULL_SECONDS", "120")
    sampler = Sampler(place, None)
    sending = producers(place, "mixed", 150)
    sampler.until(lambda: sampler.highest > MAXSIZE - 5, "the queue is full")
    dies, _ = worker(place), worker(place)
    place.wait_for("effect", 200)
    dies.kill()  # its jobs come back whatever the bound
    sampler.until(lambda: all_ended(sending), "every producer got rid of its jobs")
    sampler.until(lambda: sampler.look() == 0, "the queue is empty")
    acknowledged = place.ledger.jobs("enq.ok")
    rows = place.wait_final(sorted(acknowledged), 60.0)
    states = [row.state for row in rows.values()]
    assert {*states} == {4, 6}, "done or cancelled, nothing dead, nothing lost"
    assert any(row.retried for row in rows.values())
    print(f"{sampler.looks} looks, at most {sampler.highest} jobs, {len(rows)} in all")
