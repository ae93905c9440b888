"""Producers and workers in separate processes on one file: no job is lost or doubled."""

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path

import jobs

from durio.demo.record import LedgerLineKind, read_ledger
from durio.host.processes import Subprocesses

CHUNK = 100
WAIT_SECONDS = 1800.0


async def produce(first: int, count: int) -> None:
    """A producer: enqueue numbers from `first` on in batches, and note each answer."""
    async with jobs.app:
        for start in range(first, first + count, CHUNK):
            rows = [(n,) for n in range(start, min(start + CHUNK, first + count))]
            for (number,), job in zip(
                rows, await jobs.note.enqueue_many(rows), strict=True
            ):
                jobs.ledger.write(LedgerLineKind.ENQUEUED, job=job.id, task=str(number))


async def main(count: int, producers: int, workers: int) -> None:
    """Start all processes, wait until all numbers are done, judge."""
    share = count // producers
    count = share * producers
    with jobs.place() as folder, Subprocesses() as children:
        url = jobs.app.url = jobs.url_in(folder)
        async with jobs.app:
            at_work = [jobs.start_worker(children, folder, url) for _ in range(workers)]
            making = [
                jobs.start(
                    children, folder, url, sys.executable, __file__,
                    "--produce", str(n * share), str(share),
                )
                for n in range(producers)
            ]  # fmt: skip
            for producer in making:
                jobs.wait(producer, WAIT_SECONDS)
            await jobs.drained(WAIT_SECONDS)
            for worker in at_work:
                worker.terminate()
            for worker in at_work:
                jobs.wait(worker, 60)
            judge(await jobs.records(), folder, count)


def judge(found: list[jobs.StoredJob], folder: Path, count: int) -> None:
    """Compare the ledger with the store."""
    entries = read_ledger(folder / "ledger")
    ran = Counter(entry.job for entry in entries if entry.ev == LedgerLineKind.EFFECT)
    acknowledged = {
        entry.job for entry in entries if entry.ev == LedgerLineKind.ENQUEUED
    }
    stored = {jobs.id_text(record.id) for record in found}
    by_process = Counter(
        entry.pid for entry in entries if entry.ev == LedgerLineKind.EFFECT
    )
    locked = sum(
        "database is locked" in path.read_text(encoding="utf-8", errors="replace")
        for path in folder.glob("*.log")
    )
    doubled = [job for job, times in ran.items() if times > 1]
    lost = count - len(ran)
    print(f"{count} jobs: {jobs.states(found)}, {lost} lost, {len(doubled)} doubled")
    print(f"per worker: {sorted(by_process.values())}")
    made = [entry.mono_ns for entry in entries if entry.ev == LedgerLineKind.ENQUEUED]
    ended = [entry.mono_ns for entry in entries if entry.ev == LedgerLineKind.EFFECT]
    print(f"enqueued: {count / (max(made) - min(made)) * 1e9:,.0f} jobs/s")
    print(
        f"first enqueued to last run: {count / (max(ended) - min(made)) * 1e9:,.0f} jobs/s"
    )
    jobs.check(jobs.states(found) == {"done": count}, "every job is done")
    jobs.check(not lost and not doubled, "every job ran once")
    jobs.check(acknowledged == stored, "what was acknowledged is what is stored")
    jobs.check(not locked, "nobody met a locked database")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--produce", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.produce:
        asyncio.run(produce(*options.produce))
    else:
        asyncio.run(main(options.jobs, options.producers, options.workers))
