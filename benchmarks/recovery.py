"""200 one-second jobs in 50 slots, `kill -9` after 1.5 s, a new worker, default settings.

It runs once as on one host, where other workers see a death immediately, and once as if
the dead worker had run on another host, where only its lease shows the death.
"""

import argparse
import asyncio
import time

import jobs

from durio.demo.record import LedgerLine, LedgerLineKind, read_ledger
from durio.host.processes import Subprocess, Subprocesses

SLOTS = 50
KILL_AFTER_SECONDS = 1.5
WAIT_SECONDS = 300.0


async def main(count: int, options: str, within_seconds: float) -> None:
    """Kill, start another worker, measure how soon the jobs start again."""
    with jobs.place() as folder, Subprocesses() as children:
        url = jobs.app.url = jobs.url_in(folder, options)
        async with jobs.app:
            await jobs.sleep.enqueue_many([(n, 1.0) for n in range(count)])

            def start() -> Subprocess:
                return jobs.start_worker(children, folder, url, "-c", str(SLOTS))

            first = start()
            while not read_ledger(folder / "ledger"):
                await jobs.app.clock.sleep(0.01)
            await asyncio.sleep(KILL_AFTER_SECONDS)
            killed_at = time.clock_gettime(time.CLOCK_MONOTONIC)
            first.kill()
            first.wait(WAIT_SECONDS)
            second = start()
            await jobs.drained(WAIT_SECONDS)
            took = time.clock_gettime(time.CLOCK_MONOTONIC) - killed_at
            second.terminate()
            jobs.wait(second, WAIT_SECONDS)
            found = await jobs.records()
            entries = read_ledger(folder / "ledger")
    again = restarts(entries, first.pid, killed_at)
    print(f"{count} jobs: {jobs.states(found)}, all final {took:.1f} s after the kill")
    print(
        f"{len(again)} jobs of the killed worker started again "
        f"{min(again):.2f} to {max(again):.2f} s after the kill"
    )
    jobs.check(jobs.states(found) == {"done": count}, "every job is done")
    jobs.check(max(again) < within_seconds, f"they start within {within_seconds:g} s")


def restarts(entries: list[LedgerLine], killed: int, killed_at: float) -> list[float]:
    """Seconds from the kill to the second start of each job that was interrupted."""
    starts = [entry for entry in entries if entry.ev == LedgerLineKind.STARTED]
    before = {entry.job for entry in starts if entry.pid == killed}
    return sorted(
        entry.mono_ns / 1e9 - killed_at
        for entry in starts
        if entry.pid != killed and entry.job in before
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--only", choices=["same", "other"])
    chosen = parser.parse_args()
    if chosen.only != "other":
        print("the same host:")
        asyncio.run(main(chosen.jobs, "", 5.0))
    if chosen.only != "same":
        print("as if on another host (?life=off):")
        asyncio.run(main(chosen.jobs, "?life=off", 35.0))
