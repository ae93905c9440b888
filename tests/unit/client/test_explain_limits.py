"""`job.explain()` of a job before a gate: which limit, who holds it, and what would help."""

from typing import Any

import pytest

from durio import App, Concurrency, Rate, chain
from durio.client.limit_store import find_limit, parse_choice, set_limit
from durio.limits import Budget
from durio.model.effects import Effects
from durio.model.explanation import JobReason, moment
from durio.model.gate import GateChange
from durio.model.gate_rule import GateChoice
from durio.model.ids import id_bytes
from durio.ports.control import AuditNote, MoveJobs, RetryJobs
from tests.unit.app.app_harness import virtual, working

NOTE = AuditNote("app", "ann", "set limit", "x")


async def why(job: Any) -> JobReason:
    reason, *others = (await job.explain()).reasons
    assert {other.code for other in others} <= {"no_worker"}
    return reason


@virtual
async def test_all_places_are_taken(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(2, key="tenant")])
    async def send(tenant: str) -> None:
        assert tenant
        await app.clock.sleep(60.0)

    jobs = await send.enqueue_many([("acme",)] * 4)
    reason = await why(jobs[3])
    assert reason.code == "limit_reached"
    for job in jobs[:2]:
        assert f"job {job.id} (ready)" in reason.text
    assert 'limit send for "acme" is 2/2: ' in reason.text
    assert reason.text.endswith("2 jobs wait there")
    assert reason.command == "durio limits set send 3"
    async with working(app):
        await app.clock.sleep(1.0)
        reason = await why(jobs[3])
        assert f"job {jobs[0].id} (running)" in reason.text
        for job in jobs[1:]:
            await job.cancel()


@virtual
async def test_more_holders_than_are_named(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(5)])
    async def send() -> None: ...

    jobs = await send.enqueue_many([()] * 6)
    reason = await why(jobs[5])
    assert reason.text.startswith("limit send is 5/5: job ")
    assert " and 2 more; 1 job waits there" in reason.text


@virtual
async def test_a_rate_until_a_time(app: App) -> None:
    @app.task(name="send", limits=[Rate("2/h")])
    async def send() -> None: ...

    jobs = await send.enqueue_many([()] * 3)
    reason = await why(jobs[1])
    assert reason.code == "rate_reached"
    assert "limit send lets 2/h start: none until " in reason.text
    assert ":30:00Z; 2 jobs wait there" in reason.text
    assert reason.command == "durio limits set send 4/h"


@virtual
async def test_a_budget_that_is_spent(app: App) -> None:
    @app.task(name="ask", limits=[Budget("tokens", 100, key="who", estimate=100)])
    async def ask(who: str) -> None: ...

    jobs = await ask.enqueue_many([("ann",), ("ann",)])
    reason = await why(jobs[1])
    assert 'limit tokens for "ann" lets 100/d start' in reason.text
    assert reason.command == "durio limits set tokens 200/d --burst 200"


@virtual
async def test_a_budget_with_less_than_the_job_costs(app: App) -> None:
    budget = Budget("tokens", 240, per="1d", estimate="most")

    @app.task(name="ask", limits=[budget])
    async def ask(most: int) -> None: ...

    await ask.enqueue(200)
    job = await ask.enqueue(60)  # 40 are left, and 10 come in an hour
    reason = await why(job)
    assert reason.code == "rate_reached"
    due = moment(app.clock.now() + 2 * 3600)
    assert f"start: none until {due}" in reason.text
    await app.clock.sleep(3600.0)
    assert f"none until {due}" in (await why(job)).text


@virtual
async def test_a_job_that_costs_more_than_a_lowered_budget(app: App) -> None:
    @app.task(name="ask", limits=[Budget("tokens", 240, estimate="most")])
    async def ask(most: int) -> None: ...

    job = (await ask.enqueue(200), await ask.enqueue(240))[1]
    store = await app.store()
    change = GateChange("5r:app/tokens/", rate=0.01, burst=100.0)
    await store.commit(Effects(gates=[change]))
    due = moment(app.clock.now() + (100 - 40) / 0.01)
    assert f"none until {due}" in (await why(job)).text


