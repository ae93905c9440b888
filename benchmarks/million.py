"""A million jobs through one worker: its memory is flat, retention bounds the file.

Done jobs are kept for a few seconds only, and at most some thousand jobs wait, so the file
soon has its final size. The first tenth of the run is the warm-up.

While other processes write, SQLite drops its page cache at each of their commits; a worker
that is alone with its file fills the cache, up to 8 MB. So only like samples are compared:
busy ones with the first busy one, and the rest after the last job with the rest that ends
the warm-up.
"""

import argparse
import asyncio
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import jobs

from durio.host.processes import Subprocess, Subprocesses, rss_bytes_of
from durio.model.job import DEAD, STATE_BY_CODE

ROWS = 1_000  # per transaction
WAITING_MAX = 20_000
RETENTION_SECONDS = 5
SAMPLES = 40
WARM_UP_SHARE = 0.1
GROWTH_MAX = 1.10
JUDGED_MIN = 500_000  # with fewer jobs the file still grows
REST_SECONDS = 3 * RETENTION_SECONDS  # alone with the file: all is pruned by then
WAIT_SECONDS = 600.0
REPORT_SECONDS = 60.0  # to wait for the worker's last heartbeat
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Sample:
    """The state at one moment."""

    seconds: float
    done: int
    waiting: int
    rss_mb: float
    file_mb: float
    wal_mb: float  # the WAL: checkpoints bound it
    at_rest: bool  # no other process has written for a while


class Run:
    """One run: enqueue ahead of the worker, and take samples."""

    def __init__(self, count: int, folder: Path, worker: Subprocess) -> None:
        self.count = count
        self.folder = folder
        self.worker = worker
        self.enqueued = 0
        self.samples: list[Sample] = []
        self.began = jobs.app.clock.monotonic()

    async def feed(self) -> None:
        """Enqueue all jobs, with a bounded number waiting."""
        await self.feed_until(int(self.count * WARM_UP_SHARE))
        await self.rest()
        await self.feed_until(self.count)
        await self.rest()

    async def feed_until(self, count: int) -> None:
        """Enqueue until `count` jobs in all, with a bounded number waiting."""
        while self.enqueued < count:
            if await self.waiting() < WAITING_MAX:
                rows = min(ROWS, count - self.enqueued)
                first = self.enqueued
                await jobs.nothing.enqueue_many([(first + n,) for n in range(rows)])
                self.enqueued += rows
            else:
                await jobs.app.clock.sleep(0.05)
            await self.look()

    async def rest(self) -> None:
        """Let the worker finish all jobs, and leave it idle for a while."""
        deadline = jobs.app.clock.monotonic() + WAIT_SECONDS
        while await self.waiting():
            jobs.check(jobs.app.clock.monotonic() < deadline, "the worker goes on")
            await jobs.app.clock.sleep(0.05)
        await jobs.app.clock.sleep(REST_SECONDS)
        await self.look(at_rest=True)

    async def waiting(self) -> int:
        """Number of jobs that are neither done nor dead."""
        store = await jobs.app.store()
        return sum(
            number
            for row in await store.queues(jobs.app.name, counts=True)
            for state, number in row.counts.items()
            if state != DEAD
        )

    async def look(self, *, at_rest: bool = False) -> None:
        """Take a sample when the next share of the jobs is done."""
        waiting = await self.waiting()
        done = self.enqueued - waiting
        if not at_rest and done < len(self.samples) * self.count / SAMPLES:
            return
        sample = Sample(
            seconds=round(jobs.app.clock.monotonic() - self.began, 1),
            done=done,
            waiting=waiting,
            rss_mb=round((rss_bytes_of(self.worker.pid) or 0) / MEGABYTE, 1),
            file_mb=megabytes(self.folder / "jobs.db"),
            wal_mb=megabytes(self.folder / "jobs.db-wal"),
            at_rest=at_rest,
        )
        self.samples.append(sample)
        print(
            f"{sample.seconds:8.1f} s {done:9,} done {waiting:7,} waiting "
            f"{sample.rss_mb:7.1f} MB resident {sample.file_mb:7.1f} MB file "
            f"{sample.wal_mb:7.1f} MB wal{'  at rest' if at_rest else ''}",
            flush=True,
        )

    async def report_when_ended(self) -> int:
        """Number of attempts, from the worker's heartbeat."""
        store, clock = await jobs.app.store(), jobs.app.clock
        deadline = clock.monotonic() + REPORT_SECONDS
        told = 0
        while told < self.count and clock.monotonic() < deadline:
            rows = await store.workers(jobs.app.name)
            told = sum(row.vitals.ended for row in rows if row.vitals is not None)
            await clock.sleep(0.2)
        return told


