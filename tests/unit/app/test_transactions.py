"""ctx.transaction(): what a task wrote, its result and its end, in one commit."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from durio import App, Context, Retry, State
from durio.errors import JobDead, StoreUnavailable, UsageError
from durio.stores.sqlite import transactions
from durio.stores.sqlite.transactions import SqliteOwnTransaction
from durio.telemetry.emit import JobEvent
from tests.unit.app.app_harness import finished, in_state, real

pytestmark = pytest.mark.slow  # real processes, servers or seconds

SECONDS = 10
MADE = "create table mine (n integer)"
INSERT = "insert into mine values (?)"


class RecordedEvents:
    """What was told, by name."""

    def __init__(self) -> None:
        self.events: list[JobEvent] = []

    def on_event(self, name: str, *_: Any) -> None: ...

    def on_jobs(self, events: list[JobEvent]) -> None:
        self.events += events

    def wants(self, _meaning: object) -> bool:
        return True

    def names(self) -> list[str]:
        return [e.name for e in self.events if e.name != "job.started"]


class Shop:
    """An App on a file, with a table of the user's own beside the jobs."""

    def __init__(self, app: App, store: Any) -> None:
        self.app = app
        self.store = store
        self.heard = RecordedEvents()
        app.emit.subscribers.append(self.heard)

    def task(self, function: Any = None, **options: Any) -> Any:
        if function is None:
            return lambda f: self.task(f, **options)
        return self.app.task(name=function.__name__, **options)(function)

    async def mine(self) -> list[int]:
        rows = await self.store.context.reader.read(
            lambda db: db.rows("select n from mine")
        )
        return [n for (n,) in rows]

    async def jobs(self) -> int:
        return await self.store.context.reader.read(
            lambda db: db.value("select count(*) from job")
        )


@asynccontextmanager
async def opened(path: Path, driver: str = "apsw") -> AsyncIterator[Shop]:
    async with App(f"sqlite:///{path}?driver={driver}", name="shop") as app:
        store: Any = await app.store()
        await store.context.writer.write(lambda tx: tx.db.rows(MADE))
        yield Shop(app, store)


def on_file(body: Callable[[Shop], Any]) -> Callable[..., None]:
    """A test on a real file, by the machine's clock."""

    @pytest.mark.parametrize("driver", ["apsw", "stdlib"])
    def run(tmp_path: Path, driver: str) -> None:
        async def whole() -> None:
            async with asyncio.timeout(60), opened(tmp_path / "a.db", driver) as shop:
                await body(shop)

        asyncio.run(whole())

    run.__name__ = body.__name__
    run.__doc__ = body.__doc__
    return run


@on_file
async def test_rows_result_and_end_come_together(shop: Shop) -> None:
    @shop.task
    async def pay(ctx: Context, n: int) -> int:
        async with ctx.transaction() as tx:
            tx.execute(INSERT, (n,))
            return ctx.result(n * 10)

    job = await pay.enqueue(7)
    async with shop.app.worker():
        assert await job.result(timeout=SECONDS) == 70
    assert await shop.mine() == [7]
    assert shop.heard.names() == ["job.done"]


@on_file
async def test_a_raise_inside_leaves_nothing(shop: Shop) -> None:
    @shop.task(retry=Retry(1, base=60))
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            tx.execute(INSERT, (1,))
            await pay.options(tx=tx).enqueue()
            raise ValueError("no")

    job = await pay.enqueue()
    async with shop.app.worker():
        await in_state(job, State.SCHEDULED)
    assert (await shop.mine(), await shop.jobs()) == ([], 1)
    assert shop.heard.names() == ["job.retried"]


@on_file
async def test_a_raise_afterwards_changes_nothing(shop: Shop) -> None:
    after: list[str] = []

    @shop.app.hooks.after
    async def note(event: Any) -> None:
        after.append(event.task)

    @shop.task
    async def pay(ctx: Context) -> int:
        async with ctx.transaction() as tx:
            tx.execute(INSERT, (1,))
            ctx.result(5)
        raise ValueError("too late")

    job = await pay.enqueue()
    async with shop.app.worker():
        assert await job.result(timeout=SECONDS) == 5
    assert (await job.status()).state is State.DONE
    assert (await job.status()).attempt == 1
    assert shop.heard.names() == ["job.done", "job.faltered"]
    assert "too late" in shop.heard.events[-1].error
    assert after == ["shop.pay"]


