"""The demo's stage: real worker processes, orders that come in, and one that is killed.

Everything that happens is noted in the ledger before or as it happens; at the end the
ledger is held against the store. The store is asked only where each job stands.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from durio.cli import shop
from durio.cli.ledger import Entry, Event, Ledger, read_file, read_ledger
from durio.cli.verdict import Verdict, judge
from durio.client.handle import Job
from durio.host.clock import HostClock
from durio.host.processes import Child, Children, this_program
from durio.model.errors import OperatingError
from durio.model.ids import id_bytes, id_text
from durio.model.job import STATE_BY_CODE
from durio.ports.browse import Query

ORDER_SECONDS = 0.1  # between two orders
SELLING_SHARE = 0.6  # of the whole time; the rest is for what is under way
KILL_SHARE = 0.3
LOOK_SECONDS = 0.05
READY_SECONDS_MAX = 30.0
SETTLE_SECONDS_MAX = 90.0
OPEN_WANTED = 2  # attempts in the middle of which a worker is killed
PAGE = 200
LETTER = "write_letter"

Tell = Callable[[str], None]


class WorkerEnded(OperatingError):
    """A worker of the demo ended though nobody killed it."""

    code = "worker_ended"


@dataclass(slots=True)
class Stage:
    """One run of the demo."""

    folder: Path
    url: str
    seconds: float
    workers: int
    tell: Tell
    clock: HostClock = field(default_factory=HostClock)
    children: Children = field(default_factory=Children)
    victims: set[int] = field(default_factory=set[int])
    tasks: dict[str, str] = field(default_factory=dict[str, str])  # by job id
    began: float = 0.0
    began_at: float = 0.0
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger_folder.mkdir()
        self.ledger = Ledger(self.ledger_folder)

    @property
    def ledger_folder(self) -> Path:
        """Where every process keeps its file."""
        return self.folder / "ledger"

    async def play(self) -> Verdict:
        """Open the shop, sell, kill, wait until all is settled, judge."""
        shop.app.url = self.url
        self.began_at = self.clock.now()
        async with shop.app:
            with self.children:
                await self.open_shop()
                await self.work()
                await self.settle()
                self.children.end()
            self.ledger.close()
            return judge(self.entries(), await self.stored())

    # --- the workers

    def start_worker(self) -> Child:
        """A real worker process, as anybody would start it."""
        number = len(self.children.started) + 1
        return self.children.start(
            [*this_program(), "worker", shop.TARGET],
            log=self.folder / f"worker-{number}.log",
            environ={
                "DURIO_URL": self.url,
                shop.LEDGER_VARIABLE: str(self.ledger_folder),
            },
        )

    async def open_shop(self) -> None:
        """Start the workers and wait until each has registered."""
        started = [self.start_worker() for _ in range(self.workers)]
        deadline = self.clock.monotonic() + READY_SECONDS_MAX
        while not {child.pid for child in started} <= await self.registered():
            self.check_workers()
            if self.clock.monotonic() > deadline:
                raise WorkerEnded(
                    f"a worker was not ready after {READY_SECONDS_MAX:g} s:\n"
                    f"{started[0].tail()}"
                )
            await self.clock.sleep(LOOK_SECONDS)
        self.began = self.clock.monotonic()
        names = ", ".join(str(child.pid) for child in started)
        self.tell(f"the shop opens with {self.workers} workers: {names}")

    async def registered(self) -> set[int]:
        """The process ids of the workers that the store knows."""
        rows = await (await shop.app.store()).workers(shop.NAMESPACE)
        return {row.info["pid"] for row in rows}

    def check_workers(self) -> None:
        """Nobody but us ends a worker."""
        for child in self.children.started:
            if not child.is_running and child.pid not in self.victims:
                raise WorkerEnded(
                    f"worker {child.pid} ended by itself ({child.exit_code}):\n"
                    f"{child.tail()}"
                )

    # --- what happens

    async def work(self) -> None:
        """Sell and have a mishap, side by side."""
        parts: list[Coroutine[Any, Any, None]] = [
            self.sell(),
            self.change_minds(),
            self.have_a_mishap(),
        ]
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(part)

    def left(self, share: float) -> float:
        """Seconds until this share of the whole time has passed."""
        return self.began + self.seconds * share - self.clock.monotonic()

    async def sell(self) -> None:
        """One order after another, and one that nobody can deliver."""
        order = 0
        while self.left(SELLING_SHARE) > 0:
            order += 1
            await self.take_order(order)
            if order == 1:
                self.note(await shop.print_label.enqueue(order), "print_label")
            self.check_workers()
            await self.clock.sleep(ORDER_SECONDS)
        self.tell(f"the shop closes after {order} orders, {len(self.tasks)} jobs")

    async def take_order(self, order: int) -> None:
        """The jobs of one order; the customer of every tenth clicks twice."""
        self.note(await shop.send_mail.enqueue(order), "send_mail")
        charge = shop.charge_card.options(key=f"{self.began_at}-{order}")
        self.note(await charge.enqueue(order), "charge_card")
        if order % 10 == 3:  # noqa: PLR2004 - any tenth
            self.note(await charge.enqueue(order), "charge_card")
        if order % 2:
            self.note(await shop.resize_image.enqueue(order), "resize_image")
        if order % 4 == 1:
            later = shop.remind.options(delay=1)
            self.note(await later.enqueue(order), "remind")

    async def change_minds(self) -> None:
        """Cancel a job that waits and one that runs."""
        waiting = await shop.remind.options(delay="1h").enqueue(0)
        self.note(waiting, "remind")
        await self.cancel(waiting)
        running = await shop.write_letter.enqueue(0)
        self.note(running, LETTER)
        while not any(step.job == running.id for step in self.entries(Event.STARTED)):
            self.check_workers()
            await self.clock.sleep(LOOK_SECONDS)
        await self.cancel(running)
        self.tell("two jobs cancelled: one that waited, one that ran")

    def note(self, job: Job[Any], task: str) -> None:
        """An enqueue was answered: from here the job must not be lost."""
        event = Event.ENQUEUED if job.created else Event.REPEATED
        self.ledger.note(event, job=job.id, task=task)
        if job.created:
            self.tasks[job.id] = task

    async def cancel(self, job: Job[Any]) -> None:
        """Cancel, and note that it was accepted."""
        await job.cancel()
        self.ledger.note(Event.CANCELLED, job=job.id, task=self.tasks[job.id])

    # --- the mishap

    async def have_a_mishap(self) -> None:
        """Kill a worker in the middle of jobs, then start another."""
        await self.clock.sleep(max(0.0, self.left(KILL_SHARE)))
        victim, jobs = await self.hold_one_at_work()
        self.ledger.note(Event.KILLING, victim=victim.pid)
        self.victims.add(victim.pid)
        victim.kill()
        victim.wait(READY_SECONDS_MAX)
        self.ledger.note(Event.KILLED, victim=victim.pid)
        tasks = Counter(self.tasks[job] for job in jobs)
        named = ", ".join(f"{count} {task}" for task, count in sorted(tasks.items()))
        self.tell(f"kill -9 of worker {victim.pid} in the middle of: {named}")
        another = self.start_worker()
        self.tell(f"worker {another.pid} starts in its place")
        await self.see_again(jobs, self.clock.monotonic())

    async def hold_one_at_work(self) -> tuple[Child, set[str]]:
        """A worker held still in the middle of attempts, and their jobs."""
        turns = 0
        while True:
            for child in self.children.started:
                turns += 1
                child.stop()
                jobs = self.open_jobs(child)
                # After some rounds one will do.
                if len(jobs) >= (OPEN_WANTED if turns < 10 * self.workers else 1):
                    return child, jobs
                child.go_on()
                await self.clock.sleep(LOOK_SECONDS)
                self.check_workers()

    def open_jobs(self, child: Child) -> set[str]:
        """What a worker is in the middle of; the letter may not run again."""
        jobs = open_jobs(self.ledger_folder / f"{child.pid}.jsonl")
        return {job for job in jobs if self.tasks.get(job, LETTER) != LETTER}

    async def see_again(self, jobs: set[str], since: float) -> None:
        """Wait until the interrupted jobs run elsewhere."""
        while True:
            again = {
                entry.job
                for entry in self.entries(Event.STARTED)
                if entry.mono_ns / 1e9 > since and entry.pid not in self.victims
            }
            if jobs <= again:
                took = self.clock.monotonic() - since
                self.tell(f"all {len(jobs)} run again, {took:.1f} s after the kill")
                return
            if self.clock.monotonic() - since > SETTLE_SECONDS_MAX:
                return  # the verdict will name them
            await self.clock.sleep(LOOK_SECONDS)

    # --- the end

    async def settle(self) -> None:
        """Until every job is final, a bounded time."""
        store = await shop.app.store()
        waiting = [id_bytes(job) for job in self.tasks]
        deadline = self.clock.monotonic() + SETTLE_SECONDS_MAX
        while waiting and self.clock.monotonic() < deadline:
            states = await store.states(waiting[:PAGE])
            unfinished = [
                job
                for job in waiting[:PAGE]
                if job in states and not STATE_BY_CODE[states[job]].is_final
            ]
            waiting = unfinished + waiting[PAGE:]
            if unfinished:
                self.check_workers()
                await self.clock.sleep(LOOK_SECONDS)

    async def stored(self) -> dict[str, str]:
        """Where the store says that each job of this run stands."""
        store = await shop.app.store()
        states: dict[str, str] = {}
        cursor: str | None = None
        while True:
            query = Query(namespace=shop.NAMESPACE)
            page = await store.find(query, limit=PAGE, cursor=cursor)
            for record in page.records:
                if record.created_at >= self.began_at:
                    states[id_text(record.id)] = STATE_BY_CODE[record.state].value
            cursor = page.cursor
            if cursor is None or page.records[-1].created_at < self.began_at:
                return states

    def entries(self, event: str | None = None) -> list[Entry]:
        """What the ledger holds so far."""
        entries = read_ledger(self.ledger_folder)
        return [entry for entry in entries if event is None or entry.ev == event]


def open_jobs(path: Path) -> set[str]:
    """The jobs whose attempts a process has begun and not ended, by its own file."""
    jobs: set[str] = set()
    for entry in read_file(path) if path.exists() else ():
        if entry.ev == Event.STARTED:
            jobs.add(entry.job)
        elif entry.ev in (Event.EFFECT, Event.FAILED):
            jobs.discard(entry.job)
    return jobs
