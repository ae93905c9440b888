"""`job.explain()`: situations of one process, in virtual time; commands: tests/unit/cli."""

import json
import pickle  # noqa: TID251 - what caches of web frameworks use
from pathlib import Path
from typing import Any

from durio import App, Context, Job, Snooze, chain, group
from durio.client.breakers import find_breaker, force_breaker
from durio.client.explain import explain_job
from durio.client.explain_facts import JobFacts
from durio.client.explain_rules import reasons_of
from durio.limits import Breaker
from durio.model.breaker import BreakerRecord, ForcedState, half_opened, with_probe
from durio.model.explanation import JobExplanation
from durio.model.ids import id_bytes, id_text
from durio.model.job import READY, RUNNING, StoredJob
from durio.model.options import NO_ROW_OPTIONS
from durio.ports.breaker_change import change_breaker
from durio.ports.browse import LaneRow, Query, WorkerRow
from durio.ports.lease import Vitals, WorkerInfo
from tests.unit.app.app_harness import drained, reached, records, virtual, working


def codes(found: JobExplanation) -> list[str]:
    return [reason.code for reason in found.reasons]


def text(found: JobExplanation, code: str) -> str:
    (reason,) = (each for each in found.reasons if each.code == code)
    return reason.text


async def echo(value: int) -> int:
    return value


@virtual(name="shop")
async def test_a_running_job_is_described(app: App):
    @app.task(name="slow", timeout=(20, 30))
    async def slow(ctx: Context) -> None:
        await ctx.progress(2, 4, message="resizing")
        await app.clock.sleep(25)

    job = await slow.enqueue()
    async with working(app):
        await reached(job, lambda status: status.state == "running")
        await app.clock.sleep(10)
        found = await job.explain()
        assert (codes(found), found.blocking) == (["running"], ())
        said = text(found, "running")
        assert "attempt 1 runs on worker 1 (" in said
        assert "; soft limit 20 s, hard limit 30 s; progress 2 of 4 (resizing)" in said
        assert "; last heartbeat 10" in said
        assert [(each.number, each.outcome) for each in found.attempts] == [
            (1, "running")
        ]
        await job.cancel()
        assert codes(await job.explain()) == ["running", "cancel_asked"]
    plain = (await job.explain()).to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["state"] == "cancelled"
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301


@virtual(name="shop", settings={"queue": {"embedded_max": 5000}})
async def test_the_place_in_line_is_bounded(app: App):
    task = app.task(echo)
    jobs = await task.enqueue_many([task.s(n) for n in range(1005)])
    store = await app.store()
    await store.register(
        WorkerInfo("shop", "a/1", "a", 1, None, 10, "0.0", tasks=("shop.echo",)), 60
    )
    for place, said in (
        (0, "it is the next in queue"),
        (1, "1 job is before it"),
        (1000, "1000 jobs are before it"),
        (1001, "more than 1,000 jobs are before it"),
    ):
        found = await jobs[place].explain()
        assert text(found, "in_line").startswith(said)
        assert found.blocking == ()
    await app.queue("default").pause()
    assert "in_line" not in codes(await jobs[0].explain())


@virtual(name="shop")
async def test_a_snooze_is_named(app: App):
    @app.task(name="later")
    async def later() -> None:
        raise Snooze("10m")

    job = await later.enqueue()
    await drained(app)
    found = await job.explain()
    assert codes(found) == ["snoozed", "no_worker"]
    assert found.command == f"durio jobs run {job.id}"


@virtual(name="shop")
async def test_a_group_is_waited_for(app: App):
    task = app.task(echo)
    total = app.task(name="total")(add_up)
    await (group(task.s(1), task.options(delay="1h").s(2)) | total.s()).enqueue()
    last = await last_job(app)
    await drained(app)
    found = await last.explain()
    assert codes(found)[:2] == ["blocked_by_jobs", "scheduled"]
    assert "waits for 1 job of plan" in found.reasons[0].text
    assert found.reasons[0].text.endswith("is scheduled; 1 of 2 have ended")
    assert found.reasons[1].text.startswith("job ")
    assert "it was enqueued for later" in found.reasons[1].text


