# pyright: strict
"""A user's program that every type checker must accept, in its strict mode.

It is only read, never run. `assert_type` holds what the checker must know by itself. A
comment `T:` holds what it must print for `reveal_type`, parameters and defaults included;
with `T pyright:` mypy knows less.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from sqlite3 import connect
from typing import Any, ParamSpec, assert_type, reveal_type

from apsw import Connection
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from durio import (
    App,
    Context,
    Cron,
    Job,
    JobDetails,
    JobStatus,
    Retry,
    Signature,
    State,
)
from durio.limits import Batch, Err, Ok
from durio.model.job import JobError
from durio.plans import (
    Collected,
    Complete,
    Immutable,
    ImmutablePlan,
    NamedSignature,
    Partial,
    PartialPlan,
    Plan,
    PlanFailure,
    PlanJob,
    chain,
    chord,
    group,
)
from durio.schedules import Schedule, Tick


@dataclass
class Deps:
    smtp: str


@dataclass
class Receipt:
    order_id: int
    paid_at: datetime


@asynccontextmanager
async def open_deps() -> AsyncGenerator[Deps, None]:
    yield Deps(smtp="localhost")


app = App("sqlite:///jobs.db", name="shop", deps=open_deps)


@app.task
async def send(order_id: int, *, to: str) -> str:
    return f"{order_id} to {to}"


@app.task(
    queue="high",
    priority=9,
    retry=Retry(5, base="30s", on=(ConnectionError,), never=(ValueError,)),
    timeout=(270, 300),
)
async def render(ctx: Context[Deps], page: int) -> bytes:
    assert_type(ctx.deps.smtp, str)
    assert_type(ctx.job_id, str)
    assert_type(ctx.attempt, int)
    return b""


@app.task(process=True)
def half(x: float) -> float:
    return x / 2


@app.task(retry=3, timeout="2m", name="text_length")
async def length(text: str) -> int:
    return len(text)


@app.task(queue="bills", timeout=None)
def bill(ctx: Context[Deps], order_id: int, paid_at: datetime | None = None) -> Receipt:
    return Receipt(order_id, paid_at or datetime.now(UTC))


@app.task
async def forget(ids: list[int], *extra: str, **labels: int) -> None: ...


# --- the first parameter, and what stands beside it


@app.task
async def bare(ctx: Context, path: str, *, width: int = 800) -> str:
    await helper(ctx)
    assert_type(ctx.deps, object)
    return path


async def helper(ctx: Context) -> None:
    """Takes every Context, whatever its deps."""


@app.task
async def any_inside(
    ctx: Context[Deps], payload: dict[str, Any], n: int = 1
) -> list[Any]:
    await helper(ctx)
    return [payload] * n


@app.task
async def any_deps(ctx: Context[Any], path: str) -> str:
    return str(ctx.deps.anything)


@app.task
async def any_first(doc: Any, n: int = 1) -> str:
    return str(doc) * n


@app.task
async def object_first(doc: object, meta: dict[str, Any]) -> str:
    return str(doc)


@app.task
async def none_first(path: str | None = None) -> str:
    return path or ""


@app.task
async def only_positional(ctx: Context, order_id: int, /, note: str = "") -> int:
    return order_id


@app.task
async def only_keywords(*, to: str, cc: str = "") -> str:
    return to + cc


@app.task
async def any_keywords(ctx: Context, *, fields: dict[str, Any], to: str = "") -> None:
    """Keywords only, and an Any among them."""


@app.task
async def nothing() -> int:
    return 1


@app.task
async def only_context(ctx: Context) -> int:
    return ctx.attempt


@app.task
async def gives_any(url: str) -> Any:
    return {"a": url}


@app.task
async def add(a: int, b: int) -> int:
    return a + b


@app.task
async def resize(path: str, width: int = 800) -> bytes:
    return path.encode() * width


@app.task
def sync_bare(ctx: Context, n: int) -> dict[str, Any]:
    return {"n": n}


@app.task
def sync_any(url: str) -> Any:
    return {"a": url}


@app.task
async def longest(texts: list[str], limit: int) -> str:
    return max(texts, key=len)[:limit]


@app.task
async def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
async def report(ends: Collected[int]) -> str:
    return f"{ends.succeeded} of {ends.total}, not {ends.failed_ids}"


@app.task
async def alert(failure: PlanFailure, channel: str = "ops") -> None:
    assert_type(failure.error_type, str)


@app.task
async def measure(ctx: Context, paths: list[str]) -> list[int]:
    ctx.add(length.s("a"), half.si(1.0), app.s("shop.resize", "b.png"))
    assert_type(ctx.replace(length.s("a")), int)
    assert_type(ctx.replace(length.si("a") | half.s()), float)
    return ctx.replace(group(length.s(path) for path in paths))


high = app.task(queue="high", retry=3)


@high
async def urgent(ctx: Context, n: int) -> int:
    return n


@high(process=True, priority=9)
def crunch(ctx: Context[Deps], x: float, *, digits: int = 2) -> float:
    return round(x, digits)


def revealed() -> None:
    reveal_type(send)  # T: Task[(order_id: int, *, to: str), str]
    reveal_type(render)  # T: Task[(page: int), bytes]
    reveal_type(half)  # T: SyncTask[(x: float), float]
    reveal_type(forget)  # T: Task[(ids: list[int], *extra: str, **labels: int), None]
    reveal_type(bare)  # T: Task[(path: str, *, width: int =), str]
    reveal_type(any_inside)  # T: Task[(payload: dict[str, Any], n: int =), list[Any]]
    reveal_type(any_deps)  # T: Task[(path: str), str]
    reveal_type(any_first)  # T pyright: Task[(doc: Any, n: int =), str]
    reveal_type(object_first)  # T: Task[(doc: object, meta: dict[str, Any]), str]
    reveal_type(none_first)  # T: Task[(path: str | None =), str]
    reveal_type(only_keywords)  # T: Task[(*, to: str, cc: str =), str]
    reveal_type(any_keywords)  # T: Task[(*, fields: dict[str, Any], to: str =), None]
    reveal_type(nothing)  # T: Task[(), int]
    reveal_type(only_context)  # T: Task[(), int]
    reveal_type(gives_any)  # T: Task[(url: str), Any]
    reveal_type(sync_bare)  # T: SyncTask[(n: int), dict[str, Any]]
    reveal_type(sync_any)  # T pyright: SyncTask[(url: str), Any]
    reveal_type(urgent)  # T: Task[(n: int), int]
    reveal_type(crunch)  # T: SyncTask[(x: float, *, digits: int =), float]
    reveal_type(bare.s("a"))  # T: Signature[(path: str, *, width: int =), str]
    reveal_type(half.s(1.0))  # T: Signature[(x: float), float]


async def call_plainly(ctx: Context[Deps]) -> None:
    assert_type(await send(1, to="a@b.c"), str)
    assert_type(await render(7), bytes)
    assert_type(await render(ctx, 7), bytes)
    assert_type(half(1.0), float)
    assert_type(bill(ctx, 1), Receipt)
    assert_type(bill(1, paid_at=datetime.now(UTC)), Receipt)
    assert_type(await bare("a", width=3), str)
    assert_type(await bare(ctx, "a"), str)
    assert_type(sync_bare(ctx, 1), dict[str, Any])
    assert_type(await only_context(), int)
    assert_type(send.__name__, str)


async def enqueue() -> None:
    assert_type(await send.enqueue(1, to="a@b.c"), Job[str])
    assert_type(await render.enqueue(7), Job[bytes])
    assert_type(await render.enqueue(page=7), Job[bytes])
    assert_type(await half.enqueue(1.0), Job[float])
    assert_type(await bill.enqueue(1), Job[Receipt])
    assert_type(await forget.enqueue([1, 2], "x", label=3), Job[None])
    assert_type(await bare.enqueue("a", width=3), Job[str])
    assert_type(await any_inside.enqueue({"a": 1}, n=2), Job[list[Any]])
    assert_type(await object_first.enqueue(doc=1, meta={}), Job[str])
    assert_type(await none_first.enqueue(), Job[str])
    assert_type(await only_positional.enqueue(1, note="x"), Job[int])
    assert_type(await only_keywords.enqueue(to="a"), Job[str])
    assert_type(await only_context.enqueue(), Job[int])
    assert_type(sync_bare.enqueue_sync(n=1), Job[dict[str, Any]])
    assert_type(await crunch.enqueue(1.5, digits=0), Job[float])
    # mypy takes these two tasks for Any: it accepts the calls, and checks nothing.
    await any_first.enqueue({"a": 1}, n=3)
    sync_any("b")["a"].anything()


async def rows(texts: Iterator[str]) -> None:
    signatures = [send.s(1, to="a"), send.options(priority=9).s(2, to="b")]
    assert_type(await send.enqueue_many(signatures), list[Job[str]])
    assert_type(await send.options(delay=5).enqueue_many(signatures), list[Job[str]])
    assert_type(await bare.enqueue_many(bare.s(t) for t in texts), list[Job[str]])
    assert_type(await length.enqueue_many([("a",), ("b",)]), list[Job[int]])
    assert_type(await length.enqueue_many((text,) for text in texts), list[Job[int]])
    assert_type(await add.enqueue_many([(1, 2), (3, 4)]), list[Job[int]])
    assert_type(await resize.enqueue_many([("a",)]), list[Job[bytes]])
    assert_type(await resize.enqueue_many([("a", 1)]), list[Job[bytes]])
    assert_type(await nothing.enqueue_many([()] * 3), list[Job[int]])
    by_name = [{"order_id": 1, "to": "a"}]
    assert_type(await send.enqueue_many(by_name), list[Job[str]])
    assert_type(half.enqueue_many_sync([(1.0,), (2.0,)]), list[Job[float]])
    assert_type(
        sync_bare.enqueue_many_sync([sync_bare.s(1)]), list[Job[dict[str, Any]]]
    )
    assert_type(crunch.enqueue_many_sync([{"x": 1.0}]), list[Job[float]])
    assert_type(send.s(1, to="a") == send.s(2, to="a"), bool)
    assert_type(send.s(1, to="a").task, str)
    await enqueue_all([send.s(1, to="a")], [half.s(1.0)])


async def enqueue_all(*batches: list[Signature[..., Any]]) -> None:
    """Signatures of any tasks."""


def enqueue_sync() -> None:
    assert_type(send.enqueue_sync(1, to="a@b.c"), Job[str])
    assert_type(half.enqueue_sync(1.0), Job[float])
    assert_type(half.options(delay=5).enqueue_sync(1.0), Job[float])


async def transactions(session: Session, loop_session: AsyncSession) -> None:
    with Connection("shop.db") as db:
        assert_type(await send.options(tx=db).enqueue(1, to="x"), Job[str])
    assert_type(half.options(tx=connect("shop.db")).enqueue_sync(1.0), Job[float])
    assert_type(half.options(tx=session).enqueue_sync(1.0), Job[float])
    assert_type(await half.options(tx=loop_session).enqueue(1.0), Job[float])
    assert_type(await half.options(tx=None).enqueue(1.0), Job[float])


async def effects(ctx: Context[None]) -> None:
    async with ctx.transaction() as tx:
        tx.execute("select 1")
        assert_type(ctx.result(5), int)
    with ctx.transaction() as tx:
        tx.execute("select 1")


async def options() -> None:
    assert_type(await render.options(delay="5m", key="k").enqueue(7), Job[bytes])
    assert_type(await render.options(delay=timedelta(1)).enqueue(7), Job[bytes])
    later = send.options(at=datetime.now(UTC), retry=3, timeout=None)
    assert_type(await later.enqueue(1, to="x"), Job[str])
    strict = send.options(retry=Retry(3), timeout=("4m", 300), priority=9)
    assert_type(await strict.enqueue(1, to="x"), Job[str])
    assert_type(await strict.enqueue_many([send.s(1, to="a")]), list[Job[str]])
    labelled = send.options(queue="high", meta={"tenant": "acme", "tries": 2})
    assert_type(await labelled.enqueue(1, to="x"), Job[str])
    both = send.options(delay=1).options(key="k")
    assert_type(await both.enqueue(1, to="x"), Job[str])


async def handle() -> None:
    job = await send.enqueue(1, to="a@b.c")
    assert_type(job.id, str)
    assert_type(job.created, bool)
    assert_type(await job.result(timeout=30), str)
    assert_type(await job.result(), str)
    assert_type(await job.status(), JobStatus)
    status = await job.status()
    assert_type(status.state, State)
    assert_type(status.attempt, int)
    assert_type(status.finished_at, datetime | None)
    assert_type(await job.cancel(), State)
    await job.retry()
    assert_type(job.result_sync(30), str)
    assert_type(job.status_sync(), JobStatus)
    assert_type(await job, str)
    assert_type(await asyncio.gather(job, job), tuple[str, str])
    assert_type(await job.details(), JobDetails)
    assert_type((await job.details()).errors, tuple[JobError, ...])
    assert_type(status.max_attempts, int | None)
    assert_type(status.to_dict(), dict[str, Any])
    await job.run_now()
    await show(job)


async def many() -> None:
    jobs = app.jobs(
        state=("dead", State.CANCELLED), task=send, older="1h", ids=["0198"]
    )
    async for each in jobs.limit(5):
        assert_type(each, JobDetails)
    assert_type(await jobs.count(), int)
    assert_type((await jobs.retry()).changed, int)
    assert_type([job.id for job in app.jobs()], list[str])
    mail = app.queue("mail", maxsize=5)
    await mail.pause("why")
    assert_type(await mail.depth(), int)
    assert_type((await mail.status()).paused, bool)


async def show(anything: Job[object]) -> None:
    """A handle may be seen as one of something wider."""
    assert_type(await anything.result(), object)


Q = ParamSpec("Q")


def add_task(func: Callable[Q, Any], *args: Q.args, **kwargs: Q.kwargs) -> None:
    """As `BackgroundTasks` of FastAPI has it."""


def in_background() -> None:
    add_task(send, 1, to="a")
    add_task(bare, "a", width=3)
    add_task(half, 1.0)
    add_task(sync_bare, 1)


def links() -> None:
    assert_type(length.s(), Partial[str, int])
    assert_type(half.si(1.0), Immutable[float])
    assert_type(add.options(queue="low").s(2), Partial[int, int])
    assert_type(send.s(to="a"), Partial[int, str])
    # An int goes into a float.
    assert_type(send.s(1, to="a") | length.s() | half.s(), Plan[float])
    assert_type(add.s(1, 2) | add.s(b=3) | crunch.s(digits=1), Plan[float])
    assert_type(length.s() | half.s(), PartialPlan[str, float])
    assert_type(length.s() | half.s() | crunch.s(digits=1), PartialPlan[str, float])
    assert_type(send.s(1, to="a") | resize.s(width=3), Plan[bytes])
    assert_type(send.s(1, to="a") | nothing.si(), Plan[int])
    assert_type(nothing.si() | add.s(1), ImmutablePlan[int])
    assert_type(send.s(1, to="a") | (nothing.si() | add.s(1)), Plan[int])
    assert_type(length.s("a") | object_first.s({}), Plan[str])
    assert_type(only_keywords.s(to="a") | length.s(), Plan[int])


def chains() -> None:
    assert_type(chain(send.s(1, to="a"), length.s()), Plan[int])
    assert_type(chain(send.s(1, to="a"), length.s(), add.s(2)), Plan[int])
    assert_type(chain(send.s(1, to="a"), length.s(), add.s(2), half.s()), Plan[float])
    assert_type(chain(add.s(1, 2), *[add.s(b=n) for n in range(9)]), Plan[int])
    assert_type(chain(length.s(), half.s()), PartialPlan[str, float])
    to_bytes = chain(send.s(to="a"), length.s(), send.s(to="b"), resize.s(3))
    assert_type(to_bytes, PartialPlan[int, bytes])
    assert_type(chain(add.s(1), *[add.s(b=n) for n in range(9)]), PartialPlan[int, int])
    free = chain(send.si(1, to="a"), length.s())
    assert_type(free, ImmutablePlan[int])
    assert_type(length.s("a") | free, Plan[int])
    assert_type(length.s("a") | chain(nothing.si()), Plan[int])
    assert_type(chain(nothing.si(), *[add.s(n) for n in range(9)]), ImmutablePlan[int])
    # An iterable of members.
    assert_type(chain([add.si(1, 2), add.si(3, 4)]), ImmutablePlan[int])
    assert_type(chain(add.s(n) for n in range(9)), PartialPlan[int, int])
    assert_type(chain([add.s(1, 2), add.s(3)]), Plan[Any])
    assert_type(chain([send.s(1, to="a"), length.s(), half.s()]), Plan[Any])


def groups(paths: list[str]) -> None:
    assert_type(group(length.s("a"), length.s("b")), Plan[list[int]])
    assert_type(group(length.s(p) for p in paths), Plan[list[int]])
    assert_type(group(length.si(p) for p in paths), ImmutablePlan[list[int]])
    fan_out = group(length.s(), resize.s(3) | nothing.si())
    assert_type(fan_out, PartialPlan[str, list[int]])
    assert_type(length.s("a") | group(nothing.si(), nothing.si()), Plan[list[int]])
    assert_type(send.s(1, to="a") | group(length.s(), length.s()), Plan[list[int]])
    assert_type(group([send.s(1, to="a")]) | longest.s(10), Plan[str])
    assert_type(chord([send.s(n, to="a") for n in range(3)], longest.s(10)), Plan[str])
    assert_type(chord([length.s(p) for p in paths], total.s()), Plan[int])
    free = chord([length.si(p) for p in paths], total.s())
    assert_type(free, ImmutablePlan[int])
    assert_type(length.s("a") | free, Plan[int])
    assert_type(chord(group(nothing.si()), total.s()), ImmutablePlan[int])
    assert_type(chord([length.s(), length.s()], total.s()), PartialPlan[str, int])
    assert_type(chord(group(length.s(p) for p in paths), total.s()), Plan[int])
    collected = group((length.s(p) for p in paths), on_error="collect")
    assert_type(collected, Plan[Collected[int]])
    assert_type(collected | report.s(), Plan[str])
    assert_type(resize.map(paths), ImmutablePlan[list[bytes]])
    assert_type(add.starmap([(1, 2)]), ImmutablePlan[list[int]])
    rows = zip(range(9), range(9), strict=True)
    assert_type(add.chunks(rows, 3), ImmutablePlan[list[list[int]]])
    assert_type(length.map(paths) | total.s(), ImmutablePlan[int])


def plan_values() -> None:
    plan = (send.s(1, to="a") | length.s()).on_error(alert.s()).on_error(nothing.si())
    assert_type(plan, Plan[int])
    assert_type(plan.options(key="k", unique="while_active", meta={"a": 1}), Plan[int])
    assert_type(length.s().on_error(alert.s("dev")), Partial[str, int])
    assert_type(plan.to_dict(), dict[str, Any])
    anything: Complete[object] = plan
    assert_type(anything.to_dict(), dict[str, Any])
    named = app.s("shop.resize", "a.png")
    assert_type(named, NamedSignature)
    assert_type(named | length.s(), ImmutablePlan[int])
    assert_type(send.s(1, to="a") | app.s("shop.resize") | half.s(), Plan[float])
    assert_type(group(named, app.s("shop.resize", "b.png")), Plan[list[Any]])


async def stored_plans() -> None:
    plan = await (send.s(1, to="a") | length.s()).enqueue()
    assert_type(plan, PlanJob[int])
    assert_type(await plan.result(timeout=30), int)
    assert_type(await plan, int)
    assert_type(await plan.counts(), dict[State, int])
    later = (length.s() | half.s()).on_error(alert.s()).options(queue="low", key="k")
    assert_type(later, PartialPlan[str, float])
    assert_type(await later.enqueue("a"), PlanJob[float])
    assert_type(later.enqueue_sync("a"), PlanJob[float])
    assert_type(await (await later.enqueue("a")).result(timeout="30s"), float)
    assert_type(await length.s().enqueue("a"), Job[int])
    assert_type(length.s().enqueue_sync("a"), Job[int])
    assert_type(length.map(["a"]).enqueue_sync().results_sync(), list[int])
    assert_type((await (await app.plan("0198")).status()).failed_node, str | None)


async def by_name() -> None:
    named = app.named("shop.send")
    assert_type(named.name, str)
    assert_type(await named.enqueue(42, to="a@b.c"), Job[Any])
    assert_type(named.options(delay="5m").enqueue_sync(42), Job[Any])
    assert_type(await named.enqueue_many([(1,), {"order_id": 2}]), list[Job[Any]])
    assert_type(await named.job("0198"), Job[Any])
    assert_type((await app.enqueue("shop.send", 42, to="a@b.c")).id, str)
    assert_type((await app.job("0198")).id, str)
    assert_type(await (await send.job("0198")).result(), str)
    assert_type(send.job_sync("0198"), Job[str])
    assert_type(await (await send.job("0198")), str)
    async with app as opened:
        assert_type(opened, App)


@app.cron("0 2 * * *", tz="Europe/Paris", overlap="skip", catchup="latest")
async def nightly(ctx: Context, keep: int = 7) -> str:
    assert_type(ctx.tick, Tick | None)
    return str(keep)


@app.every("5m", fixed_delay=True, args=(1,))
@app.task(queue="low")
async def poll(shop: int) -> int:
    return shop


@app.cron(Cron(hour=3, weekday="MON-FRI"), name="weekly-report")
def weekly() -> float:
    return 0.5


async def schedules() -> None:
    assert_type(await (await nightly.enqueue(30)).result(), str)
    assert_type(await (await poll.enqueue(2)).result(), int)
    assert_type(weekly.enqueue_sync().result_sync(), float)
    made = await app.schedules.create("user-42", poll, args=(42,), cron="@daily")
    assert_type(made, Schedule)
    assert_type(made.next_at, datetime | None)
    assert_type(await app.schedules.pause("user-42", "holiday"), Schedule)


# --- batches


@app.task(batch=Batch(64, "50ms"))
async def embed(texts: list[str]) -> list[float]:
    return [float(len(text)) for text in texts]


@app.task(batch=Batch(64), queue="mail")
async def push(ctx: Context[Deps], ids: list[int]) -> list[Ok[str] | Err | Retry]:
    return [Ok(f"{ctx.deps.smtp}/{one}") for one in ids]


@app.task(batch=Batch(size=8, wait=0.5))
def label(pages: list[bytes]) -> list[str | Err]:
    return [str(len(page)) for page in pages]


@app.task(batch=Batch(8), name="count_words")
def count_words(ctx: Context, pages: list[str]) -> tuple[Ok[int] | int | None, ...]:
    return tuple(job.attempt for job, _ in zip(ctx.jobs, pages, strict=True))


async def batches(ctx: Context[Deps]) -> None:
    assert_type(await embed.enqueue("a"), Job[float])
    assert_type(await push.options(delay="5m").enqueue(5), Job[str])
    assert_type(label.enqueue_sync(b"a"), Job[str])
    assert_type(await count_words.enqueue("a"), Job[int | None])
    assert_type(await embed.enqueue_many([("a",), ("b",)]), list[Job[float]])
    assert_type(embed.map(["a", "b"]), ImmutablePlan[list[float]])
    assert_type(await embed(["a", "b"]), list[float])
    assert_type(await push(ctx, [1]), list[Ok[str] | Err | Retry])
    assert_type(label([b"a"]), list[str | Err])
    assert_type(ctx.jobs[0].deps, Deps)
