"""Schedules in real processes: the leader is killed at random, and no tick is lost or doubled.

On SQLite and on PostgreSQL. A change from another process is promised within 2 s; three
times that is asserted, and what was seen is printed.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
import psycopg
import pytest

from durio import App
from durio.ports.browse import Query
from tests.conftest import SAID
from tests.e2e.workers import ELSEWHERE, Place, Process, seeded, wait_until
from tests.servers.postgres import PostgresServer

T = TypeVar("T")

WORKERS, SCHEDULES = 3, 20
INTERVAL, TICKS, TICKS_MIN = 0.1, 53, 1000  # seconds; of each schedule; of all
ROUNDING_SECONDS = 1e-4
START_SECONDS = 1.5  # from the creation to the first tick
LOOK_SECONDS = 0.02
LEADER_SHARE = 0.7  # of the kills; the others hit any worker
KILL_SECONDS_MIN, KILL_SECONDS_MAX = 0.4, 1.8
KILLS_MIN = 3
END_SECONDS = 60.0
SEEN_SECONDS = 2.0
PROMISE = 3
PAGE = 500
LEADER = """
    select w.info from {0}worker w join {0}lease l on l.holder = w.id
    where l.name like '%upkeep%'
"""

pytestmark = pytest.mark.timeout(180)


class Fleet:
    """Workers of a test, and the schedules in their store."""

    def __init__(self, place: Place, server: PostgresServer | None) -> None:
        self.place = place
        self.server = server

    def run(self, story: Callable[[App], Awaitable[T]]) -> T:
        async def main() -> T:
            async with self.place.app() as app:
                return await story(app)

        return asyncio.run(main())

    def leader_pid(self) -> int | None:
        if self.server is None:
            rows = self.place.select(LEADER.format(""))
        else:
            with psycopg.connect(self.server.url()) as connection:
                rows = connection.execute(LEADER.format("durio.")).fetchall()
        for (info,) in rows:
            known = info if isinstance(info, dict) else msgspec.json.decode(info)
            return known["pid"]
        return None


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: pytest.FixtureRequest, place: Place) -> Fleet:
    server: PostgresServer | None = None
    if request.param == "postgres":
        server = request.getfixturevalue("postgres")
        place.url = server.url(application_name=request.node.name[:60])
    place.settings = ELSEWHERE
    return Fleet(place, server)


async def jobs_of_ticks(app: App) -> list[tuple[str, float]]:
    """Return name and due time of every job that a schedule made."""
    store, cursor = await app.store(), None
    found: list[tuple[str, float]] = []
    while True:
        page = await store.find(Query(app.name), limit=PAGE, cursor=cursor)
        ticks = (
            msgspec.json.decode(job.opts or b"{}").get("tick") for job in page.jobs
        )
        found += [(tick[0], tick[1]) for tick in ticks if tick is not None]
        cursor = page.cursor
        if cursor is None:
            return found


def kill_at_random(fleet: Fleet, workers: list[Process], seconds: float) -> int:
    """Kill the leader, or any worker, and replace it, for this time; return how often."""
    chance, kills, until = seeded(), 0, time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(chance.uniform(KILL_SECONDS_MIN, KILL_SECONDS_MAX))
        leader = fleet.leader_pid() if chance.random() < LEADER_SHARE else None
        led = [worker for worker in workers if worker.pid == leader]
        victim = led[0] if led else chance.choice(workers)
        victim.kill()
        kills += 1
        workers.remove(victim)
        workers.append(fleet.place.begin_worker())
    return kills


@pytest.mark.proves("M159", "M161", "L41")
def test_each_tick_has_one_job_when_leaders_are_killed(
    fleet: Fleet, request: pytest.FixtureRequest
) -> None:
    workers = [fleet.place.begin_worker() for _ in range(WORKERS)]
    for worker in workers:
        fleet.place.started(worker)

    async def create(app: App) -> tuple[float, dict[str, float]]:
        """Return the time of tick 0, and the first tick of each schedule."""
        await app.store()
        start = datetime.now(UTC) + timedelta(seconds=START_SECONDS)
        end = start + timedelta(seconds=INTERVAL * (TICKS - 0.5))
        rule: Any = {"every": INTERVAL, "start": start, "end": end}
        rule |= {"catchup": "all", "catchup_max": 1000, "overlap": "allow"}
        made = [
            await app.schedules.create(f"s{number}", "e2e.nothing", **rule)
            for number in range(SCHEDULES)
        ]
        first = {one.name: one.next_at.timestamp() for one in made if one.next_at}
        return start.timestamp(), first

    start, first = fleet.run(create)
    kills = kill_at_random(fleet, workers, START_SECONDS + INTERVAL * TICKS)

    async def are_over(app: App) -> bool:
        return {one.state for one in await app.schedules.list()} == {"ended"}

    wait_until(lambda: fleet.run(are_over), END_SECONDS, "the end", look_seconds=0.3)
    made = fleet.run(jobs_of_ticks)
    assert all(is_tick(due - start) for _, due in made)
    found = Counter((name, number_of(due - start)) for name, due in made)
    expected = [
        (name, number)
        for name, due in first.items()
        for number in range(number_of(due - start), TICKS)
    ]
    assert found == Counter(expected)
    assert len(expected) >= TICKS_MIN
    assert kills >= KILLS_MIN
    say(request, f"{len(made):,} ticks, {kills} workers killed, one job for each")


@pytest.mark.proves("M157")
def test_change_from_another_process_is_seen(
    fleet: Fleet, request: pytest.FixtureRequest
) -> None:
    """A creation, a change, a resume: the next tick follows. After a pause there is none."""
    fleet.place.worker()

    async def story(app: App) -> list[float]:
        schedules, seen = app.schedules, list[float]()

        async def until_more_ticks() -> None:
            began = time.monotonic()
            before = (await schedules.get("watched")).run_count
            while (await schedules.get("watched")).run_count == before:
                await asyncio.sleep(LOOK_SECONDS)
                assert time.monotonic() < began + END_SECONDS, fleet.place.logs()
            seen.append(time.monotonic() - began - INTERVAL)

        await schedules.create("watched", "e2e.nothing", every=INTERVAL)
        await until_more_ticks()
        await schedules.change("watched", every="1h")
        await asyncio.sleep(2 * INTERVAL)
        assert (await schedules.get("watched")).next_at > in_a_while()
        await schedules.change("watched", every=INTERVAL, overlap="allow")
        await until_more_ticks()
        paused_at = (await schedules.pause("watched")).last_at
        before = len(await jobs_of_ticks(app))
        await asyncio.sleep(5 * INTERVAL)
        assert len(await jobs_of_ticks(app)) == before
        assert (await schedules.get("watched")).last_at == paused_at
        await schedules.resume("watched")
        await until_more_ticks()
        await schedules.delete("watched")
        return seen

    seen = fleet.run(story)
    shown = ", ".join(f"{max(0.0, each):.2f} s" for each in seen)
    say(request, f"seen by a worker after {shown} (create, change, resume)")
    assert max(seen) < PROMISE * SEEN_SECONDS


def number_of(seconds: float) -> int:
    """Return which tick is due at this time after the first one."""
    return round(seconds / INTERVAL)


def is_tick(seconds: float) -> bool:
    return abs(number_of(seconds) * INTERVAL - seconds) < ROUNDING_SECONDS


def in_a_while() -> datetime:
    return datetime.now(UTC) + timedelta(minutes=30)


def say(request: pytest.FixtureRequest, text: str) -> None:
    """Print a line, at the end of the run too."""
    print(text)
    request.node.user_properties.append((SAID, text))
