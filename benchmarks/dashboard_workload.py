"""The App of the dashboard's measurements, and the jobs that its stores are filled from.

A worker runs some thousand jobs first: some fail, some die. Their rows are then copied many
times (dashboard_fill.py), so that what the store holds is what a worker has written.
"""

import asyncio
import random
from typing import Any

from durio import App, Concurrency, Rate, group
from durio.limits import Breaker
from durio.model.effects import Effects
from durio.model.error_groups import ErrorGroup, group_put
from durio.web.access.tokens import TokenRequest, Tokens
from durio.web.access.users import Users

APP_NAME = "shop"
APP_PATH = "benchmarks.dashboard_workload:make_app"
DAY = 86_400.0
DAYS = 30
KEPT = (DAYS + 5) * DAY
QUEUES = ("default", "mail", "media", "orders", "reports", "search", "sync", "webhooks")
# Nobody serves it, so its jobs stay ready while a worker lives.
BACKLOG = "backlog"
VERBS = ("send", "build", "check", "index", "resize")
THINGS = ("invoice", "order", "picture", "report", "customer", "parcel", "page", "feed")
ERRORS = (
    *("ConnectTimeout", "InvalidAddress", "PaymentRefused", "OutOfStock"),
    *("TooManyRequests", "DecodingError", "MissingRow", "DeadlockDetected"),
    *("CertificateExpired", "FileTooLarge"),
)
SLOTS = 8
SEEDS = {"done": 2_000, "dead": 400, "cancelled": 50}
KNOWN_FRAMES = tuple(f"shop/part{n}.py in function_{n}" for n in range(15))
WORKERS = 30  # more rows of workers
PLANS, SCHEDULES, KEYS, GROUPS, USERS = 200, 100, 200, 990, 20
BIG_PLAN = 2_000
PASSWORD = "correct horse battery"  # noqa: S105 - of users that cannot log in anywhere


class Workload:
    """The App with its tasks, by their names."""

    def __init__(self, url: str | None = None) -> None:
        self.app = App(
            url,
            name=APP_NAME,
            breakers=[Breaker("smtp", failures=5), Breaker("bank", failures=5)],
            settings={
                "worker": {"prefetch": 0, "concurrency": SLOTS},
                "retention": {"done_seconds": KEPT, "dead_seconds": KEPT},
                "queue": {"soft_max": 5_000_000},
            },
        )
        self.tasks: dict[str, Any] = {}
        for place, name in enumerate(task_names()):
            queue = QUEUES[place % len(QUEUES)]
            self.declare(order, name, queue=queue, retry=2)
            self.declare(fail, f"{name}_or_fail", queue=queue, retry=0)
        self.declare(occupy, "occupy", priority=9, timeout="3h")
        self.declare(order, "wait", queue=BACKLOG)
        self.declare(collect, "collect", queue="reports")
        by_customer = [Concurrency(2, key="customer")]
        self.declare(order, "per_customer", queue="sync", limits=by_customer)
        partner = [Rate("100/s", name="partner")]
        self.declare(order, "mail", queue="mail", breaker="smtp", limits=partner)

    def declare(self, function: Any, name: str, **options: Any) -> None:
        self.tasks[name] = self.app.task(name=name, **options)(function)


def make_app(url: str | None = None) -> App:
    """Return the App; `durio worker` calls it too."""
    return Workload(url).app


def task_names() -> list[str]:
    return [f"{verb}_{thing}" for thing in THINGS for verb in VERBS]


async def order(
    customer: int, *, city: str = "Oslo", lines: int = 1
) -> dict[str, object]:
    """Return a small result."""
    return {"customer": customer, "city": city, "lines": lines}


async def collect(orders: list[dict[str, object]]) -> int:
    return len(orders)


async def fail(customer: int, *, error: str, city: str = "Oslo") -> None:
    """Raise an error of this type, some frames deep."""
    deeper(error, f"customer {customer} in {city}: answer 0x{customer:08x}", 5)


def deeper(error: str, text: str, frames: int) -> None:
    if frames:
        return deeper(error, text, frames - 1)
    raise type(error, (Exception,), {})(text)