@on_file
async def test_a_promised_result_must_be_given_inside(shop: Shop) -> None:
    @shop.task
    async def pay(ctx: Context) -> int:
        async with ctx.transaction() as tx:
            tx.execute(INSERT, (1,))
        return 5

    job = await pay.enqueue()
    async with shop.app.worker():
        with pytest.raises(JobDead) as dead:
            await job.result(timeout=SECONDS)
    assert dead.value.reason == "bad_result"
    assert "return ctx.result(value)" in (await job.status()).last_error.message  # type: ignore[union-attr]
    assert await shop.mine() == []


@on_file
async def test_a_value_that_comes_too_late_is_told_about(shop: Shop) -> None:
    @shop.task
    async def pay(ctx: Context):
        async with ctx.transaction() as tx:
            tx.execute(INSERT, (1,))
        return 5

    job = await pay.enqueue()
    async with shop.app.worker():
        assert await job.result(timeout=SECONDS) is None
    assert shop.heard.names() == ["job.done", "job.faltered"]


@on_file
async def test_a_result_that_cannot_be_stored_undoes_it(shop: Shop) -> None:
    @shop.task
    async def pay(ctx: Context) -> Any:
        async with ctx.transaction() as tx:
            tx.execute(INSERT, (1,))
            return ctx.result(object())

    job = await pay.enqueue()
    async with shop.app.worker():
        assert (await finished(job)).state is State.DEAD
    assert await shop.mine() == []


@on_file
async def test_one_block_per_attempt(shop: Shop) -> None:
    said: list[str] = []

    @shop.task
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            try:
                async with ctx.transaction():
                    pass
            except UsageError as error:
                said.append(error.what)
            tx.execute(INSERT, (1,))
        async with ctx.transaction():
            pass

    job = await pay.enqueue()
    async with shop.app.worker():
        assert (await finished(job)).state is State.DONE
    assert "open already" in said[0]
    assert "this job is done" in shop.heard.events[-1].error
    assert await shop.mine() == [1]


@on_file
async def test_an_enqueue_beside_it_is_refused(shop: Shop) -> None:
    @shop.task(retry=0)
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            tx.execute(INSERT, (1,))
            await pay.enqueue()

    job = await pay.enqueue()
    async with shop.app.worker():
        with pytest.raises(JobDead) as dead:
            await job.result(timeout=SECONDS)
    assert "options(tx=tx)" in dead.value.error.message
    assert (await shop.mine(), await shop.jobs()) == ([], 1)


@on_file
async def test_a_commit_by_hand_is_refused(shop: Shop) -> None:
    @shop.task(retry=0)
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            tx.execute("commit")

    job = await pay.enqueue()
    async with shop.app.worker():
        with pytest.raises(JobDead) as dead:
            await job.result(timeout=SECONDS)
    assert "committed or rolled back itself" in dead.value.error.message


@on_file
async def test_sync_tasks_write_with(shop: Shop) -> None:
    @shop.task
    def pay(ctx: Context, n: int) -> int:
        with ctx.transaction() as tx:
            tx.execute(INSERT, (n,))
            pay_next.options(tx=tx).enqueue_sync(n + 1)
            return ctx.result(n)

    @shop.task
    def pay_next(n: int) -> int:
        return n

    job = await pay.enqueue(3)
    async with shop.app.worker():
        assert await job.result(timeout=SECONDS) == 3
    assert (await shop.mine(), await shop.jobs()) == ([3], 2)


@on_file
async def test_with_alone_does_not_block_the_loop(shop: Shop) -> None:
    @shop.task(retry=0)
    async def pay(ctx: Context) -> None:
        with ctx.transaction():
            pass

    job = await pay.enqueue()
    async with shop.app.worker():
        with pytest.raises(JobDead) as dead:
            await job.result(timeout=SECONDS)
    assert "async with" in dead.value.error.message


@on_file
async def test_a_fenced_attempt_leaves_nothing(shop: Shop) -> None:
    @shop.task(retry=0)
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            tx.execute(INSERT, (1,))
            tx.execute("update job set claim_no = claim_no + 1")  # as a rescue would

    job = await pay.enqueue()
    async with shop.app.worker():
        await finished(job)
    assert await shop.mine() == []
    assert "LeaseLost" in [e.error_type for e in shop.heard.events]


