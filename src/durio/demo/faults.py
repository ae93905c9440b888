"""Mishaps on the demo's stage: a worker or a child process killed in the middle of jobs.

Only processes that the demo's own supervisor started are ever held or killed, each by its
id. A victim is held still first, so that what it was in the middle of is known exactly.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from durio.demo.record import Event, Ledger, read_file
from durio.host.clock import HostClock
from durio.host.kin import Kin, kin_of

LOOK_SECONDS = 0.05
OPEN_WANTED = 2  # attempts in the middle of which a worker is killed
PATIENT_TURNS = 30  # after so many one will do
TURNS_MAX = 200  # then there is nobody to kill
AGAIN_SECONDS_MAX = 90.0
# The one may not run again, the other ends its process by itself.
SPARED = frozenset({"write_letter", "open_bad_image"})


class Scene(Protocol):
    """The stage, as far as mishaps are concerned."""

    ledger_folder: Path
    ledger: Ledger
    clock: HostClock
    tasks: dict[str, str]

    def tell(self, line: str, /) -> None:
        """One more line of the story."""
        ...

    def check_workers(self) -> None:
        """Nobody but us ends a worker."""
        ...

    async def at_work(self) -> list[Kin]:
        """The worker processes that are registered, the eldest first."""
        ...


@dataclass(slots=True)
class Victim:
    """A process held still in the middle of attempts."""

    what: str
    process: Kin
    jobs: set[str]


class Kill(NamedTuple):
    """What a kill has interrupted, and when."""

    jobs: set[str]
    at: float  # just before it: the jobs may run again before anybody looks


class Mishaps:
    """Kills, and sees to it that what was interrupted runs again."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._hit: set[str] = set()  # nobody twice: who dies often is taken for guilty

    async def kill_worker(self) -> Kill | None:
        """A worker in the middle of jobs, its children with it."""
        victim = await self._held_worker()
        return None if victim is None else self._kill(victim)

    async def kill_child(self) -> Kill | None:
        """A child in the middle of its job, if there is one soon."""
        victim = await self._held_child()
        return None if victim is None else self._kill(victim)

    def _kill(self, victim: Victim) -> Kill:
        scene, pid = self._scene, victim.process.pid
        scene.ledger.note(Event.KILLING, victim=pid)
        self._hit |= victim.jobs
        kill = Kill(victim.jobs, scene.clock.monotonic())
        victim.process.kill()
        scene.ledger.note(Event.KILLED, victim=pid)
        tasks = Counter(scene.tasks[job] for job in victim.jobs)
        named = ", ".join(f"{count} {task}" for task, count in sorted(tasks.items()))
        scene.tell(f"kill -9 of {victim.what} {pid} in the middle of: {named}")
        return kill

    # --- who it will be

    async def _held_worker(self) -> Victim | None:
        for turn in range(TURNS_MAX):
            wanted = OPEN_WANTED if turn < PATIENT_TURNS else 1
            for worker in await self._scene.at_work():
                worker.stop()
                family = [worker.pid, *(child.pid for child in self._children(worker))]
                jobs = self._open_jobs(family)
                if len(jobs) >= wanted and not jobs & self._hit:
                    return Victim("worker", worker, jobs)
                worker.go_on()
            await self._scene.clock.sleep(LOOK_SECONDS)
            self._scene.check_workers()
        return None

    async def _held_child(self) -> Victim | None:
        for _ in range(PATIENT_TURNS):
            for worker in await self._scene.at_work():
                for child in self._children(worker):
                    child.stop()
                    jobs = self._open_jobs([child.pid])
                    if jobs and not jobs & self._hit:
                        return Victim("child", child, jobs)
                    child.go_on()
            await self._scene.clock.sleep(LOOK_SECONDS)
            self._scene.check_workers()
        return None

    def _children(self, worker: Kin) -> list[Kin]:
        """Its child processes, as far as they have had a job."""
        wrote = (int(path.stem) for path in self._scene.ledger_folder.glob("*.jsonl"))
        found = (kin_of(pid, [worker.pid]) for pid in wrote)
        return [child for child in found if child is not None]

    def _open_jobs(self, pids: Sequence[int]) -> set[str]:
        tasks, folder = self._scene.tasks, self._scene.ledger_folder
        jobs = {job for pid in pids for job in open_jobs(folder / f"{pid}.jsonl")}
        return {job for job in jobs if job in tasks and tasks[job] not in SPARED}

    # --- and after

    async def see_again(self, kill: Kill) -> None:
        """Wait until the jobs that a kill has interrupted run elsewhere."""
        scene = self._scene
        while True:
            again = {
                entry.job
                for path in scene.ledger_folder.glob("*.jsonl")
                for entry in read_file(path)
                if entry.ev == Event.STARTED and entry.mono_ns / 1e9 > kill.at
            }
            took = scene.clock.monotonic() - kill.at
            if kill.jobs <= again:
                scene.tell(
                    f"all {len(kill.jobs)} run again, {took:.1f} s after the kill"
                )
                return
            if took > AGAIN_SECONDS_MAX:
                return  # the verdict will name them
            await scene.clock.sleep(LOOK_SECONDS)


def open_jobs(path: Path) -> set[str]:
    """The jobs whose attempts a process has begun and not ended, by its own file."""
    jobs: set[str] = set()
    for entry in read_file(path) if path.exists() else ():
        if entry.ev == Event.STARTED:
            jobs.add(entry.job)
        elif entry.ev in (Event.EFFECT, Event.FAILED, Event.CRASHING):
            jobs.discard(entry.job)
    return jobs
