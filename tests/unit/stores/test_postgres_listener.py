"""The ear of a process: on one line, at the quietest loop, and never believed unproved."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from durio.host.clock import HostClock
from durio.host.threads import LoopThread
from durio.stores.event_buffer import EVENT_BYTES_MAX, EVENTS_MAX, missed_event
from durio.stores.postgres.listener import ListenCheck
from durio.stores.postgres.live_events import (
    FRAME_BYTES_MAX,
    PostgresLiveEvents,
    PostgresSubscriber,
    frames_of,
)
from durio.stores.postgres.wakeups import PostgresWakeups
from durio.stores.waiting import NOT_WOKEN
from durio.testing.clock import VirtualClock, run_virtual
from tests.unit.stores.fake_connections import FakeConnections, FakeServer

LANE = "shop:default"
Story = Callable[[VirtualClock, FakeServer], Coroutine[Any, Any, None]]


def run_story(story: Story) -> None:
    run_virtual(lambda clock: story(clock, FakeServer()))


def listening_loops(connections: FakeConnections) -> list[asyncio.AbstractEventLoop]:
    """The loops on whose lines this process listens."""
    return [loop for loop, line in connections.by_loop.items() if line.listeners]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await HostClock().sleep(0.005)


# --- its home


def test_the_ear_lives_beside_the_heartbeat_and_comes_back_when_that_ends() -> None:
    async def story() -> None:
        board = FakeServer()
        lines, here = board.new(), asyncio.get_running_loop()
        bell, other = (
            PostgresWakeups(lines, HostClock(), "durio"),
            PostgresWakeups(board.new(), HostClock(), "durio"),
        )
        await bell.register(1, "shop", None)
        assert listening_loops(lines) == [here]
        aside = LoopThread("aside")

        async def renew() -> asyncio.AbstractEventLoop:
            bell.on_renewal()
            return asyncio.get_running_loop()

        bell.on_renewal()  # from the loop that waits: nothing to gain there
        there = await asyncio.wrap_future(aside.submit(renew()))
        for _ in range(3):
            await bell.wait(1, 0.05)
        await until(lambda: listening_loops(lines) == [there])
        other.wake({LANE: 0}, ())
        assert (await bell.wait(1, 20.0)).lanes == {LANE}
        aside.stop()
        assert there.is_closed()
        lines.by_loop.pop(there)
        assert bell.has_lost_wakeups
        while listening_loops(lines) != [here]:
            await bell.wait(1, 0.05)
        await until(lambda: not bell.has_lost_wakeups)
        other.wake({LANE: 0}, ())
        while (await bell.wait(1, 20.0)).lanes != {LANE}:
            pass  # the new connection was worth a look of its own
        await bell.close()
        await other.close()

    asyncio.run(story())


def test_many_workers_and_loops_need_one_listen() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        lines, other = board.new(), PostgresWakeups(board.new(), clock, "durio")
        bell = PostgresWakeups(lines, clock, "durio")
        for worker in range(1, 6):
            await bell.register(worker, "shop", None)
        waits = [bell.wait(worker, 50.0) for worker in range(1, 6)]
        clock.loop.call_later(1.0, other.wake, {LANE: 0}, ())
        wakes = await asyncio.gather(*waits)
        assert {wake.lanes for wake in wakes} == {frozenset({LANE})}
        assert lines.listens == 1

    run_story(story)


def test_a_cut_connection_is_seen_and_replaced() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        lines = board.new()
        bell = PostgresWakeups(lines, clock, "durio")
        await bell.register(1, "shop", None)
        await bell.wait(1, 1.0)
        assert not bell.has_lost_wakeups
        line = lines.by_loop[clock.loop]
        line.socket.is_closed = True
        assert bell.has_lost_wakeups
        wake = await bell.wait(1, 50.0)
        assert wake.woken  # what was said meanwhile nobody heard: look
        await bell.wait(1, 1.0)
        assert not bell.has_lost_wakeups

    run_story(story)


# --- proofs


def test_one_line_proves_nothing_behind_a_pooler() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        lines = board.new()
        lines.is_pooled = True
        bell = PostgresWakeups(lines, clock, "durio")
        await bell.register(1, "shop", None)
        assert await bell.wait(1, 5.0) == NOT_WOKEN
        assert bell.has_lost_wakeups
        assert board.payloads("=") == []

    run_story(story)


def test_a_word_that_came_with_an_answer_proves_nothing_behind_a_pooler() -> None:
    async def story() -> None:
        board, clock = FakeServer(), HostClock()
        lines = board.new()
        lines.is_pooled = True
        bell = PostgresWakeups(lines, clock, "durio")
        await bell.register(1, "shop", None)
        aside = LoopThread("aside")

        async def renew() -> None:
            bell.on_renewal()
            line = await lines.connection()
            async with line.lock:  # a call that never ends
                await clock.sleep(20.0)

        async def offer() -> None:
            bell.on_renewal()

        await asyncio.wrap_future(aside.submit(offer()))
        await bell.wait(1, 0.05)
        await until(lambda: not bell.has_lost_wakeups and bell._is_receiving is True)
        blocked = aside.submit(renew())
        await until(lambda: bell.listener.is_in_call)
        assert not await bell._check_listen()
        assert len(board.payloads("=")) >= 3
        blocked.cancel()
        aside.stop()
        await bell.close()

    asyncio.run(story())


def test_only_our_own_nonce_proves() -> None:
    async def story(clock: VirtualClock) -> None:
        proof = ListenCheck(clock)
        said: list[str] = []

        async def say(nonce: str) -> None:
            said.append(nonce)
            proof.on_nonce("f" * 32)
            proof.on_nonce("")

        began = clock.monotonic()
        assert not await proof.run(say)
        assert clock.monotonic() - began == pytest.approx(1.0)
        assert len(set(said)) == 3

        async def say_well(nonce: str) -> None:
            clock.loop.call_later(0.2, proof.on_nonce, nonce)

        assert await proof.run(say_well)
        proof.on_nonce(said[0])  # nobody asks any more

    run_virtual(story)


# --- live events


def event(n: int, size: int = 0) -> bytes:
    return msgspec.json.encode({"event": "job.done", "n": n, "fill": "ü" * size})


def live_events_on(server: FakeServer, clock: VirtualClock) -> PostgresLiveEvents:
    lines = server.new()
    return PostgresLiveEvents(
        lines, clock, PostgresWakeups(lines, clock, "durio"), "durio"
    )


@pytest.mark.parametrize("size", [1, 7899, 7900, 7901, 20_000, 256 * 1024])
def test_payloads_are_short_and_characters_stay_whole(size: int) -> None:
    text = ("aü€😀" * size).encode()[:size].decode(errors="ignore")
    frames = frames_of("0" * 32, text.encode())
    assert all(len(frame.encode()) < 8000 for frame in frames)
    assert "".join(frame[33:] for frame in frames) == text
    assert [frame[32] for frame in frames] == ["+"] * (len(frames) - 1) + ["."]
    assert len(frames) <= size // (FRAME_BYTES_MAX - 3) + 1


def test_nothing_is_said_while_nobody_listens() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        teller = live_events_on(board, clock)
        for n in range(50):
            teller.publish([event(n)])
            await clock.sleep(0.1)
        assert board.notified == []
        await teller.close()

    run_story(story)


def test_listeners_hear_all_and_their_row_goes_with_them() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        teller, listener = live_events_on(board, clock), live_events_on(board, clock)
        assert not teller.has_subscribers()
        ear = await listener.subscribe()
        assert len(board.rows) == 1
        await clock.sleep(1.1)
        assert teller.has_subscribers()
        teller.publish([event(1), event(2, 7000), event(3)])
        assert await ear.read(5.0) == [event(1), event(2, 7000), event(3)]
        assert await ear.read(0.5) == []
        await listener.unsubscribe(ear)
        assert board.rows == set()
        await clock.sleep(1.5)
        assert not teller.has_subscribers()
        await teller.close()
        await listener.close()

    run_story(story)


def test_a_rare_teller_still_knows_that_somebody_listens() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        teller, listener = live_events_on(board, clock), live_events_on(board, clock)
        await teller._wakeups.register(1, "shop", None)
        teller.has_subscribers()
        ear = await listener.subscribe()
        await clock.sleep(600.0)
        teller.publish([event(1)])
        assert await ear.read(5.0) == [event(1)]
        await listener.close()
        await teller.close()

    run_story(story)


def test_what_does_not_fit_is_counted() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        teller, listener = live_events_on(board, clock), live_events_on(board, clock)
        ear = await listener.subscribe()
        await teller.check_subscribers()
        teller.publish([event(0), event(1, EVENT_BYTES_MAX), event(2)])
        for n in range(3, 5000):
            teller.publish([event(n, 50)])
        heard = [msgspec.json.decode(line) for line in await ear.read(5.0)]
        numbers = [one.get("n") for one in heard]
        assert numbers[:3] == [0, None, 2]
        assert numbers[3:] == [*range(3, len(numbers) - 1), None]
        assert (heard[1]["events"], heard[-1]["events"]) == (1, 5000 - len(numbers) + 1)
        teller.publish([event(5000)])
        assert await ear.read(5.0) == [event(5000)]
        board.fails = True
        teller.publish([event(5001), event(5002)])
        await clock.sleep(0.5)
        board.fails = False
        await teller.check_subscribers()
        teller.publish([event(5003)])
        assert await ear.read(5.0) == [missed_event(3)]
        await listener.close()
        await teller.close()

    run_story(story)


def test_a_listener_that_does_not_read_is_bounded() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        teller, listener = live_events_on(board, clock), live_events_on(board, clock)
        ear = await listener.subscribe()
        await teller.check_subscribers()
        for n in range(40):
            teller.publish([event(n)] * 500)
            await clock.sleep(0.1)
        heard = await ear.read(5.0)
        assert len(heard) == EVENTS_MAX + 1
        assert heard[-1] == missed_event(40 * 500 - EVENTS_MAX)
        await listener.close()
        await teller.close()

    run_story(story)


def test_what_several_told_is_read_in_order() -> None:
    async def story(clock: VirtualClock) -> None:
        ear = PostgresSubscriber(clock)
        stamps = [clock.new_id().hex() for _ in range(3)]
        clock.loop.call_later(0.5, ear.receive, stamps[2], [event(4)])
        clock.loop.call_later(0.505, ear.receive, stamps[0], [event(1), event(2)])
        clock.loop.call_later(0.510, ear.receive, stamps[1], [event(3)])
        assert await ear.read(5.0) == [event(1), event(2), event(3), event(4)]
        ear.close()
        assert await ear.read(5.0) == []

    run_virtual(story)
