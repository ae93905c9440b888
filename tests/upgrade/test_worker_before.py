"""A store is upgraded while a worker of the commit before plans runs on it.

That worker goes on with plain jobs. Plans are refused until it has left, and afterwards it
cannot come back.
"""

import asyncio
import fcntl
import json
import os
import signal
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from durio import Job
from durio.errors import WorkersTooOld
from durio.keys import while_active, while_waiting, window
from durio.ports import worker_protocol
from tests.conftest import Require
from tests.e2e.workers import Process, wait_until
from tests.servers.postgres import NEWEST, programs
from tests.upgrade.command_line import durio
from tests.upgrade.conftest import PACKAGES, Servers
from tests.upgrade.restore import STORES
from tests.upgrade.shop import LASTING, NAME, Shop
from tests.upgrade.worker_before import make_app

ROOT = Path(__file__).parents[2]
SECONDS = 30.0
# What the old worker's jobs return, and those that it leaves to a worker of today.
BY_THE_OLD = {"running": "found", "ready": 3, "ready_key": 4}
BY_THE_NEW = {"scheduled": 5, "unserved": 6, "dead": "A-1", "dead_key": "A-2"}


class Before:
    """A store, and the processes of the earlier commit on it."""

    def __init__(self, url: str, folder: Path, package: Path) -> None:
        self.url, self.folder, self.package = url, folder, package
        self.processes: list[Process] = []

    def start(self) -> Process:
        """The first start fills the store, too."""
        environ = {
            **os.environ,
            "PYTHONPATH": f"{self.package}{os.pathsep}{ROOT}",
            "DURIO_URL": self.url,
            "DURIO_WORKER__CONCURRENCY": "1",
            "DURIO_WORKER__PREFETCH": "0",
        }
        module = "tests.upgrade.worker_before"
        command = [sys.executable, "-m", module, str(self.folder)]
        log = self.folder / f"{len(self.processes)}.log"
        self.processes.append(Process(command, log, environ))
        return self.processes[-1]

    def named(self) -> dict[str, str]:
        return json.loads((self.folder / "named.json").read_text())

    def stop_past_its_lease(self, worker: Process) -> None:
        """Stop it outside of transactions, and end its lease as if time had passed."""
        if self.url.startswith("sqlite"):
            path = self.url.removeprefix("sqlite:///")
            with (
                Path(f"{path}-durio", "writer.lock").open("rb") as lock,
                closing(apsw.Connection(path)) as db,
            ):
                fcntl.flock(lock, fcntl.LOCK_EX)
                worker.stop()
                db.execute("update worker set expires_at = 0")
        else:
            worker.stop()
            with psycopg.connect(self.url) as connection:
                connection.execute("lock table durio.worker in exclusive mode")
                connection.execute("update durio.worker set expires_at = 0")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before_plans")
    with tarfile.open(STORES / "before_plans.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


@pytest.fixture(params=["sqlite", NEWEST], ids=str)
def before(
    request: pytest.FixtureRequest,
    require: Require,
    servers: Servers,
    package: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Before]:
    """A worker at work on its store, which is upgraded."""
    monkeypatch.setattr(worker_protocol, "WAIT_SECONDS", 0.0)
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'shop.db'}"
    else:
        require(programs(NEWEST), PACKAGES[NEWEST])
        server, name = servers.server(NEWEST), servers.new_database()
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f'create database "{name}"'.encode())
        url = server.url(name)
    before = Before(url, tmp_path, package)
    before.start()
    wait_until((tmp_path / "go.begun").exists, SECONDS, "the last job is running")
    durio(url, "migrate")
    yield before
    for process in before.processes:
        process.clear_away()


async def results(shop: Shop, named: dict[str, str], names: Any) -> dict[str, Any]:
    jobs = {name: await shop.app.job(named[name]) for name in names}
    return {name: await job.result(timeout=SECONDS) for name, job in jobs.items()}


