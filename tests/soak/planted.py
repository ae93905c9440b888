"""A record of a healthy soak, and functions that plant a problem in it."""

from collections.abc import Callable
from dataclasses import replace

from tests.soak.nemesis import phases_of
from tests.soak.record import Fault, PhaseName, Record, Sample, Totals, Vitals

EVERY = 2.0
RATE = 100.0
MEGABYTE = 1 << 20
SECONDS = 600.0

Change = Callable[[Sample], Sample]


def healthy(seconds: float = SECONDS) -> Record:
    """Worker 1 lives through all of it; worker 2 is killed in each phase of faults."""
    record = Record("command", "commit", "machine", 1, RATE, 20.0)
    record.phases = phases_of(seconds)
    for number, phase in enumerate(record.named(PhaseName.FAULTS)):
        for times in range(2):
            at = phase.begin + 15 * times
            record.faults.append(Fault("kill", "worker 2", 200 + 2 * number, at, at))
        begin = phase.begin + 20
        record.faults.append(Fault("stop", "worker 1", 100, begin, begin + 5))
    record.totals = Totals(attempted=1001, acknowledged=1000, ok=1000, recovered=1)
    record.samples = [
        sample(record, (n + 1) * EVERY) for n in range(int(seconds / EVERY))
    ]
    return record


def sample(record: Record, at: float) -> Sample:
    in_faults = any(p.begin < at <= p.end for p in record.named(PhaseName.FAULTS))
    births = [
        0.0,
        *(f.begin for f in record.faults if f.kind == "kill" and f.begin < at),
    ]
    rss = 40 * MEGABYTE + int(at * 7919) % (MEGABYTE // 2)  # it is never constant
    ends = int(RATE)
    return Sample(
        at=at,
        seconds=EVERY,
        jobs_per_second=RATE / 2 if in_faults else RATE,
        backlog=10,
        p50_ms=5.0,
        p99_ms=20.0,
        file_bytes=2 * MEGABYTE,
        wal_bytes=4 * MEGABYTE,
        workers=[
            Vitals("worker 1", 100, at, rss, 28, ends),
            Vitals("worker 2", 199 + len(births), at - births[-1], rss, 28, ends),
        ],
    )


def changed(record: Record, change: Change, begin: float = 0.0) -> Record:
    """The same record, with every sample from `begin` on changed."""
    record.samples = [change(s) if s.at > begin else s for s in record.samples]
    return record


def with_workers(change: Callable[[Vitals], Vitals]) -> Change:
    return lambda s: replace(s, workers=[change(vitals) for vitals in s.workers])
