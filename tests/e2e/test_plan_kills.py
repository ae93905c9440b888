"""`kill -9` of real processes at the points where a plan could be left half-way.

On SQLite and on PostgreSQL; see plan_program.py for the points.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from durio import App
from durio.model.job import State
from durio.plans import PlanJob
from tests.e2e.plan_program import CHORDS, MEMBERS
from tests.e2e.workers import ELSEWHERE, Place, Process, wait_until
from tests.servers.postgres import PostgresServer

KILLED = -9
END_SECONDS = 60.0

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=["sqlite", "postgres"])
def plans(request: pytest.FixtureRequest, place: Place) -> "Plans":
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("shop")
        place.url = server.url(application_name=request.node.name[:60])
    place.settings = ELSEWHERE
    return Plans(place)


class Plans:
    """The processes of a test, and what they have left in the store."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def start(self, role: str, point: str = "none", **settings: Any) -> Process:
        return self.place.run("tests.e2e.plan_program", role, point, **settings)

    def read(self, story: Callable[[App], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with App(self.place.url, name="shop") as app:
                return await story(app)

        return asyncio.run(main())

    def seen(self, what: str) -> list[str]:
        """Return the rest of the lines that processes wrote about this."""
        path = self.place.ledger_folder / "seen"
        lines = path.read_text().splitlines() if path.exists() else []
        found = (line.partition(" ") for line in lines)
        return [rest for word, _, rest in found if word == what]

    def wait_for(self, state: str, plan_id: str) -> None:
        async def status(app: App) -> str:
            return (await (await app.plan(plan_id)).status()).state.value

        wait_until(
            lambda: self.read(status) == state,
            END_SECONDS,
            f"plan {plan_id} is {state}",
            look_seconds=0.2,
        )

    def of_plan(self, plan_id: str, ask: Callable[[PlanJob[Any]], Any]) -> Any:
        async def story(app: App) -> Any:
            return await ask(await app.plan(plan_id))

        return self.read(story)


@pytest.mark.proves("M98", "M144")
def test_killed_while_it_writes_a_large_plan(plans: Plans) -> None:
    assert plans.start("large", "plan.written_chunk").ended() == KILLED

    async def due(app: App) -> int:
        store = await app.store()
        return len((await store.due_records("plan:shop", limit=9)).records)

    async def left(app: App) -> list[int]:
        store = await app.store()
        found = await store.list_records("plan:shop")
        waiting = sum(
            number
            for row in await store.queues("shop", counts=True)
            for state, number in row.counts.items()
        )
        return [len(found), waiting]

    async def jobs(app: App) -> int:
        return await app.jobs().count()

    assert plans.read(left) == [1, 998], "one part is stored"
    assert plans.read(jobs) == 998
    wait_until(lambda: plans.read(due), 10, "the plan is overdue", look_seconds=0.2)
    plans.start("work")
    wait_until(
        lambda: plans.read(left) == [0, 0], END_SECONDS, "nothing", look_seconds=0.2
    )
    assert plans.seen("one") == [], "nothing has started"
    assert plans.read(jobs) == 0, "no cancelled job is left either"


@pytest.mark.proves("M98", "M145")
def test_killed_before_waiting_jobs_are_let_go(plans: Plans) -> None:
    assert plans.start("large").ended() == 0
    (plan_id,) = plans.seen("plan")
    assert plans.start("work", "settle.before_commit").ended() == KILLED
    plans.start("work")
    plans.wait_for("done", plan_id)
    assert set(plans.seen("one")) == {str(n) for n in range(MEMBERS)}
    assert plans.seen("total") == [str(sum(range(MEMBERS)))]
    counts = plans.of_plan(plan_id, lambda plan: plan.counts())
    assert counts == {State.DONE: MEMBERS + 1}


@pytest.mark.proves("M98", "M149")
def test_killed_before_it_cancels_what_depends_on_a_failure(plans: Plans) -> None:
    assert plans.start("failing").ended() == 0
    (plan_id,) = plans.seen("plan")
    assert plans.start("work", "failure.before_sweep").ended() == KILLED
    status = plans.of_plan(plan_id, lambda plan: plan.status())
    assert status.state == "failing"
    plans.start("work")
    plans.wait_for("failed", plan_id)
    wait_until(lambda: plans.seen("alert"), END_SECONDS, "the handler runs")
    (plans.place.ledger_folder / "repaired").touch()
    plans.of_plan(plan_id, lambda plan: plan.retry())
    plans.wait_for("done", plan_id)
    assert plans.seen("total") == ["3"]
    assert plans.seen("alert") == ["no 1"], "once"


@pytest.mark.proves("M145")
def test_last_two_members_end_at_once_on_two_workers(plans: Plans) -> None:
    for _ in range(2):
        plans.place.started(plans.start("work", concurrency=1, prefetch=0))
    assert plans.start("chords").ended() == 0
    ids = plans.seen("plan")
    assert len(ids) == CHORDS
    for plan_id in ids:
        plans.wait_for("done", plan_id)
    assert plans.seen("total") == ["3"] * CHORDS, "each callback once, with both"
    pids = Counter(line.partition(" ")[0] for line in set(plans.seen("pid")))
    assert set(pids.values()) == {2}, "in two processes"