def megabytes(path: Path) -> float:
    """Size on disk; 0 if the file does not exist."""
    return round(path.stat().st_size / MEGABYTE, 1) if path.exists() else 0.0


async def main(count: int, json_path: Path | None) -> None:
    """Run, then compare memory and file with the end of the warm-up."""
    os.environ["DURIO_RETENTION__DONE_SECONDS"] = str(RETENTION_SECONDS)
    with jobs.place() as folder, Subprocesses() as children:
        url = jobs.app.url = jobs.url_in(folder)
        async with jobs.app:
            worker = jobs.start_worker(children, folder, url)
            run = Run(count, folder, worker)
            await run.feed()
            ended = await run.report_when_ended()
            store = await jobs.app.store()
            dead = [
                f"{number} {STATE_BY_CODE[state].value}"
                for row in await store.queues(jobs.app.name, counts=True)
                for state, number in row.counts.items()
                if number
            ]
            worker.terminate()
            jobs.wait(worker, 60)
    judge(run.samples, count, ended, dead, json_path)


def judge(
    samples: list[Sample],
    count: int,
    ended: int,
    left: list[str],
    json_path: Path | None,
) -> None:
    """Print the samples, and exit with code 1 if they are not flat."""
    rests = [s for s in samples if s.at_rest]
    warm = [s for s in samples if s.seconds > rests[0].seconds and not s.at_rest]
    first, last = warm[0], samples[-1]
    rss = max(s.rss_mb for s in warm) / first.rss_mb
    rss_at_rest = rests[-1].rss_mb / rests[0].rss_mb
    files = max(s.file_mb for s in warm) / max(
        s.file_mb for s in warm[: len(warm) // 3]
    )
    figures = {
        "jobs": count,
        "attempts": ended,
        "seconds": last.seconds,
        "jobs_per_s": round(count / last.seconds),
        "rss_mb_warm": first.rss_mb,
        "rss_mb_max": max(s.rss_mb for s in warm),
        "rss_growth": round(rss, 3),
        "rss_mb_at_rest": [s.rss_mb for s in rests],
        "rss_growth_at_rest": round(rss_at_rest, 3),
        "file_mb_max": max(s.file_mb for s in samples),
        "wal_mb_max": max(s.wal_mb for s in samples),
        "file_growth_after_a_third": round(files, 3),
    }
    print(json.dumps(figures, indent=1))
    if json_path is not None:
        samples_told = [asdict(sample) for sample in samples]
        json_path.write_text(json.dumps({**figures, "samples": samples_told}))
    jobs.check(not left, f"every job is done, left: {left}")
    jobs.check(ended == count, f"{count} attempts were made, told: {ended}")
    if count < JUDGED_MIN:
        print(f"fewer than {JUDGED_MIN:,} jobs: too few to judge memory and file")
        return
    jobs.check(rss <= GROWTH_MAX, "resident memory under work is flat within 10 %")
    jobs.check(rss_at_rest <= GROWTH_MAX, "resident memory at rest is flat within 10 %")
    jobs.check(files <= GROWTH_MAX, "the file is bounded by retention")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="write figures and samples here")
    options = parser.parse_args()
    asyncio.run(main(options.jobs, options.json))
