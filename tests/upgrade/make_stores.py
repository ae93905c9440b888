"""Make the stores that `test_upgrade.py` opens, with the release that is checked out.

A store of every release stays in `stores/`, so that later code is tested with it. To add
one, check out the release in a folder whose path may be seen (tracebacks contain it),
put this folder in its `tests/`, and run it there:

    git worktree add /srv/shop COMMIT
    cp -r tests/upgrade /srv/shop/tests/
    cd /srv/shop
    PYTHONPATH=src python -m tests.upgrade.make_stores LABEL

Four files appear in `stores/`: LABEL_sqlite.db, LABEL_postgres.sql, and a LABEL_*.json for
each, with the ids of its jobs by name and all that the command line prints about it. The
dump comes from PostgreSQL 15 (Debian's), so 15 and all later servers can read it.

`stores/before_plans.tar.xz` has the package of the last commit before plans. With it
`test_worker_before.py` makes its store, and runs a worker of that commit:

    git archive 8cc810c src/durio | xz -9e > tests/upgrade/stores/before_plans.tar.xz
"""

import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import psycopg

from durio import Job
from durio.keys import debounce, replace, while_active, while_waiting, window
from tests.checkout import ROOT, commit
from tests.servers.postgres import OLDEST, OWNER, PostgresServer
from tests.upgrade.command_line import all_answers, durio
from tests.upgrade.shop import LASTING, Shop, make_shop

STORES = Path(__file__).parent / "stores"
HOST = "shop-1"
BY = ("--by", "ann")
WAIT_SECONDS = 120.0
LOOK_SECONDS = 0.05
PRIORITIES = (0, 2, 5, 7, 9)
BOUND_BY_HAND = "3"
FAR = datetime(2090, 1, 1, tzinfo=UTC)
FINAL = {"done", "dead", "cancelled"}

Named = dict[str, str]  # the id of a job by its name in these tests


def main(label: str) -> None:
    platform.node = lambda: HOST  # a fixture names no real machine
    STORES.mkdir(exist_ok=True)
    make_sqlite(label)
    make_postgres(label)


def make_sqlite(label: str) -> None:
    with tempfile.TemporaryDirectory(prefix="durio-upgrade-") as folder:
        path = Path(folder) / "shop.db"
        url = f"sqlite:///{path}"
        named = fill(url)
        write_answers(STORES / f"{label}_sqlite.json", url, named)
        database = apsw.Connection(str(path))
        database.execute("pragma wal_checkpoint(truncate)").fetchall()
        database.close()
        (STORES / f"{label}_sqlite.db").write_bytes(path.read_bytes())


def make_postgres(label: str) -> None:
    with PostgresServer(OLDEST, durable=False) as server:
        url = server.url()
        durio(url, "migrate")
        named = fill(url, has_days=lambda: count_days(url) > 0)
        write_answers(STORES / f"{label}_postgres.json", url, named)
        command = [str(server.programs / "pg_dump"), "--host", str(server.folder)]
        command += ["--port", str(server.port), "--username", OWNER]
        command += ["--no-owner", "--no-privileges", "--schema", "durio", "postgres"]
        dumped = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = dumped.stdout.splitlines(keepends=True)
        # Only the newest releases of psql know this command.
        kept = [s for s in lines if not s.startswith(("\\restrict", "\\unrestrict"))]
        (STORES / f"{label}_postgres.sql").write_text("".join(kept))


def count_days(url: str) -> int:
    """Days of history: a leader makes the first ones when it prunes."""
    with psycopg.connect(url) as connection:
        sql = (
            "select count(*) from pg_inherits where inhparent = 'durio.hist'::regclass"
        )
        row = connection.execute(sql).fetchone()
        assert row is not None
        return row[0] - 1  # one is for all other days


def write_answers(path: Path, url: str, named: Named) -> None:
    content = {"made_by": commit(), "named": named, "answers": all_answers(url)}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


# --- what happens in the shop


