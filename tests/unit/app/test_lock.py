"""`app.lock` and `app.once` in virtual time: waits, renewals, losses, and claims of keys."""

import asyncio
from typing import Any

import pytest

from durio import App, Context, State
from durio.client.lock import Lock
from durio.errors import InvalidName, InvalidOption, LockLost, LockTimeout, UsageError
from durio.model.effects import Effects, Put
from durio.model.errors import StoreUnavailable
from durio.model.lock import LockHolder, load_holder, locks_kind, once_kind
from durio.ports.records import Record
from tests.unit.app.app_harness import finished, in_state, real, virtual, working

pytestmark = pytest.mark.slow  # real processes, servers or seconds


async def record(app: App, name: str, kind: str = "") -> Record | None:
    store = await app.store()
    found = await store.records(kind or locks_kind(app.name), [name])
    return found[0] if found else None


async def steal(app: App, name: str) -> None:
    """Let the record change hands, as after a long pause of its holder."""
    body = b'{"worker":"other/1","id":"x"}'
    put = Put(locks_kind(app.name), name, body, ttl_seconds=30)
    await (await app.store()).commit(Effects(puts=[put]))


class AwayStore:
    """A store whose commits fail while `is_away`, before or after they have written."""

    def __init__(self, app: App, store: Any) -> None:
        self.store = store
        self.is_away = False
        self.loses_replies = False
        self.commit_real = store.commit
        store.commit = self.commit
        del app

    async def commit(self, effects: Effects, **options: Any) -> Any:
        if self.is_away:
            raise StoreUnavailable("away")
        answer = await self.commit_real(effects, **options)
        if self.loses_replies:
            self.loses_replies = False
            raise StoreUnavailable("no reply", unknown=True)
        return answer


# --- one at a time


@virtual
async def test_a_lock_is_held_and_freed(app: App):
    async with app.lock("invoice:42") as lock:
        assert lock.is_held
        assert lock.token > 0
        assert await record(app, "invoice:42") is not None
        first = lock.token
    assert not lock.is_held
    assert await record(app, "invoice:42") is None
    async with app.lock("invoice:42") as lock:
        assert lock.token > first


@pytest.mark.proves("M121", "L15")
@virtual
async def test_blocks_never_overlap_however_long_they_take(app: App):
    """Each holds the lock for four times its ttl."""
    inside = peak = 0
    tokens: list[int] = []

    async def work() -> None:
        nonlocal inside, peak
        async with app.lock("invoice:42", wait="1h") as lock:
            tokens.append(lock.token)
            inside += 1
            peak = max(peak, inside)
            await app.clock.sleep(120)
            inside -= 1

    await asyncio.gather(*(work() for _ in range(5)))
    assert peak == 1
    assert tokens == sorted(set(tokens))


@virtual
async def test_an_error_of_the_block_frees_the_lock(app: App):
    with pytest.raises(ValueError, match="no"):
        async with app.lock("invoice:42"):
            raise ValueError("no")
    assert await record(app, "invoice:42") is None


@virtual
async def test_a_wait_that_is_too_short_names_the_holder(app: App):
    started = asyncio.Event()

    @app.task(name="pay")
    async def pay(ctx: Context) -> str:
        async with app.lock("invoice:42"):
            started.set()
            await app.clock.sleep(100)
        return ctx.job_id

    async with working(app):
        job = await pay.enqueue()
        await started.wait()
        await app.clock.sleep(20)
        before = app.clock.monotonic()
        with pytest.raises(LockTimeout) as caught:
            async with app.lock("invoice:42", wait="12s"):
                raise AssertionError
        assert app.clock.monotonic() - before == pytest.approx(12, abs=0.01)
        assert f"held by job {job.id} (app.pay) on " in caught.value.what
        assert "for 32 s (token " in caught.value.what
        assert caught.value.what.endswith("waited 12 s")
        assert caught.value.values["job"] == job.id
        with pytest.raises(LockTimeout, match="waited 0 s"):
            async with app.lock("invoice:42", wait=0):
                raise AssertionError
        assert await job.result() == job.id


@virtual
async def test_a_lock_is_free_30_seconds_after_its_holder_died(app: App):
    async def hold() -> None:
        async with app.lock("invoice:42"):
            await app.clock.sleep(1000)

    holder = asyncio.get_running_loop().create_task(hold())
    await app.clock.sleep(7)
    store = AwayStore(app, await app.store())
    store.is_away = True  # it cannot renew or free the lock any more
    holder.cancel()
    await asyncio.wait([holder])
    store.is_away = False
    before = app.clock.monotonic()
    async with app.lock("invoice:42", wait="1m"):
        assert 27 <= app.clock.monotonic() - before <= 30


