"""One run of the demo: real worker processes under a supervisor, and incoming orders.

Every process writes events to the ledger before or as they happen. At the end the ledger is
compared with the store, from which only the state of each job is read.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from durio.client.handle import Job
from durio.demo import shop
from durio.demo.faults import FaultInjector
from durio.demo.record import Ledger, LedgerLine, LedgerLineKind, read_ledger
from durio.demo.verdict import DemoVerdict, judge
from durio.host.clock import HostClock
from durio.host.descendants import Descendant, dies_with_parent, find_descendant
from durio.host.processes import Subprocess, Subprocesses, durio_command
from durio.model.errors import OperatingError, QueueFull
from durio.model.ids import id_bytes, id_text
from durio.model.job import STATE_BY_CODE
from durio.model.quantities import counted
from durio.ports.browse import Query

ORDER_SECONDS = 0.1  # between two orders
SELLING_SHARE = 0.6  # share of the whole time; the rest is for jobs that still run
KILL_SHARE, CHAOS_SHARE = 0.3, 0.1  # share of the whole time, before the first kill
CHAOS_SECONDS = 2.0  # between two kills: a worker and a child in turn
CHAOS_KILLS_MIN = 2  # on a slow machine, selling continues until then
LATE_SHARE = 3.0  # share of the whole time, after which selling ends in any case
BURST = 100  # parcels at once, for a queue with room for 20
GRACE_SECONDS = 2.0  # grace of the workers
POLL_SECONDS = 0.05
READY_SECONDS_MAX = 30.0
FINAL_SECONDS_MAX = 90.0
PAGE = 200
LETTER_TASK = "write_letter"


class PrintLine(Protocol):
    def __call__(self, line: str, /, style: str = "") -> None:
        """Print one line of progress, on a terminal in this colour."""
        ...


class WorkerEnded(OperatingError):
    """A worker of the demo ended although the demo did not kill it."""

    code = "worker_ended"


@dataclass(slots=True)
class Demo:
    folder: Path
    url: str
    seconds: float
    workers: int
    print_line: PrintLine
    is_chaotic: bool = False
    kills: int = 0
    clock: HostClock = field(default_factory=HostClock)
    children: Subprocesses = field(default_factory=Subprocesses)
    tasks: dict[str, str] = field(default_factory=dict[str, str])  # by job id
    started: float = 0.0
    started_at: float = 0.0
    ledger: Ledger = field(init=False)
    ledger_folder: Path = field(init=False)  # every process has its own file there
    supervisor: Subprocess = field(init=False)

    def __post_init__(self) -> None:
        self.ledger_folder = self.folder / "ledger"
        self.ledger_folder.mkdir()
        self.ledger = Ledger(self.ledger_folder)

    async def run(self) -> DemoVerdict:
        """Open the shop, sell, kill, wait until every job is final, and judge."""
        shop.app.url = self.url
        shop.app.emit.subscribers.clear()  # progress lines replace the log here
        self.started_at = self.clock.now()
        async with shop.app:
            with self.children:
                try:
                    await self.open_shop()
                    await self.run_shop()
                    await self.wait_until_final()
                finally:
                    # Jobs that still run after the grace are given back.
                    self.children.end(GRACE_SECONDS * 3)
            self.ledger.close()
            return judge(self.ledger_lines(), await self.stored_states())

    # --- the workers

    def start_workers(self) -> Subprocess:
        """Start real workers under a supervisor, as users do."""
        command = [
            *durio_command(),
            "worker",
            shop.APP_PATH,
            "--processes",
            str(self.workers),
            "--grace",
            f"{GRACE_SECONDS:g}",
        ]
        return self.children.start(
            dies_with_parent(command),
            log=self.folder / "workers.log",
            environ={
                "DURIO_URL": self.url,
                "DURIO_WORKER__CHILDREN": "1",
                shop.LEDGER_VARIABLE: str(self.ledger_folder),
            },
        )

    async def open_shop(self) -> None:
        """Start the workers and wait until each has registered."""
        self.supervisor = self.start_workers()
        deadline = self.clock.monotonic() + READY_SECONDS_MAX
        while len(workers := await self.registered_workers()) < self.workers:
            self.check_workers()
            if self.clock.monotonic() > deadline:
                raise WorkerEnded(
                    f"a worker was not ready after {READY_SECONDS_MAX:g} s:\n"
                    f"{self.supervisor.tail()}"
                )
            await self.clock.sleep(POLL_SECONDS)
        self.started = self.clock.monotonic()
        names = ", ".join(str(worker.pid) for worker in workers)
        self.print_line(f"the shop opens with {self.workers} workers: {names}")

    async def registered_workers(self) -> list[Descendant]:
        rows = await (await shop.app.store()).workers(shop.NAMESPACE)
        rows.sort(key=lambda row: row.id)
        found = (
            find_descendant(row.info["pid"], [self.supervisor.pid]) for row in rows
        )
        return [worker for worker in found if worker is not None]

    def check_workers(self) -> None:
        """Raise if the supervisor has ended; workers may end and be replaced."""
        if not self.supervisor.is_running:
            raise WorkerEnded(
                f"the supervisor ended by itself ({self.supervisor.exit_code}):\n"
                f"{self.supervisor.tail()}"
            )

    # --- the shop

    async def run_shop(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.sell())
            group.create_task(self.cancel_jobs())
            group.create_task(self.send_parcels())
            group.create_task(self.inject_faults())

    def seconds_until(self, share: float) -> float:
        """Return seconds until this share of the whole time has passed."""
        return self.started + self.seconds * share - self.clock.monotonic()

    def is_selling(self) -> bool:
        """Whether its share of the time lasts, and with chaos until 2 kills have happened."""
        is_spared = self.is_chaotic and self.kills < CHAOS_KILLS_MIN
        return self.seconds_until(SELLING_SHARE) > 0 or (
            is_spared and self.seconds_until(LATE_SHARE) > 0
        )

    async def sell(self) -> None:
        """Take one order after another, and one that cannot be delivered."""
        order = 0
        while self.is_selling():
            order += 1
            await self.take_order(order)
            if order == 1:
                self.add_job(await shop.print_label.enqueue(order), "print_label")
                self.add_job(await shop.open_bad_image.enqueue(order), "open_bad_image")
            self.check_workers()
            await self.clock.sleep(ORDER_SECONDS)
        self.print_line(
            f"the shop closes after {counted(order, 'order')}, {counted(len(self.tasks), 'job')}"
        )

    async def take_order(self, order: int) -> None:
        """Enqueue the jobs of one order; every tenth order is placed twice."""
        self.add_job(await shop.send_mail.enqueue(order), "send_mail")
        charge = shop.charge_card.options(key=f"{self.started_at}-{order}")
        self.add_job(await charge.enqueue(order), "charge_card")
        if order % 10 == 3:  # noqa: PLR2004 - any tenth
            self.add_job(await charge.enqueue(order), "charge_card")
        if order % 4 == 2:  # noqa: PLR2004 - every fourth
            self.add_job(await shop.resize_image.enqueue(order), "resize_image")
        if order % 4 == 1:
            later = shop.remind.options(delay=1)
            self.add_job(await later.enqueue(order), "remind")

    async def cancel_jobs(self) -> None:
        """Cancel a waiting job and a running one."""
        waiting = await shop.remind.options(delay="1h").enqueue(0)
        self.add_job(waiting, "remind")
        await self.cancel(waiting)
        running = await shop.write_letter.enqueue(0)
        self.add_job(running, LETTER_TASK)
        while not any(
            step.job == running.id for step in self.ledger_lines(LedgerLineKind.STARTED)
        ):
            self.check_workers()
            await self.clock.sleep(POLL_SECONDS)
        await self.cancel(running)
        self.print_line("two jobs cancelled: one that waited, one that ran")

    async def send_parcels(self) -> None:
        """Enqueue more parcels at once than the queue has room for: none is lost."""
        refused: list[QueueFull] = []

        async def send(order: int) -> None:
            try:
                self.add_job(await shop.pack_parcel.enqueue(order), "pack_parcel")
            except QueueFull as full:
                self.ledger.write(LedgerLineKind.REFUSED, task="pack_parcel")
                refused.append(full)

        async with asyncio.TaskGroup() as group:
            for order in range(BURST):
                group.create_task(send(order))
        if refused:
            text = f"QueueFull for {len(refused)} of {BURST} parcels: "
            first = refused[0]
            self.print_line(
                f"{text}{first.depth} wait, the bound is {first.limit}, "
                f"try again in {first.retry_after:.1f} s"
            )

    def add_job(self, job: Job[Any], task: str) -> None:
        """Record an acknowledged job: from now on it must not be lost."""
        event = LedgerLineKind.ENQUEUED if job.created else LedgerLineKind.REPEATED
        self.ledger.write(event, job=job.id, task=task)
        if job.created:
            self.tasks[job.id] = task

    async def cancel(self, job: Job[Any]) -> None:
        """Cancel a job, and record that the store accepted it."""
        await job.cancel()
        self.ledger.write(LedgerLineKind.CANCELLED, job=job.id, task=self.tasks[job.id])

    # --- faults

    async def inject_faults(self) -> None:
        """Kill once in the middle of jobs; with chaos, again and again."""
        mishaps, turn = FaultInjector(self), 0
        share = CHAOS_SHARE if self.is_chaotic else KILL_SHARE
        await self.clock.sleep(max(0.0, self.seconds_until(share)))
        async with asyncio.TaskGroup() as group:
            while turn == 0 or (self.is_chaotic and self.is_selling()):
                strike = mishaps.kill_child if turn % 2 else mishaps.kill_worker
                if kill := await strike():
                    self.kills += 1
                    group.create_task(mishaps.wait_for_rerun(kill))
                turn += 1
                await self.clock.sleep(CHAOS_SECONDS if self.is_chaotic else 0.0)

    # --- the end

    async def wait_until_final(self) -> None:
        """Wait until every job is final, for a limited time."""
        store = await shop.app.store()
        waiting = [id_bytes(job) for job in self.tasks]
        deadline = self.clock.monotonic() + FINAL_SECONDS_MAX
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
                await self.clock.sleep(POLL_SECONDS)

    async def stored_states(self) -> dict[str, str]:
        """Return the state of each job of this run, from the store."""
        store = await shop.app.store()
        states: dict[str, str] = {}
        cursor: str | None = None
        while True:
            query = Query(namespace=shop.NAMESPACE)
            page = await store.find(query, limit=PAGE, cursor=cursor)
            for record in page.jobs:
                if record.created_at >= self.started_at:
                    states[id_text(record.id)] = STATE_BY_CODE[record.state].value
            cursor = page.cursor
            if cursor is None or page.jobs[-1].created_at < self.started_at:
                return states

    def ledger_lines(self, kind: str | None = None) -> list[LedgerLine]:
        entries = read_ledger(self.ledger_folder)
        return [entry for entry in entries if kind is None or entry.ev == kind]
