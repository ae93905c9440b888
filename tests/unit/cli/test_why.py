"""`durio why` in situations that are made on purpose: the reason, and a command that helps.

Each situation is a job, the code of the reason that comes first, and the state of the job
after the command of that reason was pasted. The same holds on PostgreSQL.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from durio import App, chain
from durio.model.effects import Effects, Put
from durio.model.failure import Failure, encode_failure
from durio.model.ids import id_text
from durio.model.job import Claim
from durio.model.outcome import Outcome, OutcomeKind
from durio.model.plan_record import plan_kind
from durio.ports.browse import Query
from durio.ports.exchange import Lane
from durio.ports.lease import Vitals, WorkerInfo
from durio.ports.store import Store
from tests.conformance.postgres import ScratchSchema
from tests.unit.cli.terminal import Terminal

T = TypeVar("T")
CODE = """
from durio import App, Concurrency
from durio.limits import Breaker

app = App({url!r}, name="shop", breakers=[Breaker("smtp")])

@app.task
async def resize(path: str = "a", width: int = 100) -> str:
    if path == "bad":
        raise ValueError("no such file")
    return path + ".webp"

@app.task(queue="mail")
async def send(text: str = "hi") -> None:
    pass

@app.task(limits=[Concurrency(1, name="one")])
async def single() -> None:
    pass

@app.task(name="email:*", limits=[Concurrency(1)])
async def email() -> None:
    pass

@app.task(fair_by="tenant")
async def fair(tenant: str = "a") -> None:
    pass

@app.task(breaker="smtp")
async def mail() -> None:
    pass
