"""Jobs in the user's transaction exist if and only if it commits; a task's effects and its
end are there together, or neither is."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from durio import App, Job, State
from durio.app.tasks import TaskWithOptions
from tests.e2e.caller_transactions import MADE, SQLITE, Undo

SECONDS = 10


def app_at(path: Path, driver: str) -> App:
    app = App(f"sqlite:///{path}?driver={driver}", name="shop")

    @app.task(name="add")
    async def add(value: int) -> int:
        return value

    return app


@asynccontextmanager
async def opened(path: Path, driver: str) -> AsyncIterator[App]:
    """An App with its store open, and a table of the user's own in the file."""
    async with app_at(path, driver) as app:
        store: Any = await app.store()
        await store.context.writer.write(lambda tx: tx.db.rows(MADE))
        yield app


async def rows_in(app: App, sql: str) -> list[tuple[Any, ...]]:
    store: Any = await app.store()
    return await store.context.reader.read(lambda db: db.rows(sql))


async def counts(app: App) -> tuple[int, int]:
    """Rows of the user's, and jobs."""
    [(mine,)] = await rows_in(app, "select count(*) from mine")
    [(jobs,)] = await rows_in(app, "select count(*) from job")
    return mine, jobs


def adding(app: App, **options: Any) -> Any:
    return TaskWithOptions[..., Any](app, app.registry.handlers["shop.add"]).options(
        **options
    )


@pytest.mark.proves("M6", "M210")
@pytest.mark.parametrize("kind", SQLITE)
def test_a_job_exists_if_and_only_if_its_transaction_commits(
    tmp_path: Path, kind: str
) -> None:
    driver, opens, prefix = SQLITE[kind]
    path = tmp_path / "app.db"

    async def whole() -> None:
        async with opened(path, driver) as app:
            with suppress(Undo):
                async with opens(f"{prefix}{path}") as tx:
                    job: Job[int] = await adding(app, tx=tx).enqueue(1)
                    assert await counts(app) == (0, 0)  # nobody sees it before
                    raise Undo
            assert await counts(app) == (0, 0)
            async with opens(f"{prefix}{path}") as tx:
                job = await adding(app, tx=tx).enqueue(2)
                jobs = await adding(app, tx=tx).enqueue_many([(3,), (4,)])
            assert await counts(app) == (1, 3)
            async with app.worker():
                assert await job.result(timeout=SECONDS) == 2
                results = [await each.result(timeout=SECONDS) for each in jobs]
                assert results == [3, 4]

    asyncio.run(whole())


@pytest.mark.parametrize("kind", [kind for kind in SQLITE if "Async" not in kind])
def test_a_sync_caller_writes_in_its_own_thread(tmp_path: Path, kind: str) -> None:
    driver, opens, prefix = SQLITE[kind]
    path = tmp_path / "app.db"
    app = app_at(path, driver)
    app.run_sync(app.store())
    store: Any = app.run_sync(app.store())
    app.run_sync(store.context.writer.write(lambda tx: tx.db.rows(MADE)))

    def story(*, undo: bool) -> None:
        """Without a loop; the hosts here never really wait."""
        host = opens(f"{prefix}{path}")
        tx = at_once(host.__aenter__())
        adding(app, tx=tx).enqueue_sync(1)
        with suppress(Undo):
            error = Undo() if undo else None
            at_once(host.__aexit__(type(error) if error else None, error, None))

    story(undo=True)
    assert app.run_sync(counts(app)) == (0, 0)
    story(undo=False)
    assert app.run_sync(counts(app)) == (1, 1)
    app.run_sync(app.close())


def at_once(coro: Any) -> Any:
    try:
        coro.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waited")


@pytest.mark.parametrize(
    "kind", ["apsw", "sqlalchemy.Session", "sqlalchemy.AsyncSession"]
)
def test_workers_hear_of_the_commit_at_once(tmp_path: Path, kind: str) -> None:
    driver, opens, prefix = SQLITE[kind]
    path = tmp_path / "app.db"

    async def whole() -> None:
        async with opened(path, driver) as app:
            app.settings = app.settings.__class__(
                worker=type(app.settings.worker)(poll_seconds=60)
            )
            async with app.worker():
                await (await adding(app).enqueue(0)).result(timeout=SECONDS)
                async with opens(f"{prefix}{path}") as tx:
                    job = await adding(app, tx=tx).enqueue(1)
                assert await job.result(timeout=SECONDS) == 1

    asyncio.run(whole())


@pytest.mark.proves("M206")
@pytest.mark.parametrize("status", [200, 500])
def test_a_route_enqueues_in_its_session(tmp_path: Path, status: int) -> None:
    path = tmp_path / "app.db"
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")

    async def new_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as session, session.begin():
            yield session

    async def whole() -> None:
        async with opened(path, "stdlib") as app:
            api = FastAPI()

            @api.post("/orders")
            async def create(
                session: Annotated[AsyncSession, Depends(new_session)],
            ) -> str:
                await session.execute(text("insert into mine values (1)"))
                job: Job[int] = await adding(app, tx=session).enqueue(1)
                if status != 200:
                    raise HTTPException(status)
                return job.id

            assert await post(api, "/orders") == status
            expected = (1, 1) if status == 200 else (0, 0)
            assert await counts(app) == expected
        await engine.dispose()

    asyncio.run(whole())