@on_file
async def test_a_cancel_afterwards_is_too_late(shop: Shop) -> None:
    outside, seen = asyncio.Event(), asyncio.Event()

    @shop.task
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            tx.execute(INSERT, (2,))
        outside.set()
        await seen.wait()

    async with shop.app.worker():
        job = await pay.enqueue()
        await outside.wait()
        assert (await job.status()).state is State.DONE
        assert await job.cancel() is State.DONE
        seen.set()
    assert await shop.mine() == [2]
    assert shop.heard.names() == ["job.done"]


@on_file
async def test_the_hard_limit_undoes_it(shop: Shop) -> None:
    @shop.task(retry=0, timeout=(0.1, 0.2))
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            tx.execute(INSERT, (1,))
            while not seen.is_set():  # whatever is thrown at it
                with suppress(asyncio.CancelledError):
                    await seen.wait()

    seen = asyncio.Event()
    job = await pay.enqueue()
    async with shop.app.worker():
        async with asyncio.timeout(5):  # others write at once, while it hangs on
            assert (await finished(job)).state is State.DEAD
        seen.set()
    assert await shop.mine() == []


def test_others_get_their_turn_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "OWN_SECONDS_MAX", 0.2)

    async def whole() -> None:
        async with opened(tmp_path / "a.db") as shop:

            @shop.task(retry=0)
            async def pay(ctx: Context) -> None:
                async with ctx.transaction() as tx:
                    tx.execute(INSERT, (1,))
                    await shop.app.clock.sleep(0.6)

            job = await pay.enqueue()
            async with shop.app.worker():
                with pytest.raises(JobDead) as dead:
                    await job.result(timeout=SECONDS)
            assert "open for more than" in dead.value.error.message
            assert await shop.mine() == []

    asyncio.run(whole())


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_that_nobody_answers_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, landed: bool
) -> None:
    """Whether it landed the store knows: the job is done, or runs again."""
    commit = SqliteOwnTransaction.commit
    calls: list[int] = []

    async def unheard(self: SqliteOwnTransaction, outcome: Any) -> None:
        calls.append(1)
        if len(calls) > 1:
            await commit(self, outcome)
            return
        if landed:
            await commit(self, outcome)
        raise StoreUnavailable("the reply is lost", unknown=True)

    monkeypatch.setattr(SqliteOwnTransaction, "commit", unheard)

    async def whole() -> None:
        async with opened(tmp_path / "a.db") as shop:

            @shop.task(retry=Retry(1, base=0.01))
            async def pay(ctx: Context) -> int:
                async with ctx.transaction() as tx:
                    tx.execute(INSERT, (1,))
                    return ctx.result(9)

            job = await pay.enqueue()
            async with shop.app.worker():
                assert await job.result(timeout=SECONDS) == 9
            assert await shop.mine() == [1]
            assert len(calls) == (1 if landed else 2)
            told_of = ["job.done"] if landed else ["job.retried", "job.done"]
            assert shop.heard.names() == told_of

    asyncio.run(whole())


@real
async def test_memory_has_none(app: App) -> None:
    @app.task(name="pay", retry=0)
    async def pay(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    job = await pay.enqueue()
    async with app.worker():
        with pytest.raises(JobDead) as dead:
            await job.result(timeout=SECONDS)
    assert "sqlite:///jobs.db" in dead.value.error.message


def test_a_plain_call_has_none() -> None:
    app = App("sqlite:///:memory:")

    @app.task(name="pay")
    async def pay(ctx: Context) -> int:
        async with ctx.transaction():
            pass
        return ctx.result(1)

    with pytest.raises(UsageError, match="a plain call has no job"):
        asyncio.run(pay())


def test_a_result_is_handed_back() -> None:
    app = App("sqlite:///:memory:")

    @app.task(name="pay")
    async def pay(ctx: Context) -> int:
        return ctx.result(1)

    assert asyncio.run(pay()) == 1


@on_file
async def test_a_result_that_does_not_fit_is_refused_before_the_commit(
    shop: Shop,
) -> None:
    @shop.task
    async def pay(ctx: Context, n: int) -> int:
        async with ctx.transaction() as tx:
            tx.execute(INSERT, (n,))
            return ctx.result("seven")  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    job = await pay.enqueue(7)
    async with shop.app.worker():
        with pytest.raises(JobDead, match="returned 'seven'") as dead:
            await job.result(timeout=SECONDS)
    assert dead.value.reason == "bad_result"
    assert await shop.mine() == []