@virtual
async def test_a_name_is_taken_once_by_a_task(app: App):
    async with app.lock("invoice:42") as lock, app.lock("invoice:43"):
        for again in (app.lock("invoice:42"), lock):
            with pytest.raises(UsageError, match="taken twice by one task"):
                async with again:
                    raise AssertionError

        async def child() -> None:
            async with app.lock("invoice:42"):
                raise AssertionError

        with pytest.raises(UsageError, match="taken twice by one task"):
            await asyncio.get_running_loop().create_task(child())
        later = asyncio.get_running_loop().create_task(self_later(app))
    await later
    async with lock:
        assert lock.is_held


async def self_later(app: App) -> None:
    """A task that outlives the block which started it may take the lock."""
    await app.clock.sleep(1)
    async with app.lock("invoice:42"):
        pass


@pytest.mark.parametrize("name", ["", "a\0b", 42, "x" * 256])
@virtual
async def test_a_wrong_name_is_refused(app: App, name: Any):
    for call in (app.lock, app.once):
        with pytest.raises(InvalidName, match="the name of a lock or a key of once"):
            call(name)


@virtual
async def test_wrong_durations_are_refused(app: App):
    with pytest.raises(InvalidOption, match="wait cannot be -1"):
        app.lock("a", wait=-1)
    with pytest.raises(InvalidOption, match="ttl cannot be 0"):
        app.once("a", ttl=0)
    with pytest.raises(UsageError, match="is not held here"):
        app.lock("a").token  # noqa: B018
    with pytest.raises(UsageError, match="is not held here"):
        app.lock("a").check()
    with pytest.raises(UsageError, match="was not entered"):
        bool(app.once("a"))


# --- losses


@virtual
async def test_a_lost_lock_cancels_its_block(app: App):
    """Within one renewal; the block may clean up."""
    cleaned = False
    with pytest.raises(LockLost) as caught:  # noqa: PT012
        async with app.lock("invoice:42") as lock:
            before = app.clock.monotonic()
            await steal(app, "invoice:42")
            try:
                await app.clock.sleep(1000)
            finally:
                cleaned = True
    assert cleaned
    assert app.clock.monotonic() - before <= 5
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await app.clock.sleep(1)
    found = await record(app, "invoice:42")
    assert found is not None
    assert load_holder(found.body).worker == "other/1"
    assert not lock.is_held


