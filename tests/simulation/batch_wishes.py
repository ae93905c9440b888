"""The jobs of the batch task in a simulated world: they arrive in bursts."""

from random import Random

from tests.simulation.workload import ENDS, TIGHT_SHARE, Wish

BATCHES_MAX, BATCH_JOBS_MAX = 8, 9  # bursts of jobs of the batch task, and jobs of each


def with_batches(chance: Random, wishes: list[Wish], seconds: float) -> list[Wish]:
    """Add bursts of jobs of the batch task, from their own random numbers."""
    began, first = wishes[0].at, max(wish.n for wish in wishes) + 1
    times = [
        at
        for _ in range(chance.randint(1, BATCHES_MAX))
        for at in [began + chance.random() * seconds]
        * chance.randint(1, BATCH_JOBS_MAX)
    ]
    jobs = [batch_job(chance, n, at) for n, at in enumerate(times, first)]
    return sorted([*wishes, *jobs], key=lambda one: (one.at, one.n))


def batch_job(chance: Random, n: int, at: float) -> Wish:
    """Draw an item of a batch: plain, failing once or twice, or cancelled."""
    seconds, way = min(chance.expovariate(1 / 2), 9.0), chance.random()
    if way < TIGHT_SHARE:
        return Wish(n, at, "batch", seconds, count=chance.randint(1, 2))
    if way < 2 * TIGHT_SHARE:
        after, ends = chance.expovariate(1 / 4), ENDS["cancelled"]
        return Wish(n, at, "batch", seconds, cancel_seconds=after, ends=ends)
    return Wish(n, at, "batch", seconds)
