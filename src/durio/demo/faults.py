"""The demo's faults: a worker or a child process is killed in the middle of jobs.

Only processes that the demo's own supervisor started are stopped or killed, each by its
id. A process is stopped (SIGSTOP) before it is killed, so that its open attempts are known.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from durio.demo.record import Ledger, LedgerLineKind, read_ledger_file
from durio.host.clock import HostClock
from durio.host.descendants import Descendant, find_descendant

POLL_SECONDS = 0.05
OPEN_ATTEMPTS_WANTED = 2  # a worker is killed with at least 2 open attempts
PREFERRED_TURNS = 30  # after 30 turns, one open attempt is enough
TURNS_MAX = 200  # after 200 turns, no worker is killed
RERUN_SECONDS_MAX = 90.0
# Colours of the lines about a kill, and about the jobs that run again.
KILLED, RERUN = "red", "green"
# write_letter must not run again; open_bad_image ends its process by itself.
NEVER_INTERRUPTED = frozenset({"write_letter", "open_bad_image"})


class FaultTarget(Protocol):
    """The part of the demo that faults use."""

    ledger_folder: Path
    ledger: Ledger
    clock: HostClock
    tasks: dict[str, str]

    def print_line(self, line: str, /, style: str = "") -> None:
        """Print one line of progress, on a terminal in this colour."""
        ...

    def check_workers(self) -> None:
        """Raise if the supervisor has ended."""
        ...

    async def registered_workers(self) -> list[Descendant]:
        """Return the registered worker processes, oldest first."""
        ...


class Kill(NamedTuple):
    """The interrupted jobs, and when the kill happened."""

    jobs: set[str]
    at: float  # just before the kill, because the jobs may run again at once


class FaultInjector:
    """Kills processes, and waits until the interrupted jobs run again."""

    def __init__(self, target: FaultTarget) -> None:
        self._target = target
        # Each job is interrupted once, because a job that loses many workers becomes dead.
        self._interrupted: set[str] = set()

    async def kill_worker(self) -> Kill | None:
        """Kill a worker in the middle of jobs; its children die with it."""
        for turn in range(TURNS_MAX):
            wanted = OPEN_ATTEMPTS_WANTED if turn < PREFERRED_TURNS else 1
            for worker in await self._target.registered_workers():
                worker.stop()
                family = [worker.pid, *(child.pid for child in self._children(worker))]
                jobs = self._open_jobs(family)
                if len(jobs) >= wanted and not jobs & self._interrupted:
                    return self._kill("worker", worker, jobs)
                worker.resume()
            await self._target.clock.sleep(POLL_SECONDS)
            self._target.check_workers()
        return None

    async def kill_child(self) -> Kill | None:
        """Kill a child in the middle of its job; None if none had one within 30 turns."""
        for _ in range(PREFERRED_TURNS):
            for worker in await self._target.registered_workers():
                for child in self._children(worker):
                    child.stop()
                    jobs = self._open_jobs([child.pid])
                    if jobs and not jobs & self._interrupted:
                        return self._kill("child", child, jobs)
                    child.resume()
            await self._target.clock.sleep(POLL_SECONDS)
            self._target.check_workers()
        return None

    def _kill(self, what: str, process: Descendant, jobs: set[str]) -> Kill:
        """Kill a process that is stopped."""
        target, pid = self._target, process.pid
        target.ledger.write(LedgerLineKind.KILLING, victim=pid)
        self._interrupted |= jobs
        kill = Kill(jobs, target.clock.monotonic())
        process.kill()
        target.ledger.write(LedgerLineKind.KILLED, victim=pid)
        tasks = Counter(target.tasks[job] for job in jobs)
        named = ", ".join(f"{count} {task}" for task, count in sorted(tasks.items()))
        target.print_line(f"kill -9 of {what} {pid} in the middle of: {named}", KILLED)
        return kill

    def _children(self, worker: Descendant) -> list[Descendant]:
        """Return the worker's child processes that have run at least one job."""
        wrote = (int(path.stem) for path in self._target.ledger_folder.glob("*.jsonl"))
        found = (find_descendant(pid, [worker.pid]) for pid in wrote)
        return [child for child in found if child is not None]

    def _open_jobs(self, pids: Sequence[int]) -> set[str]:
        tasks, folder = self._target.tasks, self._target.ledger_folder
        jobs = {job for pid in pids for job in open_jobs(folder / f"{pid}.jsonl")}
        return {
            job for job in jobs if job in tasks and tasks[job] not in NEVER_INTERRUPTED
        }

    # --- after the kill

    async def wait_for_rerun(self, kill: Kill) -> None:
        """Wait until the jobs that a kill has interrupted run in other processes."""
        target = self._target
        while True:
            again = {
                entry.job
                for path in target.ledger_folder.glob("*.jsonl")
                for entry in read_ledger_file(path)
                if entry.ev == LedgerLineKind.STARTED and entry.mono_ns / 1e9 > kill.at
            }
            took = target.clock.monotonic() - kill.at
            if kill.jobs <= again:
                jobs = len(kill.jobs)
                which = f"all {jobs} jobs run" if jobs > 1 else "the job runs"
                target.print_line(f"{which} again, {took:.1f} s after the kill", RERUN)
                return
            if took > RERUN_SECONDS_MAX:
                return  # the verdict names the missing jobs
            await target.clock.sleep(POLL_SECONDS)


def open_jobs(path: Path) -> set[str]:
    """Return the jobs whose attempts a process has started but not ended."""
    jobs: set[str] = set()
    for entry in read_ledger_file(path) if path.exists() else ():
        if entry.ev == LedgerLineKind.STARTED:
            jobs.add(entry.job)
        elif entry.ev in (
            LedgerLineKind.EFFECT,
            LedgerLineKind.FAILED,
            LedgerLineKind.CRASHING,
        ):
            jobs.discard(entry.job)
    return jobs