@virtual
async def test_the_turns_of_others(app: App) -> None:
    @app.task(name="work", fair_by="tenant")
    async def work(tenant: str) -> None: ...

    jobs = await work.enqueue_many([("big",)] * 20)
    reason = await why(jobs[19])
    assert reason.code == "fair_turn"
    assert (
        '16 jobs of "big" with priority 5 are ready in queue "default"' in reason.text
    )
    assert reason.command == "durio limits set fair:default 17"


@virtual
async def test_a_limit_of_the_queue(app: App) -> None:
    @app.task(name="send", queue="mail")
    async def send() -> None: ...

    store = await app.store()
    limit = await find_limit(store, app.name, "queue:mail")
    await set_limit(store, app.name, limit, GateChoice(1), NOTE)
    jobs = await send.enqueue_many([()] * 2)
    reason = await why(jobs[1])
    assert f"limit queue:mail is 1/1: job {jobs[0].id} (ready)" in reason.text
    assert reason.command == "durio limits set queue:mail 2"


@pytest.mark.parametrize(
    ("values", "burst"),
    [("1 100/m", None), ("1 100/m", 20.5), ("1 3/7m", None), ("1 2/3d", 5.0)],
)
def test_a_queue_keeps_its_rate_when_it_is_raised(
    values: str, burst: float | None
) -> None:
    @virtual
    async def story(app: App) -> None:
        @app.task(name="send", queue="mail")
        async def send() -> None: ...

        store = await app.store()
        limit = await find_limit(store, app.name, "queue:mail")
        choice = parse_choice(limit, values.split(), burst)
        await set_limit(store, app.name, limit, choice, NOTE)
        jobs = await send.enqueue_many([()] * 2)
        command = (await why(jobs[1])).command or ""
        name, *given = command.removeprefix("durio limits set ").split()
        assert (name, given[0]) == ("queue:mail", "2")
        end = float(given[3]) if "--burst" in given else None
        raised = parse_choice(limit, given[:2], end)
        assert raised.rate == pytest.approx(choice.rate, rel=1e-9)
        assert raised.burst == choice.burst

    story()


@virtual
async def test_a_gate_that_is_closed(app: App) -> None:
    @app.task(name="send", limits=[Rate("100/s", key="to")])
    async def send(to: str) -> None: ...

    await send.enqueue("a")
    store = await app.store()
    change = GateChange("2r:app/send/a", until_seconds=90.0)
    await store.commit(Effects(gates=[change]))
    job = await send.enqueue("a")
    reason = await why(job)
    assert reason.code == "limit_closed"
    assert 'limit send for "a" is closed until ' in reason.text


@virtual
async def test_a_job_of_a_task_whose_code_is_elsewhere(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(1, key="tenant")])
    async def send(tenant: str = "acme") -> None: ...

    async with working(app):
        await app.clock.sleep(1.0)
    other = App(app.url, name=app.name, clock=app.clock)
    other.state = app.state
    jobs = await send.enqueue_many([()] * 2)
    assert (await why(await other.job(jobs[1].id))).code == "limit_reached"


@virtual
async def test_a_function_that_is_elsewhere(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(1, key=lambda values: values["to"])])
    async def send(to: str) -> None: ...

    async with working(app):
        await app.clock.sleep(1.0)
    other = App(app.url, name=app.name, clock=app.clock)
    other.state = app.state
    jobs = await send.enqueue_many([("a",)] * 2)
    assert (await why(jobs[1])).code == "limit_reached"
    reason = await why(await other.job(jobs[1].id))
    assert reason.text.startswith('limit send for "a" is 1/1: ')


