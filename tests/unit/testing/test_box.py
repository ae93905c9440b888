"""`durio.testing.testing`: what a test does with a box, in memory."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from durio import App, Context, JobDetails, Permanent, Retry
from durio.errors import InvalidOption, JobDead, UsageError
from durio.limits import Batch, Err
from durio.testing import Box, testing
from durio.testing.box_state import BOXED
from durio.worker.middleware import CallNext, HookEvent

# No such server: whatever opens the App's own store fails.
FORBIDDEN = "postgresql://never-opened.invalid/shop"
ran: list[Any] = []


@dataclass
class Address:
    street: str


@asynccontextmanager
async def connected() -> AsyncIterator[str]:
    ran.append("connected")
    yield "a connection"
    ran.append("disconnected")


async def noting(ctx: Context[Any], call_next: CallNext) -> Any:
    ran.append(f"around {ctx.task}")
    return await call_next()


app = App(FORBIDDEN, name="shop")
full = App(FORBIDDEN, name="full", deps=connected, middleware=[noting])


@app.task
async def send(to: Address, copies: int = 1) -> str:
    ran.append((to, copies))
    return to.street


@app.task
async def count_down(left: int) -> None:
    ran.append(left)
    if left:
        await count_down.enqueue(left - 1)


@app.task(retry=Retry(2, base=600, jitter=False))
def fragile(reason: str) -> None:
    ran.append(reason)
    raise ValueError(reason)


@app.task(retry=0)
async def doomed(reason: str) -> None:
    raise KeyError(reason)


@app.task(process=True)
def crunch(n: int) -> int:
    ran.append(os.getpid())
    return n * 2


@app.task(timeout=0.001)
async def slow() -> str:
    for _ in range(20):
        await asyncio.get_running_loop().run_in_executor(None, str)
    return "done"


@full.task
async def hello(ctx: Context[str]) -> str:
    ran.append(ctx.deps)
    await send.enqueue(Address("Main Street"))
    return ctx.deps


@full.hooks.after
def observe(event: HookEvent) -> None:
    ran.append(f"after {event.task}")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    ran.clear()
    declared = dict(app.registry.handlers)
    yield
    app.registry.handlers.clear()  # a test may have declared tasks of its own
    app.registry.handlers.update(declared)
    assert not BOXED
    assert "_DURIO_TESTING" not in os.environ
    assert app.url == full.url == FORBIDDEN


@pytest.fixture
def box() -> Iterator[Box]:
    with testing(app) as box:
        yield box


# --- the block


def test_a_plain_with_works_inside_a_running_loop() -> None:
    async def story() -> str:
        with testing(app) as box:
            job = await send.enqueue(Address("Main Street"))
            assert [each.task for each in box.jobs()] == ["shop.send"]
            await box.drain()
            return await job.result(timeout=5)

    assert asyncio.run(story()) == "Main Street"


def test_the_same_in_sync_code(box: Box) -> None:
    job = send.enqueue_sync(Address("Main Street"))
    box.drain_sync()
    assert job.result_sync(timeout=5) == "Main Street"
    assert job.status_sync().state == "done"


def test_everything_is_swapped_and_put_back() -> None:
    before = app.state
    with testing(app) as box:
        assert app.url == box.url == "sqlite:///:memory:"
        assert app.clock is box.clock
        assert app.state is not before
        send.enqueue_sync(Address("x"))
    assert app.state is before
    assert not before.stores
    assert not before.by_loop


def test_an_error_in_the_block_puts_everything_back() -> None:
    before = app.state
    with pytest.raises(ZeroDivisionError), testing(app, full):
        raise ZeroDivisionError
    assert app.state is before


def test_a_store_that_cannot_be_opened_puts_everything_back() -> None:
    before = app.state
    with pytest.raises(Exception, match="there is no folder"):
        testing(app, url="sqlite:////no/such/folder/test.db").__enter__()
    assert app.state is before


def test_boxes_nest_and_each_has_its_own_jobs(box: Box) -> None:
    send.enqueue_sync(Address("outer"))
    with testing(app) as inner:
        send.enqueue_sync(Address("inner"))
        assert [job.arguments["to"].street for job in inner.jobs()] == ["inner"]
        inner.drain_sync()
    assert [job.arguments["to"].street for job in box.jobs()] == ["outer"]
    assert box.jobs()[0].state == "ready"


def test_boxes_may_be_left_in_any_order() -> None:
    before, outer, inner = app.state, testing(app), testing(app)
    outer.__enter__()
    box = inner.__enter__()
    outer.__exit__(None, None, None)
    send.enqueue_sync(Address("x"))
    assert len(box.jobs()) == 1
    inner.__exit__(None, None, None)
    assert app.state is before


def test_a_box_starts_empty() -> None:
    for _ in range(2):
        with testing(app) as box:
            assert box.jobs() == []
            send.enqueue_sync(Address("x"))


def test_closing_the_app_in_the_block_keeps_its_jobs(box: Box) -> None:
    async def story() -> None:
        async with app:
            await send.enqueue(Address("x"))

    asyncio.run(story())
    assert len(box.jobs()) == 1


def test_a_test_may_enqueue_more_than_an_embedded_queue_holds(box: Box) -> None:
    send.enqueue_many_sync([(Address("x"),)] * 1500)
    assert len(box.jobs()) == 1500


def test_spawned_work_ends_with_the_box() -> None:
    async def story() -> bool:
        with testing(app):
            task = app.spawn(asyncio.Event().wait())
        await asyncio.wait((task,))
        return task.cancelled()

    assert asyncio.run(story())


def test_pytest_does_not_take_it_for_a_test() -> None:
    assert testing.__test__ is False


# --- jobs


def test_jobs_come_in_the_order_of_enqueue_with_decoded_arguments(box: Box) -> None:
    for street in "bca":
        send.enqueue_sync(Address(street), copies=2)
    count_down.enqueue_sync(0)
    found = box.jobs(send)
    assert [job.arguments for job in found] == [
        {"to": Address(street), "copies": 2} for street in "bca"
    ]
    assert box.jobs("send") == box.jobs("shop.send") == found
    assert all(isinstance(job, JobDetails) for job in found)
    assert found[0].kwargs == {"to": {"street": "b"}, "copies": 2}
    assert [job.task for job in box.jobs()] == ["shop.send"] * 3 + ["shop.count_down"]


def test_jobs_can_be_read_by_a_running_task(box: Box) -> None:
    @app.task(name="reader")
    async def reader() -> int:
        return len(box.jobs())

    job = reader.enqueue_sync()
    box.drain_sync()
    assert job.result_sync() == 1


def test_a_job_of_several_calls_has_the_arguments_of_each(box: Box) -> None:
    send.chunks([(Address("a"),), (Address("b"), 2)], 2).enqueue_sync()
    (chunk,) = box.jobs(send)
    calls = {"0": {"to": Address("a")}, "1": {"to": Address("b"), "copies": 2}}
    assert chunk.arguments == calls
    assert chunk.args == [
        [[], {"to": {"street": "a"}}],
        [[], {"to": {"street": "b"}, "copies": 2}],
    ]
    assert chunk.kwargs == {}


def test_jobs_of_another_program_show_their_arguments_as_sent(box: Box) -> None:
    app.enqueue_sync("mail.send", "a@b.c", copies=2)
    (job,) = box.jobs("mail.send")
    assert job.arguments == {"0": "a@b.c", "copies": 2}
    box.drain_sync()
    assert box.jobs()[0].state == "ready"


@pytest.mark.parametrize(
    "ask", [Box.jobs, lambda box, name: box.fail_next(name, OSError)]
)
def test_an_unknown_task_gets_a_suggestion(box: Box, ask: Any) -> None:
    with pytest.raises(
        UsageError, match=r"(?s)no App in this box has a task 'sent'.*send"
    ):
        ask(box, "sent")


# --- drain


def test_drain_runs_what_its_tasks_enqueue(box: Box) -> None:
    count_down.enqueue_sync(3)
    box.drain_sync()
    assert ran == [3, 2, 1, 0]
    assert {job.state for job in box.jobs()} == {"done"}


def test_what_is_scheduled_stays(box: Box) -> None:
    send.options(delay="1h").enqueue_sync(Address("x"))
    box.drain_sync()
    assert ran == []
    assert [job.state for job in box.jobs()] == ["scheduled"]


def test_a_drain_of_nothing_starts_no_worker() -> None:
    with testing(full) as box:
        box.drain_sync()
    assert ran == []


def test_drain_takes_the_real_path_over_several_apps() -> None:
    with testing(app, full) as box:
        hello.enqueue_sync()
        box.drain_sync()
        assert [job.state for job in box.jobs()] == ["done", "done"]
    assert ran == [
        *("connected", "around full.hello", "a connection", "after full.hello"),
        "disconnected",
        (Address("Main Street"), 1),
    ]


def test_drain_raises_the_exception_of_a_dead_job(box: Box) -> None:
    job = doomed.enqueue_sync("no such order")
    with pytest.raises(KeyError, match="no such order") as caught:
        box.drain_sync()
    assert caught.value.__notes__ == [f"Job {job.id} ended dead in box.drain()."]
    assert box.jobs()[0].state == "dead"
    box.drain_sync()  # only of jobs that died in it


def test_of_several_dead_jobs_the_first_is_raised(box: Box) -> None:
    for reason in ("first", "second"):
        doomed.enqueue_sync(reason)
    with pytest.raises(KeyError, match="first") as caught:
        box.drain_sync()
    assert caught.value.__notes__[0].endswith("and 1 more.")


def test_drain_keeps_the_errors_on_request(box: Box) -> None:
    doomed.enqueue_sync("x")
    box.drain_sync(errors="keep")
    (job,) = box.jobs()
    assert (job.state, job.reason) == ("dead", "exhausted")


def test_a_job_that_dies_without_an_exception_raises_jobdead(box: Box) -> None:
    app.enqueue_sync("count_down", 1)
    # The worker cannot decode it: the function is not called.
    box._ask(break_payload(box))
    with pytest.raises(JobDead, match="bad_payload"):
        box.drain_sync()


async def break_payload(box: Box) -> None:
    await box._store.context.writer.write(
        lambda tx: tx.db.rows("update job set payload = ?1", (b'[[], {"left": "x"}]',))
    )


def test_a_bad_value_of_errors_is_refused(box: Box) -> None:
    with pytest.raises(InvalidOption, match="errors cannot be 'ignore'"):
        box.drain_sync(errors="ignore")  # type: ignore[arg-type]


def test_a_drain_inside_a_task_is_refused(box: Box) -> None:
    @app.task(name="nested", retry=0)
    async def nested() -> None:
        await box.drain()

    nested.enqueue_sync()
    with pytest.raises(UsageError, match=r"box\.drain\(\) was called inside a task"):
        box.drain_sync()


def test_two_drains_at_once_are_refused(box: Box) -> None:
    async def story() -> None:
        await send.enqueue(Address("x"))
        with pytest.raises(UsageError, match="is being drained already"):
            await asyncio.gather(box.drain(), box.drain())

    asyncio.run(story())


def test_waiting_without_a_drain_ends_with_an_error(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durio.testing.box_state.UNDRAINED_SECONDS", 0.01)
    job = send.enqueue_sync(Address("Main Street"))
    with pytest.raises(UsageError, match="nothing runs jobs in this testing box") as it:
        job.result_sync()
    assert "box.drain_sync()" in it.value.cure
    box.drain_sync()
    assert job.result_sync() == "Main Street"


@pytest.mark.usefixtures("box")
def test_a_wait_goes_on_while_a_worker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durio.testing.box_state.UNDRAINED_SECONDS", 0.01)

    async def story() -> str:
        async with app.worker():
            job = await send.options(delay=0.3).enqueue(Address("Main Street"))
            return await job.result(timeout=30)

    assert asyncio.run(story()) == "Main Street"


def test_drain_sync_inside_a_loop_names_the_async_twin(box: Box) -> None:
    async def story() -> None:
        with pytest.raises(UsageError, match="running event loop"):
            box.drain_sync()

    asyncio.run(story())


# --- time


def test_advance_moves_the_clock_of_store_and_app(box: Box) -> None:
    send.options(delay="1h").enqueue_sync(Address("x"))
    box.clock.advance("59m")
    box.drain_sync()
    assert ran == []
    box.clock.advance(timedelta(minutes=1))
    box.drain_sync()
    (job,) = box.jobs()
    assert job.state == "done"
    assert (job.finished_at - job.created_at) >= timedelta(hours=1)


def test_advance_does_not_move_the_event_loop(box: Box) -> None:
    async def story() -> None:
        loop, fired = asyncio.get_running_loop(), []
        timer = loop.call_later(1800, fired.append, 1)
        box.clock.advance("1h")
        await send.enqueue(Address("x"))
        await box.drain()
        timer.cancel()
        assert not fired

    asyncio.run(story())


def test_drain_until_jumps_from_due_time_to_due_time(box: Box) -> None:
    begun = box.clock.now()
    fragile.enqueue_sync("again")
    with pytest.raises(ValueError, match="again"):
        box.drain_sync(until="1h")
    assert ran == ["again"] * 3
    # Two pauses, of 10 and 20 minutes; the job was dead then.
    assert 1800 <= box.clock.now() - begun < 3600


def test_no_time_passes_during_a_drain(box: Box) -> None:
    """A job enqueued by a task, due at the very end of `until`, runs."""

    @app.task(name="later")
    async def later(days: int) -> None:
        ran.append(days)
        if days:
            await later.options(delay="7d").enqueue(0)

    later.enqueue_sync(7)
    box.drain_sync(until="7d")
    assert ran == [7, 0]


def test_drain_until_ends_at_that_time(box: Box) -> None:
    begun = box.clock.now()
    send.options(delay="2h").enqueue_sync(Address("x"))
    box.drain_sync(until="1h")
    assert ran == []
    assert 3600 <= box.clock.now() - begun < 7200
    box.drain_sync(until="1h")
    assert len(ran) == 1


@pytest.mark.parametrize("back", [-1, "-1h", timedelta(hours=-1)])
def test_the_clock_cannot_go_back(box: Box, back: Any) -> None:
    with pytest.raises(UsageError, match="the clock of a box cannot go back"):
        box.clock.advance(back)


def test_advance_takes_durations_only(box: Box) -> None:
    with pytest.raises(InvalidOption, match="advance cannot be 'soon'"):
        box.clock.advance("soon")


def test_time_limits_do_not_run(box: Box) -> None:
    job = slow.enqueue_sync()
    box.drain_sync()
    assert job.result_sync() == "done"


# --- failures on request


def test_fail_next_fails_one_attempt(box: Box) -> None:
    box.fail_next(send, ConnectionError("no route"))
    send.enqueue_sync(Address("x"))
    box.drain_sync()
    assert ran == []
    assert box.jobs()[0].last_error.type == "ConnectionError"
    box.drain_sync(until="1h")
    assert ran == [(Address("x"), 1)]
    assert box.jobs()[0].attempt == 2


def test_fail_next_takes_several_and_control_exceptions(box: Box) -> None:
    box.fail_next("send", OSError)
    box.fail_next(send, Permanent("gone"))
    send.enqueue_sync(Address("x"))
    with pytest.raises(Permanent, match="gone"):
        box.drain_sync(until="1h")


def test_a_box_knows_the_old_names_of_a_task() -> None:
    renamed = App(FORBIDDEN, name="renamed")

    @renamed.task(name="charge", aliases=("pay",), retry=0)
    async def charge(order: int) -> int:
        return order

    with testing(renamed) as box:
        renamed.enqueue_sync("pay", 1)
        assert [job.task for job in box.jobs("pay")] == [charge.name]
        assert box.jobs(renamed.named("pay")) == box.jobs(charge)
        box.fail_next("pay", ConnectionError("no route"))
        with pytest.raises(ConnectionError, match="no route"):
            box.drain_sync()


def test_a_batch_task_runs_with_an_outcome_for_each_job() -> None:
    packed = App(FORBIDDEN, name="packed")
    calls: list[list[int]] = []

    @packed.task(
        name="halve", batch=Batch(8, "10ms"), retry=Retry(1, base="1m", jitter=False)
    )
    async def halve(items: list[int]) -> list[int | Err]:
        calls.append(items)
        odd = [Err(ValueError(f"{item} is odd")) for item in items]
        return [
            end if item % 2 else item // 2 for item, end in zip(items, odd, strict=True)
        ]

    with testing(packed) as box:
        for number in (4, 5, 6):
            packed.enqueue_sync("halve", number)
        box.fail_next(halve, ConnectionError("no route"))
        box.drain_sync()
        assert calls == []
        with pytest.raises(ValueError, match="5 is odd"):
            box.drain_sync(until="1h")
        assert calls == [[4, 5, 6]]
        states = [(job.state, job.attempt) for job in box.jobs(halve)]
        assert states == [("done", 2), ("dead", 2), ("done", 2)]


def test_fail_next_takes_exceptions_only(box: Box) -> None:
    with pytest.raises(UsageError, match="fail_next takes an exception, not 'no'"):
        box.fail_next(send, "no")  # type: ignore[arg-type]


# --- what is refused


def test_an_app_with_a_running_worker_is_refused() -> None:
    scratch = App("sqlite:///:memory:", name="scratch")

    async def story() -> None:
        async with scratch.worker():
            with pytest.raises(UsageError, match="'scratch' has a running worker"):
                testing(scratch).__enter__()
        with testing(scratch):
            pass

    asyncio.run(story())


def test_a_box_inside_a_task_is_refused(box: Box) -> None:
    @app.task(name="boxing", retry=0)
    def boxing() -> None:
        testing(full).__enter__()

    boxing.enqueue_sync()
    with pytest.raises(UsageError, match=r"testing\(\) was called inside a task"):
        box.drain_sync()


def test_only_apps_go_into_a_box() -> None:
    with pytest.raises(UsageError, match=r"testing\(\) takes Apps, not 'shop:app'"):
        testing("shop:app").__enter__()  # type: ignore[arg-type]


def test_drain_raises_the_cause_of_a_retry(box: Box) -> None:
    @app.task(name="wraps")
    def wraps() -> None:
        try:
            {}["stock"]
        except KeyError as error:
            raise Retry(0) from error

    wraps.enqueue_sync()
    with pytest.raises(KeyError, match="stock"):
        box.drain_sync()


@pytest.mark.usefixtures("box")
def test_tx_on_the_memory_store_is_refused() -> None:
    refused = r"(?s)memory cannot join a transaction.*testing\(app"
    with (
        closing(sqlite3.connect(":memory:")) as tx,
        pytest.raises(UsageError, match=refused),
    ):
        send.options(tx=tx).enqueue_sync(Address("x"))


def test_a_transaction_on_the_memory_store_is_refused(box: Box) -> None:
    @app.task(name="own", retry=0)
    async def own(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    own.enqueue_sync()
    with pytest.raises(
        UsageError, match=r"(?s)no transactions for tasks.*testing\(app"
    ):
        box.drain_sync()


# --- tasks with process=True


def test_a_process_task_runs_in_a_thread(box: Box) -> None:
    job = crunch.enqueue_sync(4)
    box.drain_sync()
    assert job.result_sync() == 8
    assert ran == [os.getpid()]


@pytest.mark.usefixtures("box")
def test_no_child_starts_for_an_embedded_worker_either() -> None:
    async def story() -> None:
        async with app.worker() as worker:
            job = await crunch.enqueue(4)
            await worker.drained(timeout=30)
            assert await job.result() == 8

    asyncio.run(story())
    assert ran == [os.getpid()]


def test_a_process_task_has_no_transaction_here_either(box: Box) -> None:
    @app.task(name="own_process", process=True, retry=0)
    def own_process(ctx: Context) -> None:
        with ctx.transaction():
            pass

    own_process.enqueue_sync()
    with pytest.raises(UsageError, match="runs in a child process"):
        box.drain_sync()
