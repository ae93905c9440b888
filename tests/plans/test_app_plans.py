"""Plans that an App runs give what the reference interpreter gives.

Each run tries other plans: the seed follows from the commit. A failure prints it;
DURIO_PLAN_SEED=n tries the same plans again.
"""

import os
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from durio import App, Cancel, Context, Permanent, Retry
from durio.client.plan_enqueue import store_plan
from durio.errors import JobCancelled, JobDead, WrongState
from durio.model.job import DONE
from durio.model.settings import merged
from durio.plans import PlanFailure, PlanJob
from durio.stores.postgres.store import PostgresStore
from durio.testing.clock import VirtualClock, run_virtual
from tests.checkout import commit
from tests.conformance.postgres import ScratchSchema
from tests.faults.faulty_store import FaultyStore
from tests.job_counts import count_jobs
from tests.plans.reference import (
    AnyLink,
    Behaviour,
    Behaviours,
    Expected,
    comparable,
    interpret,
    leaf_value,
)
from tests.plans.strategies import cases, changing_cases
from tests.unit.app.app_harness import CALM, MEMORY, working

LOOK_SECONDS = 2.0  # for the leader to handle what has ended
LOOKS_MAX = 200
SEED = int(os.environ.get("DURIO_PLAN_SEED") or zlib.crc32(commit().encode()))
QUICK = merged({"worker": CALM}, {"worker": {"poll_seconds": 1}})

Case = tuple[AnyLink, dict[str, Behaviour]]
Opener = Callable[[VirtualClock], AbstractAsyncContextManager[App]]