async def post(api: FastAPI, path: str) -> int:
    """One request, by the protocol itself."""
    said: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    scope |= {"query_string": b"", "http_version": "1.1", "scheme": "http"}
    scope |= {"server": ("test", 80), "client": ("test", 1), "raw_path": path.encode()}
    await api(scope, receive, send)  # type: ignore[arg-type]
    return int(said[0]["status"])


# --- a task's own transaction

TASKS = """
import os, shutil, subprocess, sys
from durio import App, Context

app = App(os.environ["SHOP_URL"], name="shop")
SHOTS = os.environ.get("SHOP_SHOTS")
FILE = os.environ["SHOP_FILE"]
shots = []

def shoot(*_):
    # What a kill would leave now; another process copies, for to close a descriptor
    # of the file would drop this one's locks.
    if SHOTS:
        shots.append(f"{SHOTS}/{len(shots):03}")
        os.mkdir(shots[-1])
        subprocess.run(["cp", FILE, FILE + "-wal", shots[-1]], check=True)
    return True

def die_at(nth):
    left = [nth]
    def look(*_):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), 9)
        return True
    return look

def trace(tx, look):
    if hasattr(tx, "exec_trace"):
        tx.exec_trace = look
    else:
        tx.set_trace_callback(look)

@app.task
async def mail(n: int) -> int:
    return n

@app.task
async def pay(ctx: Context, n: int) -> int:
    async with ctx.transaction() as tx:
        nth = os.environ.get("SHOP_DIES_AT")
        trace(tx, die_at(int(nth)) if nth else shoot)
        tx.execute("insert into mine values (?)", (n,))
        await mail.options(tx=tx).enqueue(n)
        ctx.result(n * 10)
    shoot()
    return n * 10
"""


def load(monkeypatch: pytest.MonkeyPatch, path: Path, url: str) -> Any:
    """The tasks above, as a module of this process."""
    monkeypatch.setenv("SHOP_URL", url)
    monkeypatch.setenv("SHOP_FILE", str(path))
    names: dict[str, Any] = {"__name__": "shop_tasks"}
    exec(compile(TASKS, "shop_tasks.py", "exec"), names)  # noqa: S102
    return names


async def prepared(app: App) -> None:
    store: Any = await app.store()
    await store.context.writer.write(lambda tx: tx.db.rows(MADE))


async def seen_in(app: App) -> tuple[list[Any], list[Any], list[Any]]:
    """The user's rows, the states of the payment with its result, the mails."""
    mine = await rows_in(app, "select n from mine")
    pays = await rows_in(app, "select state, result from job where task = 'shop.pay'")
    mails = await rows_in(app, "select state from job where task = 'shop.mail'")
    return mine, pays, mails


RUNNING, DONE = 3, 4
NEITHER = ([], [(RUNNING, None)], [])
BOTH = ([(7,)], [(DONE, b"70")], [(2,)])


@pytest.mark.proves("M95")
@pytest.mark.parametrize("driver", ["apsw", "stdlib"])
def test_a_crash_at_every_statement_leaves_both_or_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    path, shots = tmp_path / "app.db", tmp_path / "shots"
    shots.mkdir()
    monkeypatch.setenv("SHOP_SHOTS", str(shots))
    names = load(monkeypatch, path, f"sqlite:///{path}?driver={driver}")
    app: App = names["app"]

    async def pay() -> None:
        async with app:
            await prepared(app)
            job = await names["pay"].enqueue(7)
            async with app.worker(queues=["default"]):
                assert await job.result(timeout=SECONDS) == 70

    async def left_at(shot: str) -> tuple[list[Any], list[Any], list[Any]]:
        async with App(f"sqlite:///{shot}/app.db?driver={driver}") as copy:
            return await seen_in(copy)

    asyncio.run(pay())
    taken = list(names["shots"])
    found = [asyncio.run(left_at(shot)) for shot in taken]
    assert len(taken) >= 6, "too few statements were looked at"
    assert found[0] == NEITHER
    assert found[-1] == BOTH
    assert all(each in (NEITHER, BOTH) for each in found), found
    assert found.count(BOTH) == 1  # the commit alone decides


KILLED = """
import asyncio, sys
from shop_tasks import app

async def main():
    async with app, app.worker():
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("nth", [1, 4, 8])
def test_a_kill_inside_the_block_is_as_if_it_never_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    path = tmp_path / "app.db"
    names = load(monkeypatch, path, f"sqlite:///{path}")
    app: App = names["app"]
    (tmp_path / "shop_tasks.py").write_text(TASKS, encoding="utf-8")

    async def send() -> str:
        async with app:
            await prepared(app)
            return (await names["pay"].enqueue(7)).id

    job_id = asyncio.run(send())
    killed = subprocess.run(
        [sys.executable, "-c", KILLED],
        cwd=tmp_path,
        env={**os.environ, "SHOP_DIES_AT": str(nth), "PYTHONPATH": str(tmp_path)},
        check=False,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL

    async def again() -> None:
        async with app:
            assert (await seen_in(app))[0] == []
            async with app.worker():
                job = await app.job(job_id)
                assert await job.result(timeout=30) == 70
                status = await job.status()
                assert (status.state, status.attempt) == (State.DONE, 2)
            mine, _, mails = await seen_in(app)
            assert (mine, len(mails)) == ([(7,)], 1)

    asyncio.run(again())
