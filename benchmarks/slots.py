"""2,000 jobs that sleep 0.5 s in 500 slots: at best 2.0 s."""

import argparse
import asyncio

import jobs

from durio.host.processes import Subprocesses

WAIT_SECONDS = 300.0


async def main(count: int, slots: int, seconds: float) -> None:
    with jobs.place() as folder, Subprocesses() as children:
        jobs.app.url = jobs.url_in(folder)
        async with jobs.app:
            await jobs.sleep.enqueue_many([(n, seconds) for n in range(count)])
            worker = jobs.start_worker(
                children, folder, jobs.app.url, "--burst", "-c", str(slots)
            )
            jobs.wait(worker, WAIT_SECONDS)
            found = await jobs.records()
    print(f"states: {jobs.states(found)}")
    took = jobs.span_seconds(found)
    best = seconds * -(-count // slots)
    print(
        f"{count} jobs of {seconds:g} s in {slots} slots: {took:.2f} s, at best {best:g}"
    )
    jobs.check(jobs.states(found) == {"done": count}, "every job is done")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--slots", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    asyncio.run(main(options.jobs, options.slots, options.seconds))