def fill(url: str, has_days: Callable[[], bool] = lambda: True) -> Named:
    shop = make_shop(url)
    named = asyncio.run(enqueue(shop, for_the_worker))
    worker = subprocess.Popen(
        [sys.executable, "-m", __spec__.name, "--worker", url], cwd=ROOT
    )
    try:
        ended = [n for n in named if n.startswith(("done", "dead", "discarded"))]
        wait_for(url, [named[name] for name in ended], is_final)
        act_by_hand(url, named)
        wait_until(has_days, "the days of history are made")
        wait_until(lambda: has_vitals(url), "the worker has renewed its lease")
        wait_for(url, [named["dead_twice"]], is_final)
        named |= asyncio.run(enqueue(make_shop(url), to_be_cut_short))
        running = [named[name] for name in named if name.startswith("running")]
        wait_for(url, running, lambda job: job["progress"] is not None)
        wait_for(url, [named["retrying"]], lambda job: job["attempts"])
        worker.send_signal(signal.SIGSTOP)
        leave_unanswered(url, named)
    finally:
        worker.kill()
        worker.wait()
    named |= asyncio.run(enqueue(make_shop(url), to_wait))
    durio(url, "queues", "pause", "letters", *BY)
    durio(url, "queues", "limit", "parcels", "--maxsize", BOUND_BY_HAND, *BY)
    wait_until(lambda: lease_seconds_left(url) <= 0, "the lease of the worker is over")
    check(url, named)
    return named


async def enqueue(shop: Shop, ask: Callable[[Shop], Any]) -> Named:
    async with shop.app:
        jobs: dict[str, Job[Any]] = await ask(shop)
        return {name: job.id for name, job in jobs.items()}


async def for_the_worker(shop: Shop) -> dict[str, Job[Any]]:
    """Jobs that end, and one that no worker of this shop can run."""
    keep = shop.add.options(retention=LASTING, result_ttl=LASTING)
    rich = shop.describe.options(meta={"tenant": "Zoë", "trace": [1, 2]}, priority=8)
    once = shop.add.options(key="sum-56", unique=window(LASTING))
    pay_once = shop.charge.options(key="A-3", unique=window(LASTING))
    return {
        "done_plain": await shop.add.enqueue(1, 2),
        "done_rich": await rich.enqueue("Grüße, 世界 \U0001f4e6", tags=["a", "b"]),
        "done_large": await shop.describe.enqueue("long text " * 120, tags=[]),
        "done_kept": await keep.enqueue(3, 4),
        "done_window": await once.enqueue(5, 6),
        "done_returns": await shop.add.options(queue="returns").enqueue(7, 8),
        "dead_exhausted": await shop.charge.enqueue("A-1", 100),
        "dead_permanent": await shop.forget.enqueue("A-2"),
        "dead_window": await pay_once.enqueue("A-3", 300),
        "dead_twice": await shop.charge.enqueue("A-4", cents=400),
        "discarded": await shop.forget.enqueue("A-5"),
        "cancelled": await shop.add.options(delay="1d").enqueue(9, 10),
        "parked": await shop.invoice.enqueue("I-1"),
    }


def act_by_hand(url: str, named: Named) -> None:
    durio(url, "jobs", "cancel", named["cancelled"], *BY)
    durio(url, "dead", "retry", named["dead_twice"], "--yes", *BY)
    durio(url, "dead", "discard", named["discarded"], "--yes", *BY)
    durio(url, "queues", "drain", "returns", "--timeout", "30s", *BY)


async def to_be_cut_short(shop: Shop) -> dict[str, Job[Any]]:
    """Jobs that run or wait for a retry when their worker is killed."""
    active = shop.hold.options(key="R-2", unique=while_active)
    once = shop.hold.options(key="R-4", unique=window(LASTING))
    return {
        "running_plain": await shop.hold.enqueue("R-1"),
        "running_active": await active.enqueue("R-2"),
        "running_cancel": await shop.hold.enqueue("R-3"),
        "running_window": await once.enqueue("R-4"),
        "retrying": await shop.flaky.enqueue("F-1"),
    }