@virtual
async def test_a_lost_lock_makes_the_job_retry(app: App):
    attempts: list[int] = []

    @app.task(name="pay", retry=1)
    async def pay(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        async with app.lock("invoice:42", wait="1m"):
            if ctx.attempt == 1:
                await steal(app, "invoice:42")
                await app.clock.sleep(1000)

    async with working(app):
        job = await pay.enqueue()
        status = await finished(job)
    assert attempts == [1, 2]
    assert status.state is State.DONE
    assert status.last_error is not None
    assert status.last_error.type == "LockLost"


@virtual
async def test_a_store_that_is_away_for_too_long_loses_the_lock(app: App):
    """No renewal for 30 s: the block is cancelled when the lock ends, not later."""
    store = AwayStore(app, await app.store())
    before = app.clock.monotonic()
    with pytest.raises(LockLost):  # noqa: PT012
        async with app.lock("invoice:42"):
            store.is_away = True
            await app.clock.sleep(1000)
    assert 25 <= app.clock.monotonic() - before <= 30


@virtual
async def test_a_store_that_comes_back_keeps_the_lock(app: App):
    store = AwayStore(app, await app.store())
    async with app.lock("invoice:42") as lock:
        store.is_away = True
        await app.clock.sleep(22)
        store.is_away = False
        await app.clock.sleep(100)
        lock.check()
    assert await record(app, "invoice:42") is None


@virtual
async def test_lost_replies_change_nothing(app: App):
    store = AwayStore(app, await app.store())
    store.loses_replies = True
    async with app.lock("invoice:42"):
        store.loses_replies = True
        await app.clock.sleep(100)
        store.loses_replies = True
    assert await record(app, "invoice:42") is None


@pytest.mark.proves("M102", "L15")
@virtual
async def test_a_paused_holder_is_fenced_by_its_token(app: App):
    """It stands still past its ttl, another takes over; its late write is refused."""
    ledger: list[tuple[int, str]] = []

    def write(token: int, text: str) -> bool:
        if ledger and ledger[-1][0] > token:
            return False
        ledger.append((token, text))
        return True

    with pytest.raises(LockLost):  # noqa: PT012
        async with app.lock("invoice:42") as old:
            other = Lock(app, "invoice:42", LockHolder(worker="other/1"), 60.0)
            paused = old._held  # the renewals stop, as in a process that was stopped
            assert paused is not None
            await paused._stop_renewing()

            async def successor() -> None:
                async with other:
                    assert other.token > old.token
                    assert write(other.token, "new")

            task = asyncio.get_running_loop().create_task(
                successor(), context=empty_context()
            )
            await task
            assert not old.is_held
            with pytest.raises(LockLost):
                old.check()
            assert not write(old.token, "old")
    assert [text for _, text in ledger] == ["new"]


def empty_context() -> Any:
    """The context of another process, which knows no blocks of this one."""
    import contextvars  # noqa: PLC0415

    return contextvars.Context()


@virtual
async def test_the_end_of_a_block_notices_the_loss(app: App):
    """It had no await at which it could be cancelled."""
    with pytest.raises(LockLost):
        async with app.lock("invoice:42"):
            await steal(app, "invoice:42")


@virtual
async def test_an_error_of_the_block_is_kept_after_a_loss(app: App):
    with pytest.raises(ValueError, match="own"):  # noqa: PT012
        async with app.lock("invoice:42"):
            await steal(app, "invoice:42")
            try:
                await app.clock.sleep(1000)
            except asyncio.CancelledError:
                raise ValueError("own") from None
    await app.clock.sleep(1)  # no cancel is left


@virtual
async def test_a_cancel_from_outside_stays_a_cancel(app: App):
    async def hold() -> None:
        async with app.lock("invoice:42"):
            await app.clock.sleep(1000)

    task = asyncio.get_running_loop().create_task(hold())
    await app.clock.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await record(app, "invoice:42") is None


# --- once


@pytest.mark.proves("M94", "L14")
@virtual
async def test_work_is_done_once_for_a_key(app: App):
    done: list[str] = []
    for name in ("first", "second"):
        async with app.once("charge:42", ttl="24h") as first:
            if first:
                done.append(name)
            assert first.is_done is (name == "second")
    assert done == ["first"]
    await app.clock.sleep(86400)
    async with app.once("charge:42") as first:
        assert first


@pytest.mark.proves("M94")
@virtual
async def test_a_failed_block_frees_the_key(app: App):
    with pytest.raises(ValueError, match="declined"):  # noqa: PT012
        async with app.once("charge:42") as first:
            assert first
            raise ValueError("declined")
    async with app.once("charge:42") as first:
        assert first


@pytest.mark.proves("M93", "M94")
@virtual
async def test_a_key_that_is_held_is_skipped(app: App):
    """It may still fail: it is not done."""
    runs = 0

    async def charge() -> tuple[bool, bool]:
        nonlocal runs
        async with app.once("charge:42") as first:
            if first:
                runs += 1
                await app.clock.sleep(100)
            return bool(first), first.is_done

    answers = await asyncio.gather(*(charge() for _ in range(4)))
    assert sorted(answers) == [(False, False)] * 3 + [(True, False)]
    assert runs == 1
    assert await charge() == (False, True)


@virtual
async def test_a_key_is_free_after_the_death_of_its_holder(app: App):
    @app.task(name="charge")
    async def charge() -> None:
        async with app.once("charge:42") as first:
            assert first
            await app.clock.sleep(1000)

    store = AwayStore(app, await app.store())
    async with working(app) as worker:
        job = await charge.enqueue()
        await in_state(job, State.RUNNING)
        await app.clock.sleep(1)
        store.is_away = True
        worker.stop()
        worker.stop()
    store.is_away = False
    assert await record(app, "charge:42", once_kind(app.name)) is not None
    await app.clock.sleep(30)
    async with app.once("charge:42") as first:
        assert first


@virtual
async def test_a_claim_that_was_lost_is_not_done(app: App):
    with pytest.raises(LockLost, match="once 'charge:42' was lost"):  # noqa: PT012
        async with app.once("charge:42") as first:
            assert first
            put = Put(once_kind(app.name), "charge:42", None)
            await (await app.store()).commit(Effects(puts=[put]))
            await app.clock.sleep(1000)
    async with app.once("charge:42") as first:
        assert first


@virtual
async def test_an_end_that_cannot_be_written_is_an_error_of_once(app: App):
    """Not of a lock: that block had it to its end."""
    store = AwayStore(app, await app.store())
    with pytest.raises(StoreUnavailable):
        async with app.once("charge:42"):
            store.is_away = True
    store.is_away = False
    async with app.lock("charge:42"):
        store.is_away = True


# --- sync code


@real
async def test_sync_code_has_the_same_locks(app: App):
    @app.task(name="pay")
    def pay() -> list[bool]:
        with app.lock("invoice:42") as lock, app.once("charge:42") as first:
            lock.check()
            assert lock.token > 0
            with pytest.raises(UsageError, match="taken twice"):
                app.lock("invoice:42").__enter__()
            return [bool(first), lock.is_held]

    async with app.worker():
        assert await (await pay.enqueue()).result(timeout=30) == [True, True]
        assert await (await pay.enqueue()).result(timeout=30) == [False, True]
    with pytest.raises(UsageError, match="running event loop"):
        app.lock("invoice:42").__enter__()
    async with app.lock("invoice:42"):
        pass