async def check_states(shop: Shop, named: dict[str, str]) -> None:
    for name, job_id in named.items():
        wanted = "ready" if name == "unserved" else name.partition("_")[0]
        assert (await (await shop.app.job(job_id)).status()).state == wanted, name


async def check_keys(shop: Shop, named: dict[str, str], names: list[str]) -> None:
    """Calls with the same keys give the same jobs."""
    held = shop.app.named("wait_for_file").options(key="run", unique=while_active)
    once = shop.forget.options(queue="default", key="A-2", unique=window(LASTING))
    add = shop.add.options
    calls = {
        "dead_key": lambda: once.enqueue("A-2"),
        "done_key": lambda: add(key="done", unique=window(LASTING)).enqueue(1, 1),
        "running": lambda: held.enqueue("any"),
        "ready_key": lambda: add(key="wait", unique=while_waiting).enqueue(3, 1),
    }
    for name in names:
        job: Job[Any] = await calls[name]()
        assert (job.id, job.created) == (named[name], False), name


def test_plans_begin_when_the_old_worker_has_left(before: Before) -> None:
    (old,), named = before.processes, before.named()
    (worker,) = durio(before.url, "workers", "ls")["workers"]
    shop = make_app(before.url, is_healthy=True)
    plan = shop.add.s(1, 2) | shop.add.s(3)

    async def beside_it() -> None:
        async with shop.app:
            await check_states(shop, named)
            keyed = ["dead_key", "done_key", "running", "ready_key"]
            await check_keys(shop, named, keyed)
            new = await shop.add.enqueue(6, 1)
            count = await shop.app.jobs().count()
            with pytest.raises(WorkersTooOld) as refused:
                await plan.enqueue()
            assert worker["name"] in str(refused.value)
            assert await shop.app.jobs().count() == count
            assert await (await shop.app.store()).list_records(f"plan:{NAME}") == []
            (before.folder / "go").touch()
            assert await results(shop, named, BY_THE_OLD) == BY_THE_OLD
            assert await new.result(timeout=SECONDS) == 7

    asyncio.run(beside_it())
    old.send(signal.SIGTERM)
    assert old.ended() == 0, old.log

    async def after_it() -> None:
        async with shop.app:
            handle = await plan.enqueue()
            await (await shop.app.job(named["scheduled"])).run_now()
            for name in ("dead", "dead_key"):
                await (await shop.app.job(named[name])).retry()
            async with shop.app.worker():
                assert await handle.result(timeout=SECONDS) == 6
                assert await results(shop, named, BY_THE_NEW) == BY_THE_NEW
            await check_keys(shop, named, ["dead_key", "done_key"])

    asyncio.run(after_it())
    again = before.start()  # it cannot come back
    assert again.ended() != 0
    assert "newer than this code" in again.log, again.log


def test_an_old_worker_that_was_away_claims_nothing(before: Before) -> None:
    """It stands still until its lease is over and a plan is stored, and goes on then."""
    (old,), named = before.processes, before.named()
    (before.folder / "go").touch()
    shop = make_app(before.url, is_healthy=True)

    async def story() -> None:
        async with shop.app:
            assert await results(shop, named, BY_THE_OLD) == BY_THE_OLD
            before.stop_past_its_lease(old)
            handle = await (shop.add.s(1, 2) | shop.add.s(3)).enqueue()
            plain = await shop.add.enqueue(6, 1)
            old.go_on()
            wait_until(lambda: "worker.fenced" in old.log, SECONDS, "its lease is lost")
            assert "too old for the plans of its App: upgrade Durio" in old.log
            assert (await plain.status()).state == "ready"
            assert await handle.counts() == {"ready": 1, "blocked": 1}
            async with shop.app.worker():
                assert await handle.result(timeout=SECONDS) == 6
                assert await plain.result(timeout=SECONDS) == 7

    asyncio.run(story())