@virtual
async def test_a_node_of_a_plan_whose_wait_is_over(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(1, key="tenant")])
    async def send(tenant: str) -> None: ...

    @app.task(name="step")
    async def step() -> None: ...

    holder = await send.options(queue="unserved").enqueue("a")
    plan = await chain(step.si(), send.si("a")).enqueue()
    async with working(app, queues=["default"]):
        await app.clock.sleep(5.0)
    (blocked,) = [job async for job in app.jobs(state="blocked")]
    reasons = (await (await app.job(blocked.id)).explain()).reasons
    texts = [reason.text for reason in reasons]
    assert any('limit send for "a" is 1/1' in text for text in texts), texts
    assert any(holder.id in text for text in texts), texts
    assert (await plan.status()).state == "running"


@virtual
async def test_a_limit_whose_name_is_long(app: App) -> None:
    name = "n" * 100

    @app.task(name="send", limits=[Concurrency(1, key="to", name=name)])
    async def send(to: str) -> None: ...

    jobs = await send.enqueue_many([("a",)] * 2)
    reason = await why(jobs[1])
    assert f'limit {name} for "a" is 1/1' in reason.text
    assert reason.command == f"durio limits set {name} 2"


@virtual
async def test_limits_that_are_no_longer_in_the_code(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(1, key="tenant")])
    async def send(tenant: str) -> None: ...

    jobs = await send.enqueue_many([("a",)] * 2)
    newer = App(app.url, name=app.name, clock=app.clock)
    newer.state = app.state

    @newer.task(name="send", limits=[Concurrency(9, key="to", name="other")])
    async def send_later(to: str = "") -> None: ...

    reason = await why(await newer.job(jobs[1].id))
    assert reason.text.startswith('limit send for "a" is 1/1: job ')


@virtual
async def test_a_job_that_was_retried_with_other_arguments(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(1, key="to")])
    async def send(to: str) -> None: ...

    jobs = await send.enqueue_many([("a",)] * 2)
    store = await app.store()
    edit = RetryJobs(b'[[],{"to":"b"}]')
    await jobs[1].cancel()
    await store.act([id_bytes(jobs[1].id)], edit)
    assert 'limit send for "a" is 1/1: ' in (await why(jobs[1])).text


@virtual
async def test_the_turns_of_the_queue_that_a_job_came_from(app: App) -> None:
    @app.task(name="work", fair_by="tenant")
    async def work(tenant: str) -> None: ...

    jobs = await work.enqueue_many([("big",)] * 17)
    await (await app.store()).act([id_bytes(jobs[16].id)], MoveJobs("app:other"))
    reason = await why(jobs[16])
    assert 'of "big" with priority 5 are ready in queue "default"' in reason.text
    assert reason.command == "durio limits set fair:default 17"


@virtual
async def test_a_limit_that_the_job_has_passed_is_not_named(app: App) -> None:
    rate = Rate("1/h", key="to", burst=2, name="rate")

    @app.task(name="send", limits=[rate, Concurrency(1)])
    async def send(to: str) -> None: ...

    jobs = await send.enqueue_many([("a",)] * 3)
    assert (await why(jobs[1])).text.startswith("limit send-2 is 1/1: ")
    reasons = (await jobs[2].explain()).blocking
    assert [each.code for each in reasons[:2]] == ["rate_reached", "limit_reached"]


@virtual
async def test_a_place_that_a_paused_or_unserved_queue_keeps(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(1)])
    async def send() -> None: ...

    holder = await send.options(queue="slow").enqueue()
    job = await send.enqueue()
    assert (await why(job)).command == "durio limits set send 2"
    async with working(app, queues=["default"]):
        await app.clock.sleep(1.0)
        reason = await why(job)
        place = f'1/1: job {holder.id} (ready in queue "slow", which '
        assert f"{place}no live worker serves)" in reason.text
        assert (reason.command or "").endswith(" -q slow")
        await app.queue("slow").pause()
        reason = await why(job)
        assert f"{place}is paused)" in reason.text
        assert reason.command == "durio queues resume slow"
