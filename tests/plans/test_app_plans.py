"""Plans that an App runs give what the reference interpreter gives."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from durio import App, Cancel, Context, Permanent, Retry
from durio.client.plan_enqueue import store_plan
from durio.errors import JobCancelled, JobDead
from durio.model.settings import merged
from durio.plans import PlanFailure, PlanJob
from durio.testing.clock import VirtualClock, run_virtual
from tests.plans.reference import (
    AnyLink,
    Behaviour,
    Behaviours,
    comparable,
    interpret,
    leaf_value,
)
from tests.plans.strategies import cases
from tests.unit.app.app_harness import CALM, MEMORY, working

SETTLE_SECONDS = 60.0  # for the leader to handle all failures


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


def declare(app: App, behaviours: Behaviours, needs: Any, seen: Seen) -> None:
    @app.task(name="leaf", retry=Retry(5, base=1))
    async def leaf(ctx: Context, *values: Any) -> str:
        name = values[-1]
        behaviour = behaviours[name]
        if ctx.attempt == 1:
            seen.started.append(name)
            if not needs[name] <= set(seen.done):
                seen.unmet.append(name)
        await app.clock.sleep(app.clock.random())
        if ctx.attempt <= behaviour.failures:
            raise ValueError(name)
        if behaviour.end == "dead":
            raise Permanent(name)
        if behaviour.end == "cancelled":
            raise Cancel
        seen.done.append(name)
        return leaf_value(*values)

    @app.task(name="handler")
    async def handler(failure: PlanFailure, name: str) -> None:
        seen.handled.append(name)
        seen.failures.append(failure)


async def play(app: App, plan: AnyLink, behaviours: Behaviours, needs: Any) -> Seen:
    seen = Seen()
    declare(app, behaviours, needs, seen)
    async with working(app):
        handle: PlanJob[Any] = PlanJob(app, (await store_plan(app, plan, (), {})).id)
        try:
            seen.value = await handle.result(timeout=3600)
        except (JobDead, JobCancelled) as error:
            seen.error = error
        await app.clock.sleep(SETTLE_SECONDS)
        seen.state = (await handle.status()).state.value
    return seen


@pytest.mark.proves("M78", "M144", "M145", "M146", "M147", "M148", "M149", "M150")
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(cases())
def test_a_plan_gives_what_the_rules_say(
    case: tuple[AnyLink, dict[str, Behaviour]],
) -> None:
    plan, behaviours = case
    expected = interpret(plan, behaviours)

    async def main(clock: VirtualClock) -> Seen:
        quick = merged({"worker": CALM}, {"worker": {"poll_seconds": 1}})
        async with App(MEMORY, name="shop", clock=clock, settings=quick) as app:
            return await play(app, plan, behaviours, expected.needs)

    seen = run_virtual(main)
    assert (seen.error is None) == expected.is_done
    assert seen.state == ("done" if expected.is_done else "failed")
    if expected.is_done:
        assert comparable(seen.value) == comparable(expected.value)
    assert seen.unmet == []
    assert len(seen.started) == len(set(seen.started))
    started = set(seen.started)
    assert expected.must_run <= started <= expected.must_run | expected.may_run
    handled = set(seen.handled)
    assert len(handled) == len(seen.handled)
    assert expected.must_handle <= handled
    assert handled <= expected.must_handle | expected.may_handle