async def last_job(app: App) -> Job[Any]:
    """Return the last job of the only plan."""
    jobs = (await (await app.store()).find(Query("shop"), limit=9, cursor=None)).jobs
    return await app.job(id_text(max(job.id for job in jobs)))


async def add_up(values: list[int]) -> int:
    return sum(values)


@virtual(name="shop")
async def test_a_job_far_behind_names_the_first_that_waits(app: App):
    task = app.task(echo)
    await chain(task.options(delay="1h").s(1), task.s(), task.s(), task.s()).enqueue()
    found = await (await last_job(app)).explain()
    assert codes(found)[:2] == ["blocked_by_jobs", "scheduled"]
    assert "is blocked; 0 of 1 have ended" in found.reasons[0].text


@virtual(name="shop")
async def test_code_that_lacks_the_task_says_so(app: App):
    app.task(echo)
    job = await app.enqueue("shop.echo", 1)
    app.registry.by_name["shop.echos"] = app.registry.by_name.pop("shop.echo")
    app.registry.handlers["shop.echos"] = app.registry.handlers.pop("shop.echo")
    found = await job.explain()
    assert codes(found) == ["task_unknown", "no_worker", "task_unknown_here"]
    assert found.command == "durio jobs rename shop.echo shop.echos"


def test_explain_works_without_a_loop(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db", name="shop")
    job = app.task(echo).enqueue_sync(1)
    assert codes(job.explain_sync()) == ["no_worker"]
    app.run_sync(app.close())


# --- rules alone


def facts(state: int, worker: WorkerRow | None = None, **fields: Any) -> JobFacts:
    known: dict[str, Any] = dict.fromkeys(StoredJob._fields)
    known |= dict.fromkeys(("retried", "losses", "lost", "snoozed"), 0)
    known |= {"id": b"\0" * 16, "lane": "shop:mail", "task": "shop.pay", "state": state}
    job = StoredJob(**{**known, **fields.pop("job", {})})
    workers = [] if worker is None else [worker]
    return JobFacts(job, 1000.0, NO_ROW_OPTIONS, workers=workers, **fields)


def row(left: float = 30.0, **fields: Any) -> WorkerRow:
    info = {"name": "a/1", "queues": None, "concurrency": 2, "version": "0.0", **fields}
    return WorkerRow(7, info, left, int(fields.get("running", 0)), fields.get("vitals"))


def found(some: JobFacts) -> list[str]:
    return [reason.code for reason in reasons_of(some)]


def test_a_worker_of_an_older_release_may_have_every_task() -> None:
    assert found(facts(READY, row())) == ["in_line"]
    assert found(facts(READY, row(tasks=["shop.pay"]))) == ["in_line"]
    assert found(facts(READY, row(tasks=["shop.send"]))) == ["task_unknown"]
    join = facts(READY, row(tasks=[]), job={"task": "shop.~join"})
    assert found(join) == ["in_line"]


def test_a_renamed_task_is_suggested() -> None:
    some = facts(
        READY, row(tasks=["shop.pay2"]), known_tasks={"shop.pay2"}, is_loaded=False
    )
    assert reasons_of(some)[0].command == "durio jobs rename shop.pay shop.pay2"


def test_an_attempt_past_its_hard_limit_blocks() -> None:
    job = {"worker": 7, "started_at": 500.0, "opts": None}
    some = facts(RUNNING, row(), job=job)._replace(
        options=NO_ROW_OPTIONS.__class__(timeout=(200.0, 300.0))
    )
    first, second = reasons_of(some)
    assert (first.code, first.command) == ("past_hard_limit", "durio workers stack 7")
    assert (second.code, second.is_blocking) == ("running", False)
    late = some._replace(now=799.0)
    assert found(late) == ["running"]


def test_a_worker_that_is_gone_or_stops() -> None:
    job = {"worker": 7, "started_at": 990.0}
    gone = facts(RUNNING, None, job=job)
    assert found(gone) == ["worker_lost", "no_worker"]
    other = row()._replace(id=8)
    assert found(gone._replace(workers=[row(-5.0), other])) == ["worker_lost"]
    vitals = Vitals(0.0, 0, 0, 0, draining=True)
    stops = facts(RUNNING, row(vitals=vitals, running=3), job=job)
    assert found(stops) == ["running", "claimed_ahead", "worker_draining"]


def test_a_closed_queue_is_only_noted() -> None:
    lane = LaneRow("shop:mail", paused=False, closed=True)
    assert found(facts(READY, row(), lane=lane)) == ["in_line", "queue_closed"]


QUICK = {"worker": {"heartbeat_seconds": 1, "lease_seconds": 30}}


@virtual(name="shop", settings=QUICK)
async def test_a_worker_says_what_it_has_and_that_it_stops(app: App):
    async def nap() -> None:
        await app.clock.sleep(20)

    task = app.task(name="nap")(nap)
    running = await task.enqueue()
    async with working(app) as worker:
        await reached(running, lambda status: status.state == "running")
        (row,) = await (await app.store()).workers("shop")
        assert row.info["tasks"] == ["shop.nap"]
        assert row.info["lease_seconds"] == 30
        assert not row.is_draining
        worker.stop()
        await app.clock.sleep(3)
        waiting = await task.enqueue()
        assert codes(await waiting.explain()) == ["workers_draining"]
        assert "worker_draining" in codes(await running.explain())


# --- held back by a breaker


@virtual(name="shop", breakers=[Breaker("smtp", failures=1, open_for="20s")])
async def test_an_open_breaker_is_named(app: App):
    @app.task(name="send", breaker="smtp")
    async def send() -> None:
        raise ConnectionRefusedError("no route")

    @app.task(name="first")
    async def first() -> None: ...

    store = await app.store()

    async def forced(verb: str) -> None:
        now = app.clock.now()
        found = await find_breaker(store, "shop", "smtp", app.breakers, now)
        await force_breaker(store, found, verb, ForcedState(by="ann", at=now))

    async with working(app):
        failed = await send.enqueue()
        await reached(failed, lambda status: status.state == "scheduled")
        await app.clock.sleep(1)
        held = await send.enqueue()
        await (first.si() | send.si()).enqueue()
        await app.clock.sleep(1)
        newest, *_ = await records(app)
        assert newest.task == "shop.send"
        for job in (held, Job(app, newest.id)):
            found = await job.explain()
            assert found.state == "blocked"
            assert codes(found)[0] == "breaker_open"
            assert (found.command or "").startswith("durio breakers reset smtp")
            said = text(found, "breaker_open")
            assert 'breaker "smtp" is open until 20' in said
            assert "1 of 1 call failed within 60 s" in said
            assert "ConnectionRefusedError: no route" in said
        waits = await failed.explain()
        assert codes(waits)[-1] == "breaker_open"
        assert [each.code for each in waits.blocking] == ["retry_wait"]
        await forced("open")
        assert "by ann, until a reset" in text(await held.explain(), "breaker_open")

        def half(record: BreakerRecord | None) -> BreakerRecord | None:
            assert record is not None
            opened = half_opened(record, app.clock.now())
            return with_probe(opened, held.id, app.clock.now())

        await change_breaker(store, "shop", "smtp", half)
        said = text(await held.explain(), "breaker_half_open")
        assert "1 of 2 jobs try its dependency, and the others wait" in said
        assert held.id in said
        await forced("reset")
        assert "breaker_half_open" not in codes(await held.explain())


@virtual(name="shop", breakers=[Breaker("smtp", failures=1)])
async def test_a_breaker_is_named_without_the_tasks_code(app: App):
    @app.task(name="send", breaker="smtp")
    async def send() -> None:
        raise ConnectionRefusedError

    async with working(app):
        await send.enqueue()
        await app.clock.sleep(2)
        held = await send.enqueue()
        job = (await (await app.store()).get([id_bytes(held.id)]))[0]
        elsewhere: Any = Elsewhere(app)
        assert codes(await explain_job(elsewhere, job))[0] == "breaker_open"


class Elsewhere:
    """An App without the code of its tasks."""

    def __init__(self, app: App) -> None:
        self._app = app

    def limits_of(self, _task: str) -> None: ...

    def handler_of(self, _task: str) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)