def leave_unanswered(url: str, named: Named) -> None:
    """A stopped worker gets a cancel and a command."""
    durio(url, "jobs", "cancel", named["running_cancel"], *BY)
    worker = str(durio(url, "workers", "ls")["workers"][0]["id"])
    try:
        durio(url, "workers", "drain", worker, "--timeout", "0.1", *BY)
    except AssertionError as error:
        assert "no answer" in str(error), error  # noqa: PT017


async def to_wait(shop: Shop) -> dict[str, Job[Any]]:
    """Jobs that no worker of this release begins."""
    add = shop.add.options
    jobs = {
        f"ready_{priority}": await add(priority=priority).enqueue(priority, 1)
        for priority in PRIORITIES
    }
    small = add(timeout=30, retry=1, meta={"tenant": "b"}, retention=LASTING)
    return jobs | {
        "ready_mail": await add(queue="mail").enqueue(20, 1),
        "ready_rich": await shop.describe.enqueue("naïve", tags=["c"]),
        "ready_options": await small.enqueue(21, b=1),
        "due": await add(delay=1).enqueue(22, 1),
        "far": await add(at=FAR).enqueue(23, 1),
        "key_waiting": await add(key="w", unique=while_waiting).enqueue(24, 1),
        "key_active": await add(key="a", unique=while_active).enqueue(25, 1),
        "key_replace": await add(key="r", unique=replace).enqueue(26, 1),
        "key_debounce": await add(key="d", unique=debounce(LASTING)).enqueue(27, 1),
        "key_window": await add(key="t", unique=window(LASTING)).enqueue(28, 1),
        "key_day": await add(key="day").enqueue(29, 1),
        "paused_1": await add(queue="letters").enqueue(30, 1),
        "paused_2": await add(queue="letters", priority=9).enqueue(31, 1),
        "parcel_1": await add(queue="parcels").enqueue(32, 1),
        "parcel_2": await add(queue="parcels").enqueue(33, 1),
    }


def check(url: str, named: Named) -> None:
    """The states must be as their names say."""
    states = {job["id"]: job["state"] for job in durio(url, "jobs", "ls")["jobs"]}
    wanted = {"done": "done", "dead": "dead", "cancelled": "cancelled"}
    wanted |= {"running": "running", "parked": "scheduled", "retrying": "scheduled"}
    wanted |= {"due": "scheduled", "far": "scheduled", "discarded": None}
    for name, job_id in named.items():
        want = wanted.get(name.partition("_")[0], "ready")
        want = "scheduled" if name == "key_debounce" else want
        state = states.get(job_id)
        if name == "parked" and state == "ready":
            continue  # it is due again
        assert state == want, f"{name} is {state}"


# --- the worker, and waiting


async def work(url: str) -> None:
    shop = make_shop(url, is_healthy=False, knows_invoices=False)
    async with shop.app.worker():
        await asyncio.Event().wait()


def is_final(job: dict[str, Any]) -> bool:
    return job["state"] in FINAL


def wait_for(
    url: str, job_ids: list[str], holds: Callable[[dict[str, Any]], Any]
) -> None:
    for job_id in job_ids:
        wait_until(lambda i=job_id: holds(durio(url, "jobs", "show", i)), job_id)


def has_vitals(url: str) -> bool:
    return all(w["rss_bytes"] for w in durio(url, "workers", "ls")["workers"])


def lease_seconds_left(url: str) -> float:
    return max(w["lease_seconds_left"] for w in durio(url, "workers", "ls")["workers"])


def wait_until(holds: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < end, f"not within {WAIT_SECONDS:g} s: {what}"
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        platform.node = lambda: HOST
        asyncio.run(work(sys.argv[2]))
    else:
        os.environ.pop("DURIO_URL", None)
        main(sys.argv[1])
