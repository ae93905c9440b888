"""The ear of a process: on one line, at the quietest loop, and never believed unproved."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from durio.host.clock import HostClock
from durio.host.threads import LoopThread
from durio.stores.postgres.bell import QUIET, Bell
from durio.stores.postgres.ears import (
    EVENT_BYTES_MAX,
    FRAME_BYTES_MAX,
    LINE_MAX,
    ChannelEar,
    Ears,
    frames_of,
    missed,
)
from durio.stores.postgres.proof import Proof
from durio.testing.clock import VirtualClock, run_virtual
from tests.unit.stores.postgres_board import Board, BoardLines

LANE = "shop:default"
Story = Callable[[VirtualClock, Board], Coroutine[Any, Any, None]]


def told(story: Story) -> None:
    run_virtual(lambda clock: story(clock, Board()))


def hearing(lines: BoardLines) -> list[asyncio.AbstractEventLoop]:
    """The loops on whose lines this process listens."""
    return [loop for loop, line in lines.by_loop.items() if line.heard]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await HostClock().sleep(0.005)


# --- its home


def test_the_ear_lives_beside_the_heartbeat_and_comes_back_when_that_ends() -> None:
    async def story() -> None:
        board = Board()
        lines, here = board.new(), asyncio.get_running_loop()
        bell, other = (
            Bell(lines, HostClock(), "durio"),
            Bell(board.new(), HostClock(), "durio"),
        )
        await bell.hang(1, "shop", None)
        assert hearing(lines) == [here]
        aside = LoopThread("aside")

        async def renew() -> asyncio.AbstractEventLoop:
            bell.renewed()
            return asyncio.get_running_loop()

        bell.renewed()  # from the loop that waits: nothing to gain there
        there = await asyncio.wrap_future(aside.submit(renew()))
        for _ in range(3):
            await bell.wait(1, 0.05)
        await until(lambda: hearing(lines) == [there])
        other.ring({LANE: 0}, ())
        assert (await bell.wait(1, 20.0)).lanes == {LANE}
        aside.stop()
        assert there.is_closed()
        lines.by_loop.pop(there)
        assert bell.is_deaf
        while hearing(lines) != [here]:
            await bell.wait(1, 0.05)
        await until(lambda: not bell.is_deaf)
        other.ring({LANE: 0}, ())
        while (await bell.wait(1, 20.0)).lanes != {LANE}:
            pass  # the new connection was worth a look of its own
        await bell.close()
        await other.close()

    asyncio.run(story())


def test_many_workers_and_loops_need_one_listen() -> None:
    async def story(clock: VirtualClock, board: Board) -> None:
        lines, other = board.new(), Bell(board.new(), clock, "durio")
        bell = Bell(lines, clock, "durio")
        for worker in range(1, 6):
            await bell.hang(worker, "shop", None)
        waits = [bell.wait(worker, 50.0) for worker in range(1, 6)]
        clock.loop.call_later(1.0, other.ring, {LANE: 0}, ())
        wakes = await asyncio.gather(*waits)
        assert {wake.lanes for wake in wakes} == {frozenset({LANE})}
        assert lines.listens == 1

    told(story)


def test_a_cut_connection_is_seen_and_replaced() -> None:
    async def story(clock: VirtualClock, board: Board) -> None:
        lines = board.new()
        bell = Bell(lines, clock, "durio")
        await bell.hang(1, "shop", None)
        await bell.wait(1, 1.0)
        assert not bell.is_deaf
        line = lines.by_loop[clock.loop]
        line.wire.is_closed = True
        assert bell.is_deaf
        wake = await bell.wait(1, 50.0)
        assert wake.rung  # what was said meanwhile nobody heard: look
        await bell.wait(1, 1.0)
        assert not bell.is_deaf

    told(story)


# --- proofs


def test_one_line_proves_nothing_behind_a_pooler() -> None:
    async def story(clock: VirtualClock, board: Board) -> None:
        lines = board.new()
        lines.is_pooled = True
        bell = Bell(lines, clock, "durio")
        await bell.hang(1, "shop", None)
        assert await bell.wait(1, 5.0) == QUIET
        assert bell.is_deaf
        assert board.words("=") == []

    told(story)


def test_a_word_that_came_with_an_answer_proves_nothing_behind_a_pooler() -> None:
    async def story() -> None:
        board, clock = Board(), HostClock()
        lines = board.new()
        lines.is_pooled = True
        bell = Bell(lines, clock, "durio")
        await bell.hang(1, "shop", None)
        aside = LoopThread("aside")

        async def renew() -> None:
            bell.renewed()
            line = await lines.line()
            async with line.lock:  # a call that never ends
                await clock.sleep(20.0)

        async def offer() -> None:
            bell.renewed()

        await asyncio.wrap_future(aside.submit(offer()))
        await bell.wait(1, 0.05)
        await until(lambda: not bell.is_deaf and bell._hearing is True)
        blocked = aside.submit(renew())
        await until(lambda: bell.ear.is_asking)
        assert not await bell._prove()
        assert len(board.words("=")) >= 3
        blocked.cancel()
        aside.stop()
        await bell.close()

    asyncio.run(story())


def test_only_our_own_nonce_proves() -> None:
    async def story(clock: VirtualClock) -> None:
        proof = Proof(clock)
        said: list[str] = []

        async def say(nonce: str) -> None:
            said.append(nonce)
            proof.hear("f" * 32)
            proof.hear("")

        began = clock.monotonic()
        assert not await proof.give(say)
        assert clock.monotonic() - began == pytest.approx(1.0)
        assert len(set(said)) == 3

        async def say_well(nonce: str) -> None:
            clock.loop.call_later(0.2, proof.hear, nonce)

        assert await proof.give(say_well)
        proof.hear(said[0])  # nobody asks any more

    run_virtual(story)


# --- live events


def event(n: int, size: int = 0) -> bytes:
    return msgspec.json.encode({"event": "job.done", "n": n, "fill": "ü" * size})


def ears_on(board: Board, clock: VirtualClock) -> Ears:
    lines = board.new()
    return Ears(lines, clock, Bell(lines, clock, "durio"), "durio")


@pytest.mark.parametrize("size", [1, 7899, 7900, 7901, 20_000, 256 * 1024])
def test_payloads_are_short_and_characters_stay_whole(size: int) -> None:
    text = ("aü€😀" * size).encode()[:size].decode(errors="ignore")
    frames = frames_of("0" * 32, text.encode())
    assert all(len(frame.encode()) < 8000 for frame in frames)
    assert "".join(frame[33:] for frame in frames) == text
    assert [frame[32] for frame in frames] == ["+"] * (len(frames) - 1) + ["."]
    assert len(frames) <= size // (FRAME_BYTES_MAX - 3) + 1


def test_nothing_is_said_while_nobody_listens() -> None:
    async def story(clock: VirtualClock, board: Board) -> None:
        teller = ears_on(board, clock)
        for n in range(50):
            teller.tell([event(n)])
            await clock.sleep(0.1)
        assert board.said == []
        await teller.close()

    told(story)


def test_listeners_hear_all_and_their_row_goes_with_them() -> None:
    async def story(clock: VirtualClock, board: Board) -> None:
        teller, listener = ears_on(board, clock), ears_on(board, clock)
        assert not teller.is_heard()
        ear = await listener.open_ear()
        assert len(board.rows) == 1
        await clock.sleep(1.1)
        assert teller.is_heard()
        teller.tell([event(1), event(2, 7000), event(3)])
        assert await ear.read(5.0) == [event(1), event(2, 7000), event(3)]
        assert await ear.read(0.5) == []
        await listener.close_ear(ear)
        assert board.rows == set()
        await clock.sleep(1.5)
        assert not teller.is_heard()
        await teller.close()
        await listener.close()

    told(story)


def test_a_rare_teller_still_knows_that_somebody_listens() -> None:
    async def story(clock: VirtualClock, board: Board) -> None:
        teller, listener = ears_on(board, clock), ears_on(board, clock)
        await teller._bell.hang(1, "shop", None)
        teller.is_heard()
        ear = await listener.open_ear()
        await clock.sleep(600.0)
        teller.tell([event(1)])
        assert await ear.read(5.0) == [event(1)]
        await listener.close()
        await teller.close()

    told(story)


def test_what_does_not_fit_is_counted() -> None:
    async def story(clock: VirtualClock, board: Board) -> None:
        teller, listener = ears_on(board, clock), ears_on(board, clock)
        ear = await listener.open_ear()
        await teller.look()
        teller.tell([event(0), event(1, EVENT_BYTES_MAX), event(2)])
        for n in range(3, 5000):
            teller.tell([event(n, 50)])
        heard = [msgspec.json.decode(line) for line in await ear.read(5.0)]
        numbers = [one.get("n") for one in heard]
        assert numbers[:3] == [0, None, 2]
        assert numbers[3:] == [*range(3, len(numbers) - 1), None]
        assert (heard[1]["events"], heard[-1]["events"]) == (1, 5000 - len(numbers) + 1)
        teller.tell([event(5000)])
        assert await ear.read(5.0) == [event(5000)]
        board.fails = True
        teller.tell([event(5001), event(5002)])
        await clock.sleep(0.5)
        board.fails = False
        await teller.look()
        teller.tell([event(5003)])
        assert await ear.read(5.0) == [missed(3)]
        await listener.close()
        await teller.close()

    told(story)


def test_a_listener_that_does_not_read_is_bounded() -> None:
    async def story(clock: VirtualClock, board: Board) -> None:
        teller, listener = ears_on(board, clock), ears_on(board, clock)
        ear = await listener.open_ear()
        await teller.look()
        for n in range(40):
            teller.tell([event(n)] * 500)
            await clock.sleep(0.1)
        heard = await ear.read(5.0)
        assert len(heard) == LINE_MAX + 1
        assert heard[-1] == missed(40 * 500 - LINE_MAX)
        await listener.close()
        await teller.close()

    told(story)


def test_what_several_told_is_read_in_order() -> None:
    async def story(clock: VirtualClock) -> None:
        ear = ChannelEar(clock)
        stamps = [clock.new_id().hex() for _ in range(3)]
        clock.loop.call_later(0.5, ear.hear, stamps[2], [event(4)])
        clock.loop.call_later(0.505, ear.hear, stamps[0], [event(1), event(2)])
        clock.loop.call_later(0.510, ear.hear, stamps[1], [event(3)])
        assert await ear.read(5.0) == [event(1), event(2), event(3), event(4)]
        ear.close()
        assert await ear.read(5.0) == []

    run_virtual(story)