class Seen:
    """What happened while a plan ran."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.done: list[str] = []
        self.handled: list[str] = []
        self.failures: list[PlanFailure] = []
        self.value: Any = None
        self.error: JobDead | JobCancelled | None = None
        self.state = ""
        self.unmet: list[str] = []  # leaves that started too soon
        self.is_retried = False
        self.refused = "done"  # the state in which it could not be retried


def declare(app: App, behaviours: Behaviours, needs: Any, seen: Seen) -> None:
    @app.task(name="leaf", retry=Retry(5, base=1))
    async def leaf(ctx: Context, *values: Any) -> Any:
        name = values[-1]
        behaviour = behaviours[name]
        if ctx.attempt == 1:
            seen.started.append(name)
            if not needs[name] <= set(seen.done):
                seen.unmet.append(name)
        await app.clock.sleep(0.01 + app.clock.random())
        if ctx.attempt <= behaviour.failures:
            raise ValueError(name)
        if behaviour.end == "dead":
            raise Permanent(name)
        if behaviour.end == "cancelled":
            raise Cancel
        seen.done.append(name)
        if behaviour.added:
            ctx.add(*behaviour.added)
        if behaviour.replaced_by is not None:
            return ctx.replace(behaviour.replaced_by)
        return leaf_value(*values)

    @app.task(name="handler")
    async def handler(failure: PlanFailure, name: str) -> None:
        seen.handled.append(name)
        seen.failures.append(failure)


async def play(
    app: App, plan: AnyLink, behaviours: Behaviours, needs: Any, after: float | None
) -> Seen:
    """Run a plan; cancel it after some seconds, if they are given, and retry it."""
    seen = Seen()
    declare(app, behaviours, needs, seen)
    async with working(app):
        handle: PlanJob[Any] = PlanJob(app, (await store_plan(app, plan, (), {})).id)
        if after is not None:
            await app.clock.sleep(after)
            await handle.cancel()
            await settle(app)
            try:
                await handle.retry()
                seen.is_retried = True
            except WrongState as error:  # it had ended, or its last job ended well
                seen.refused = str(error.values["state"])
        try:
            seen.value = await handle.result(timeout=3600)
        except (JobDead, JobCancelled) as error:
            seen.error = error
        await settle(app)
        seen.state = (await handle.status()).state.value
    return seen


async def settle(app: App) -> None:
    """Wait until all jobs have ended, and nothing has come of it."""
    store, quiet = await app.store(), 0
    for _ in range(LOOKS_MAX):
        await app.clock.sleep(LOOK_SECONDS)
        states = {
            s for each in (await count_jobs(store, app.name)).values() for s in each
        }
        quiet = 0 if any(state < DONE for state in states) else quiet + 1
        if quiet > 1:
            return


@asynccontextmanager
async def in_memory(clock: VirtualClock) -> AsyncIterator[App]:
    async with App(MEMORY, name="shop", clock=clock, settings=QUICK) as app:
        yield app


def on_postgres(grounds: ScratchSchema) -> Opener:
    """Return an opener of Apps on an empty schema; time stands still while it works."""

    @asynccontextmanager
    async def open_app(clock: VirtualClock) -> AsyncIterator[App]:
        with clock.held():
            await grounds.empty()
        app = App(grounds.url, name="shop", clock=clock, settings=QUICK)
        store = PostgresStore(grounds.location, clock, injected=clock)
        app.state.stores[os.getpid()] = FaultyStore(store, clock)
        async with app:
            yield app

    return open_app


def check(case: Case, opener: Opener, after: float | None = None) -> None:
    """Run a plan, and compare what happened with what the rules say."""
    plan, behaviours = case
    expected = interpret(plan, behaviours)

    async def main(clock: VirtualClock) -> Seen:
        async with opener(clock) as app:
            return await play(app, plan, behaviours, expected.needs, after)

    seen = run_virtual(main)
    assert (seen.error is None) == expected.is_done
    assert seen.refused == "done"
    if after is None or seen.is_retried:
        assert seen.state == ("done" if expected.is_done else "failed")
    if expected.is_done:
        assert comparable(seen.value) == comparable(expected.value)
    assert seen.unmet == []
    assert len(seen.done) == len(set(seen.done))
    started, may_run = set(seen.started), expected.must_run | expected.may_run
    assert started <= may_run
    if after is None:
        assert len(seen.started) == len(started)
        assert expected.must_run <= started
    check_handlers(seen, expected, after)


def check_handlers(seen: Seen, expected: Expected, after: float | None) -> None:
    """Each handler ran once for each start; the cancel of a plan runs none."""
    handled = set(seen.handled)
    assert handled <= expected.must_handle | expected.may_handle
    for name in handled:
        assert seen.handled.count(name) <= 1 + seen.is_retried
    if after is None:
        assert expected.must_handle <= handled


def examples(count: int) -> Callable[[Any], Any]:
    """Try this many plans; all of them are new for each commit."""

    def decorate(test: Any) -> Any:
        wanted = settings(
            max_examples=count,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        return seed(SEED)(wanted(test))

    return decorate


@pytest.mark.proves("M78", "M144", "M145", "M146", "M147", "M148", "M149", "M150")
@examples(60)
@given(cases())
def test_a_plan_gives_what_the_rules_say(case: Case) -> None:
    note(f"DURIO_PLAN_SEED={SEED}")
    check(case, in_memory)


# Seconds after which a plan is cancelled, and then retried.
CANCELS = st.sampled_from([None, None, 0.3, 1.0, 2.0, 4.0])


@pytest.mark.proves("M78", "M147", "M149", "M150")
@examples(80)
@given(changing_cases(), CANCELS)
def test_plans_that_change_while_they_run(case: Case, after: float | None) -> None:
    note(f"DURIO_PLAN_SEED={SEED}")
    check(case, in_memory, after)


@pytest.mark.proves("M78", "M147", "M149", "M150")
@examples(15)
@given(changing_cases(), CANCELS)
def test_plans_on_postgres(
    grounds: ScratchSchema, case: Case, after: float | None
) -> None:
    note(f"DURIO_PLAN_SEED={SEED}")
    check(case, on_postgres(grounds), after)