"""
APP = ("--app", "shop")
LANE = "shop:default"
LEASE_SECONDS = 60.0
ERROR = encode_failure(
    Failure(type="ValueError", message="no such file", attempt=1, at=1.0)
)


@dataclass
class Shop:
    """A store, and the code of its App in the folder of a terminal."""

    terminal: Terminal
    url: str
    workers: list[int] = field(default_factory=list[int])

    def do(self, work: Callable[[App, Store], Awaitable[T]]) -> T:
        """Run work in a process that knows no code of the App."""

        async def opened() -> T:
            async with App(self.url, name="shop") as app:
                return await work(app, await app.store())

        return asyncio.run(opened())

    def enqueue(self, task: str = "resize", *args: str) -> str:
        return self.terminal.json("enqueue", task, *args, *APP)["id"]

    def worker(self, vitals: Vitals | None = None, **fields: Any) -> int:
        """Register a worker that does nothing."""
        seconds = fields.pop("lease_seconds", LEASE_SECONDS)
        known: dict[str, Any] = {
            "namespace": "shop",
            "name": "far/77",
            "host": "far",
            "pid": 77,
            "queues": None,
            "concurrency": 10,
            "version": "0.0",
            **fields,
        }

        async def register(app: App, store: Store) -> int:
            del app
            worker = await store.register(WorkerInfo(**known), seconds)
            if vitals is not None:
                await store.renew(worker, seconds, vitals)
            return worker

        return self.do(register)

    def claim(self, worker: int, lane: str = LANE) -> Claim:
        async def claim(app: App, store: Store) -> Claim:
            del app
            (found,) = (await store.exchange(worker, [], [Lane(lane, 1)], 1)).claims
            return found

        return self.do(claim)

    def end(self, worker: int, claim: Claim, kind: OutcomeKind, **fields: Any) -> None:
        outcome = Outcome(claim.id, claim.claim_no, kind, **fields)

        async def end(app: App, store: Store) -> None:
            del app
            assert not (await store.exchange(worker, [outcome], [], 0)).rejected

        self.do(end)

    def gave_back(self, kind: OutcomeKind, task: str = "resize", **fields: Any) -> str:
        """Let a worker end an attempt of a new job so that it waits for an hour."""
        job, worker = self.enqueue(task), self.worker()
        self.end(worker, self.claim(worker), kind, delay_seconds=3600.0, **fields)
        self.leave(worker)
        return job

    def leave(self, worker: int) -> None:
        self.do(lambda _, store: store.leave(worker))

    def work(self) -> None:
        self.terminal.ok("worker", "shop:app", "--burst", "--log-level", "ERROR")

    def why(self, job: str) -> dict[str, Any]:
        return self.terminal.json("why", job, *APP)

    def state(self, job: str) -> str:
        return self.terminal.json("jobs", "show", job, *APP)["state"]

    def paste(self, command: str) -> None:
        """Run a command as it was printed; a worker ends when there is no work."""
        program, *args = shlex.split(command)
        assert program == "durio"
        if args[0] == "worker":
            args += ["--burst", "--log-level", "ERROR"]
        self.terminal.ok(*args)


Make = Callable[[Shop], str]
SITUATIONS: dict[str, tuple[Make, str, str]] = {}


def situation(code: str, after: str) -> Callable[[Make], Make]:
    """A job for which `why` says this first, and its state after the pasted command."""

    def add(make: Make) -> Make:
        SITUATIONS[make.__name__] = (make, code, after)
        return make

    return add


# --- scheduled


@situation("scheduled", "ready")
def delayed(shop: Shop) -> str:
    return shop.enqueue("resize", "--delay", "1h")


@situation("retry_wait", "ready")
def waits_for_its_retry(shop: Shop) -> str:
    return shop.gave_back(OutcomeKind.RETRY, error=ERROR)


@situation("snoozed", "ready")
def snoozed(shop: Shop) -> str:
    return shop.gave_back(OutcomeKind.SNOOZE)


@situation("task_unknown", "ready")
def parked_by_a_worker_of_older_code(shop: Shop) -> str:
    job = shop.gave_back(OutcomeKind.RELEASE, parks=True)
    shop.worker(tasks=("shop.send",))
    shop.worker(tasks=("shop.resize",))
    return job


@situation("needs_other_release", "ready")
def arguments_of_another_release(shop: Shop) -> str:
    job = shop.gave_back(OutcomeKind.RELEASE, parks=True)
    shop.worker(tasks=("shop.resize",))
    return job


# --- ready


@situation("queue_paused", "ready")
def paused(shop: Shop) -> str:
    shop.terminal.ok("queues", "pause", "default", "--reason", "db (down)", *APP)
    return shop.enqueue()


@situation("no_worker", "done")
def nobody_works(shop: Shop) -> str:
    return shop.enqueue()


@situation("queue_unserved", "done")
def nobody_serves_the_queue(shop: Shop) -> str:
    shop.worker(queues=("high", "mail*"))
    return shop.enqueue()


@situation("task_unknown", "done")
def no_live_worker_has_the_task(shop: Shop) -> str:
    shop.worker(tasks=("shop.send",), queues=("default",))
    return shop.enqueue()


@situation("workers_draining", "done")
def every_worker_is_stopping(shop: Shop) -> str:
    shop.worker(Vitals(0.0, 0, 0, 0, draining=True))
    return shop.enqueue()


@situation("workers_busy", "done")
def every_slot_is_taken(shop: Shop) -> str:
    shop.enqueue("send")
    shop.claim(shop.worker(concurrency=1), "shop:mail")
    return shop.enqueue()


# --- blocked


@situation("blocked_by_jobs", "done")
def waits_for_a_delayed_job(shop: Shop) -> str:
    return in_chain(shop, delay="1h")


@situation("no_worker", "cancelled")
def its_parent_is_dead(shop: Shop) -> str:
    job, worker = in_chain(shop), shop.worker()
    claim = shop.claim(worker)
    shop.end(worker, claim, OutcomeKind.DEAD, error=ERROR, reason="permanent")
    shop.leave(worker)
    return job


@situation("plan_gone", "cancelled")
def its_plan_is_deleted(shop: Shop) -> str:
    job = in_chain(shop)
    plan = shop.terminal.json("jobs", "show", job, *APP)["plan"]
    gone = Effects(puts=[Put(plan_kind("shop"), plan, None)])
    shop.do(lambda _, store: store.commit(gone))
    return job


def in_chain(shop: Shop, **options: Any) -> str:
    """Enqueue a chain of two jobs; return the id of the second."""

    async def enqueue(app: App, store: Store) -> str:
        first = app.named("shop.resize").options(**options).s("a")
        plan = await chain(first, app.s("shop.resize")).enqueue()
        assert plan.id
        jobs = (await store.find(Query("shop"), limit=9, cursor=None)).jobs
        return id_text(max(job.id for job in jobs))

    return shop.do(enqueue)


@situation("limit_reached", "blocked")
def its_limit_is_reached(shop: Shop) -> str:
    shop.enqueue("single")
    return shop.enqueue("single")


@situation("limit_reached", "blocked")
def the_limit_of_many_names_is_reached(shop: Shop) -> str:
    shop.enqueue("email:a")
    return shop.enqueue("email:b")


@situation("fair_turn", "blocked")
def others_have_their_turn(shop: Shop) -> str:
    async def enqueue(app: App, store: Store) -> str:
        del store
        jobs = await app.named("shop.fair").enqueue_many([()] * 17)
        return jobs[16].id

    return shop.do(enqueue)


@situation("breaker_open", "ready")
def its_breaker_is_open(shop: Shop) -> str:
    shop.terminal.ok("breakers", "open", "smtp", *APP)
    return shop.enqueue("mail")


# --- running, and ended


@situation("worker_lost", "done")
def its_worker_is_lost(shop: Shop) -> str:
    job = shop.enqueue()
    worker = shop.worker()
    shop.claim(worker)
    shop.do(lambda _, store: store.renew(worker, 0.0))
    return job


@situation("dead", "ready")
def dead(shop: Shop) -> str:
    job, worker = shop.enqueue(), shop.worker()
    claim = shop.claim(worker)
    shop.end(worker, claim, OutcomeKind.DEAD, error=ERROR, reason="exhausted")
    return job


@situation("cancelled", "ready")
def cancelled(shop: Shop) -> str:
    job = shop.enqueue()
    shop.terminal.ok("jobs", "cancel", job, *APP)
    return job


@situation("cancelled", "blocked")
def cancelled_because_its_parent_failed(shop: Shop) -> str:
    job = its_parent_is_dead(shop)
    shop.work()
    assert shop.state(job) == "cancelled"
    return job


def check(shop: Shop, name: str) -> None:
    """The first reason has the code, and its command brings the job on."""
    make, code, after = SITUATIONS[name]
    job = make(shop)
    found = shop.why(job)
    reason = found["reasons"][0]
    commands = [each["command"] for each in found["reasons"] if each["command"]]
    assert (found["id"], reason["code"]) == (job, code), found
    assert reason["is_blocking"]
    shown = shop.terminal.ok("why", job, *APP)
    assert reason["unblock"] in shown
    assert commands[0] in shown
    shop.paste(commands[0])
    if name == "waits_for_a_delayed_job":
        shop.work()
    assert shop.state(job) == after
    if after == "blocked":  # until a worker lets it go
        assert shop.why(job)["reasons"][0]["code"] != code
    if after == "ready":  # nothing else holds it back
        shop.work()
        assert shop.state(job) == "done"


@pytest.fixture
def shop(terminal: Terminal) -> Shop:
    return made(terminal, "sqlite:///jobs.db")


def made(terminal: Terminal, url: str) -> Shop:
    terminal.write("shop.py", CODE.format(url=url))
    shop = Shop(terminal, url)
    shop.terminal.ok("migrate", "--app", "shop")
    shop.work()  # publishes the tasks
    return shop


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_reason_and_its_command(shop: Shop, name: str) -> None:
    check(shop, name)


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_reason_and_its_command_on_postgres(
    terminal: Terminal, grounds: ScratchSchema, name: str
) -> None:
    check(made(terminal, grounds.url), name)
