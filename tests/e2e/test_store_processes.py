"""One file, several processes: exclusive claims, crashes, forks, stalls, doorbells."""

import asyncio
import math
import os
import signal
from pathlib import Path

import pytest

from durio.model.errors import StoreStalled, StoreUnavailable
from durio.model.job import DONE
from durio.model.outcome import Outcome
from durio.ports.browse import Query
from durio.ports.exchange import Lane
from durio.ports.upkeep import DeadOnThisHost
from durio.stores.sqlite.store import SqliteStore
from tests.unit.stores.sqlite_harness import (
    CLOCK,
    INFO,
    LANE,
    lines_of,
    new_job,
    run_on_store,
    start,
)

CLAIM_ALL = """
async def story(store):
    worker = await store.register(INFO, 30)
    outcomes, idle = [], 0
    while idle < 3:
        told = await store.exchange(worker, outcomes, [Lane(LANE, 7)], 7)
        assert not told.rejected
        for claim in told.claims:
            print(claim.id.hex())
        outcomes = [Outcome(c.id, c.claim_no, 0) for c in told.claims]
        idle = 0 if told.claims else idle + 1
from durio.ports.exchange import Lane
from durio.model.outcome import Outcome
run_on_store(Path(sys.argv[1]), story)
"""


def test_claims_are_exclusive_among_processes(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    jobs = [new_job() for _ in range(600)]

    async def given(store: SqliteStore) -> None:
        await store.enqueue(jobs)

    async def then(store: SqliteStore) -> None:
        states = await store.states([job.id for job in jobs])
        assert set(states.values()) == {DONE}

    run_on_store(path, given)
    workers = [start(CLAIM_ALL, path) for _ in range(4)]
    claimed = [line for worker in workers for line in lines_of(worker)]
    assert sorted(claimed) == sorted(job.id.hex() for job in jobs)
    run_on_store(path, then)


ENQUEUE_FOREVER = """
async def story(store):
    while True:
        jobs = [new_job() for _ in range(20)]
        await store.enqueue(jobs)
        for job in jobs:
            print(job.id.hex())
        sys.stdout.flush()
run_on_store(Path(sys.argv[1]), story)
"""


@pytest.mark.parametrize("commits", [1, 5, 23])
def test_kill_9_among_commits_loses_nothing_accepted(
    tmp_path: Path, commits: int
) -> None:
    path = tmp_path / "jobs.db"
    process = start(ENQUEUE_FOREVER, path)
    assert process.stdout is not None
    accepted = [process.stdout.readline().strip() for _ in range(commits * 20)]
    process.kill()
    rest, _ = process.communicate()
    accepted += [line for line in rest.splitlines() if len(line) == 32]

    async def then(store: SqliteStore) -> None:
        assert await store.context.reader.read(
            lambda db: db.value("pragma quick_check") == "ok"
        )
        ids = [bytes.fromhex(line) for line in accepted]
        assert len(await store.states(ids)) == len(ids)
        await store.enqueue([new_job()])

    run_on_store(path, then)


HOLD_A_JOB = """
from durio.ports.exchange import Lane
async def story(store):
    worker = await store.register(INFO, 3600)
    await store.exchange(worker, [], [Lane(LANE, 1)], 1)
    print(worker, flush=True)
    await store.wait(worker, 3600)
run_on_store(Path(sys.argv[1]), story)
"""


def test_a_death_on_this_host_is_seen_long_before_the_lease_ends(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"
    job = new_job()

    async def story(store: SqliteStore) -> None:
        await store.enqueue([job])
        process = start(HOLD_A_JOB, path)
        assert process.stdout is not None
        worker = int(await asyncio.to_thread(process.stdout.readline))
        assert (await store.rescue(10, DeadOnThisHost())).workers == []
        os.kill(process.pid, signal.SIGSTOP)
        assert (await store.rescue(10, DeadOnThisHost())).workers == []
        process.kill()
        process.wait()
        rescued = await store.rescue(10, DeadOnThisHost())
        assert rescued.workers == [worker]
        assert [left.id for left in rescued.left] == [job.id]
        left_over = set(os.listdir(f"{path}-durio"))  # noqa: PTH208
        assert left_over == {"writer.lock"}
        process.communicate()

    run_on_store(path, story)


HOLD_THE_LOCK = """
async def story(store):
    def hold(tx):
        print("held", flush=True)
        sys.stdin.readline()
    await store.context.writer.write(hold)
run_on_store(Path(sys.argv[1]), story)
"""


def test_a_stall_names_the_holder_and_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async def story(store: SqliteStore) -> None:
        worker = await store.register(INFO, 30)
        process = start(HOLD_THE_LOCK, path)
        assert process.stdout is not None
        assert process.stdin is not None
        await asyncio.to_thread(process.stdout.readline)
        async with asyncio.TaskGroup() as group:
            write = group.create_task(store.enqueue([new_job()]))
            while (stall := (await store.health()).stalled_by) is None:
                await CLOCK.sleep(0.001)
            assert stall.pid == process.pid
            # No other worker has renewed, and the question does not wait.
            assert (await store.health(worker)).behind_seconds == -math.inf
            process.stdin.write("\n")
            process.stdin.flush()
            assert (await write)[0].created
        assert (await store.health()).stalled_by is None
        process.communicate()

    run_on_store(path, story)


def test_closing_while_stalled_answers_whoever_waits(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async def story() -> None:
        store = SqliteStore(str(path), CLOCK)
        await store.open()
        process = start(HOLD_THE_LOCK, path)
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.readline)
        async with asyncio.TaskGroup() as group:
            write = group.create_task(refused(store))
            while (await store.health()).stalled_by is None:
                await CLOCK.sleep(0.001)
            await store.close()
            assert await write
        process.communicate("\n")

    async def refused(store: SqliteStore) -> bool:
        with pytest.raises(StoreStalled) as told:
            await store.enqueue([new_job()])
        return not told.value.unknown

    asyncio.run(story())


FORK = """
import os
import threading
from durio.ports.upkeep import DeadOnThisHost
async def story(store):
    worker = await store.register(INFO, 30)
    job = new_job()
    await store.enqueue([job])
    await store.queues("shop", counts=True)
    child = os.fork()
    if child == 0:
        in_child(store, job)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    assert (await store.renew(worker, 30)).alive
    (row,) = await store.queues("shop", counts=True)
    assert row.counts
    assert (await store.rescue(10, DeadOnThisHost())).workers == []
    assert {file.name for file in Path(sys.argv[1] + "-durio").iterdir()} == {
        "writer.lock", f"{worker}.bell", f"{worker}.life"
    }

def in_child(store, job):
    async def later():
        assert (await store.states([job.id]))[job.id] == 2
        assert (await store.enqueue([new_job()]))[0].created
        await store.leave(await store.register(INFO, 30))
        await store.close()
        done.append(True)
    # The parent's loop is in this thread's stack: the child needs one of its own.
    done = []
    thread = threading.Thread(target=lambda: asyncio.run(later()), daemon=True)
    thread.start()
    thread.join(20)
    os._exit(0 if done else 1)

run_on_store(Path(sys.argv[1]), story)
"""


def test_a_forked_child_opens_the_file_anew(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    assert lines_of(start(FORK, path)) == ["child 0"]

    async def then(store: SqliteStore) -> None:
        page = await store.find(Query("shop"), limit=10, cursor=None)
        assert len(page.jobs) == 2

    run_on_store(path, then)


FORK_IN_MEMORY = """
import os
from durio.model.errors import StoreUnavailable
async def story(store):
    child = os.fork()
    if child == 0:
        try:
            store.context
        except StoreUnavailable:
            os._exit(0)
        os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
run_on_store(None, story)
"""


def test_a_store_in_memory_refuses_in_a_child() -> None:
    assert lines_of(start(FORK_IN_MEMORY)) == ["0"]


RING = """
async def story(store):
    await store.enqueue([new_job()])
run_on_store(Path(sys.argv[1]), story)
"""


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_another_process_rings(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "jobs.db"

    async def story() -> None:
        store = SqliteStore(str(path), CLOCK)
        await store.open()
        worker = await store.register(INFO, 30)
        process = start(RING, path)
        wake = await store.wait(worker, 30)
        assert wake.woken
        assert wake.lanes == {LANE}
        process.communicate()
        assert not (await store.wait(worker, 0.01)).woken
        await store.close()

    if kind == "uvloop":
        uvloop = pytest.importorskip("uvloop")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(story())
    else:
        asyncio.run(story())


def test_no_ring_is_lost_between_a_look_and_a_wait(tmp_path: Path) -> None:
    async def story(store: SqliteStore) -> None:
        worker = await store.register(INFO, 30)
        for _ in range(50):
            assert not (await store.exchange(worker, [], [Lane(LANE, 9)], 9)).claims
            await store.enqueue([new_job()])
            assert (await store.wait(worker, 10)).woken
            told = await store.exchange(worker, [], [Lane(LANE, 9)], 9)
            done = [Outcome(c.id, c.claim_no, 0) for c in told.claims]
            assert len(done) == 1
            await store.exchange(worker, done, (), 0)

    run_on_store(tmp_path / "jobs.db", story)


def test_a_worker_without_a_bell_sees_that_something_changed(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async def story(store: SqliteStore) -> None:
        await store.migration_status()
        process = start(RING, path)
        assert (await store.wait(4711, 30)).woken
        process.communicate()

    run_on_store(path, story)


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        store = SqliteStore(str(tmp_path / "jobs.db"), CLOCK)
        with pytest.raises(StoreUnavailable):
            await store.queues("shop", counts=True)
        await store.open()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await store.enqueue([new_job()])
        await store.open()
        await store.enqueue([new_job()])
        await store.close()

    asyncio.run(story())