async def occupy(number: int) -> None:
    """Keep a slot of the worker."""
    del number
    await asyncio.sleep(2 * 3600)


# --- what is stored before the copies


def rows(count: int, chance: random.Random) -> list[dict[str, object]]:
    cities = ("Oslo", "Lima", "Kyoto", "Accra", "Utrecht")
    return [
        {"customer": chance.randrange(10_000), "city": chance.choice(cities)}
        for _ in range(count)
    ]


async def enqueue_seeds(load: Workload, chance: random.Random) -> None:
    """Store the jobs that a worker ends: done, dead and cancelled ones, and plans."""
    names = task_names()
    for name in names:
        each = SEEDS["done"] // len(names)
        await load.tasks[name].enqueue_many(rows(each, chance))
        failing = rows(SEEDS["dead"] // len(names), chance)
        for row in failing:
            row["error"] = chance.choice(ERRORS)
        await load.tasks[f"{name}_or_fail"].enqueue_many(failing)
    for _ in range(SEEDS["cancelled"]):
        late = load.tasks[names[0]].options(delay=3600)
        await (await late.enqueue(chance.randrange(10_000))).cancel()
    first = load.tasks[names[0]]
    for number in range(PLANS):
        # A list is not an order: some plans fail.
        last = load.tasks[names[1] if number % 10 == 1 else "collect"]
        size = BIG_PLAN if number == 0 else 5
        members = group(first.s(customer) for customer in range(size))
        await (members | last.s()).enqueue()


async def enqueue_live(load: Workload, ready: int, scheduled: int) -> None:
    """Store the jobs that wait, and those that run as long as the worker lives."""
    chance = random.Random(2)  # noqa: S311 - no secret
    await load.tasks["occupy"].enqueue_many([(n,) for n in range(SLOTS)])
    await in_parts(load.tasks["wait"], ready, chance)
    later = load.tasks["build_report"].options(delay="2d")
    await in_parts(later, scheduled, chance)
    limited = load.tasks["per_customer"]
    await limited.enqueue_many([(n % KEYS,) for n in range(5 * KEYS)])


async def in_parts(task: Any, count: int, chance: random.Random) -> None:
    for start in range(0, count, 10_000):
        await task.enqueue_many(rows(min(10_000, count - start), chance))


async def store_records(load: Workload) -> None:
    """Store schedules, groups of errors, users, and changes for the audit."""
    app, task = load.app, load.tasks["build_report"]
    for number in range(SCHEDULES):
        await app.schedules.create(
            f"report-{number:03}", task.s(number), cron=f"{number % 60} 3 * * *"
        )
    store, now = await app.store(), app.clock.now()
    for start in range(0, GROUPS, 100):
        puts = [
            group_put(APP_NAME, f"{number:012x}", known_group(number, now), 0)
            for number in range(start, min(start + 100, GROUPS))
        ]
        await store.commit(Effects(puts=puts))
    users = Users(store, APP_NAME, app.clock)
    for number in range(USERS):
        await users.add(f"user{number}", PASSWORD, "viewer")
    for number in range(50):
        await app.queue(QUEUES[1]).pause(f"the mail server is down: {number}")
        await app.queue(QUEUES[1]).resume()


def known_group(number: int, now: float) -> ErrorGroup:
    """Return a group as a busy App has it: deep frames, many tasks and hosts."""
    names = task_names()
    return ErrorGroup(
        type=f"{ERRORS[number % len(ERRORS)]}{number}",
        message=f"customer {number} in Oslo: answer 0x{number:08x}",
        frames=KNOWN_FRAMES,
        first_at=now - DAYS * DAY,
        last_at=now - number,
        last_job="0" * 32,
        failed=5_000 + number,
        dead=500,
        tasks={f"{APP_NAME}.{names[n % len(names)]}": 100 for n in range(number % 9)},
        versions={"1.0": 100, "1.1": 400},
        hosts={f"host-{n}": 10 for n in range(20)},
    )


async def make_token(app: App) -> str:
    """Return the text of a new token for an admin who sees payloads."""
    tokens = Tokens(await app.store(), app.name, app.clock)
    request = TokenRequest(name="measurement", role="admin", payloads=True)
    return (await tokens.create(request, by="benchmark")).text
