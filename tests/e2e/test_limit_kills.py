"""Limits over real processes: never more jobs of a key at once, also when workers are killed."""

from collections import defaultdict

import pytest

from durio.model.job import DEAD, DONE
from durio.model.outcome import Reason
from tests.e2e.workers import Place, now_ns, wait_until

KEYS, CAP, JOBS_PER_KEY, WORKERS, KILLS = 100, 2, 6, 4, 3
JOBS = KEYS * JOBS_PER_KEY


@pytest.mark.proves("M102", "M121")
def test_never_three_jobs_of_a_key_at_once(place: Place) -> None:
    rows = [(n % KEYS,) for n in range(JOBS)]
    ids = place.enqueue("limited", *rows)
    key_of = {job: key for job, (key,) in zip(ids, rows, strict=True)}
    workers = [place.begin_worker(concurrency=20) for _ in range(WORKERS)]
    for worker in workers:
        place.started(worker)
    killed: dict[int, int] = {}  # process -> when it was dead
    for number in range(1, KILLS + 1):
        place.wait_for("effect", number * JOBS // (KILLS + 2), 60)
        victim = workers.pop(0)
        victim.kill()
        killed[victim.pid] = now_ns()
        workers.append(place.worker(concurrency=20))
    ended = f"{JOBS} jobs have ended"
    wait_until(lambda: place.count(DONE) + place.count(DEAD) == JOBS, 90, ended)
    # A job that kills have met again and again is suspected to be their cause.
    reasons = place.select("select reason from job where state = 5")
    assert {reason for (reason,) in reasons} <= {Reason.WORKER_LOST}
    assert 0 < most_at_once(place, key_of, killed) <= CAP
    taken = place.select("select name, cap, used from gate")
    assert {(cap, used) for _, cap, used in taken} == {(CAP, 0)}
    assert {name for name, _, _ in taken} <= {
        f"1k:e2e/limited/{n}" for n in key_of.values()
    }
    assert all(worker.exit_code is None for worker in workers)


def most_at_once(place: Place, key_of: dict[str, int], killed: dict[int, int]) -> int:
    """Return the most jobs of one key that ran at a time, by what their tasks noted."""
    ends = {
        (line.job, line.attempt): line.mono_ns for line in place.ledger.of("effect")
    }
    changes: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for line in place.ledger.of("start"):
        key = key_of[line.job]
        end = ends.get((line.job, line.attempt), killed.get(line.pid))
        assert end is not None, f"{line} did not end, and its process was not killed"
        changes[key] += [(line.mono_ns, 1), (end, -1)]
    most = 0
    for of_key in changes.values():
        running = 0
        for _, change in sorted(of_key):
            running += change
            most = max(most, running)
    return most
