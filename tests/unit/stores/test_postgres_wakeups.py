"""Rings between processes: debounced, proved, and replaced by polling when they fail."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from durio.model.errors import StoreUnavailable
from durio.ports.store import Wake
from durio.stores.postgres.notify import Notifier, channel_name
from durio.stores.postgres.wakeups import PostgresWakeups
from durio.stores.waiting import NOT_WOKEN, POLL_WAKE
from durio.testing.clock import VirtualClock, run_virtual
from tests.conformance.manual_clock import ManualClock
from tests.unit.stores.fake_connections import FakeServer

LANE = "shop:default"
Story = Callable[[VirtualClock, FakeServer], Coroutine[Any, Any, None]]


def run_story(story: Story) -> None:
    """Run a story in virtual time."""
    run_virtual(lambda clock: story(clock, FakeServer()))


def wakeups_on(
    server: FakeServer, clock: VirtualClock, **options: Any
) -> PostgresWakeups:
    """The bell of one more process."""
    return PostgresWakeups(server.new(), clock, "durio", **options)


async def woken(wakeups: PostgresWakeups, worker: int, by: Callable[[], None]) -> Wake:
    """Wait, and let something happen in a moment."""
    asyncio.get_running_loop().call_later(0.002, by)
    return await wakeups.wait(worker, 50.0)


# --- whom a ring reaches


def test_workers_of_this_process_are_rung_at_once() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        board.swallows = True
        bell = wakeups_on(board, clock)
        await bell.register(1, "shop", None)
        before = clock.monotonic()
        bell.wake({LANE: 0}, ())
        assert await bell.wait(1, 50.0) == Wake(True, frozenset({LANE}), False)
        assert clock.monotonic() == before

    run_story(story)


def test_workers_of_others_are_rung_by_notify() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        here, there = wakeups_on(board, clock), wakeups_on(board, clock)
        await here.register(1, "shop", ["mail", "def*"])
        wake = await woken(here, 1, lambda: there.wake({LANE: 0}, ()))
        assert wake == Wake(True, frozenset({LANE}), False)
        wake = await woken(here, 1, lambda: there.wake({}, {1}))
        assert wake == Wake(True, frozenset(), True)

    run_story(story)


def test_a_ring_before_the_wait_is_kept() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        here, there = wakeups_on(board, clock), wakeups_on(board, clock)
        await here.register(1, "shop", None)
        there.wake({LANE: 0, "shop:mail": 0}, {1})
        await clock.sleep(0.1)
        before = clock.monotonic()
        wake = await here.wait(1, 50.0)
        assert wake == Wake(True, frozenset({LANE, "shop:mail"}), True)
        assert clock.monotonic() == before

    run_story(story)


@pytest.mark.parametrize(
    ("queues", "lane", "but"),
    [
        (None, "shop2:default", 0),
        (None, "bank:default", 0),
        (["mail"], LANE, 0),
        ([], LANE, 0),
        (None, LANE, 1),
    ],
)
def test_who_does_not_serve_a_lane_or_made_its_work_sleeps_on(
    queues: list[str] | None, lane: str, but: int
) -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        bell, other = wakeups_on(board, clock), wakeups_on(board, clock)
        await bell.register(1, "shop", queues)
        bell.wake({lane: but}, {2, 11})
        if not but:
            other.wake({lane: 0}, {2, 11})
        assert await bell.wait(1, 5.0) == NOT_WOKEN

    run_story(story)


def test_who_has_left_is_let_go() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        bell = wakeups_on(board, clock)
        await bell.register(1, "shop", None)
        assert (await woken(bell, 1, lambda: bell.remove(1))).woken
        before = clock.monotonic()
        assert await bell.wait(1, 50.0) == POLL_WAKE
        assert clock.monotonic() - before < 0.3

    run_story(story)


def test_words_of_a_newer_version_harm_nobody() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        bell, lines = wakeups_on(board, clock), board.new()
        await bell.register(1, "shop", None)
        strange = ["", "x", "-" * 12, "-" * 12 + "?what", "-" * 12 + "!me", "ü" * 99]
        lines.notify(bell.channel, [*strange, "-" * 12 + "!" + "9" * 999])
        assert await bell.wait(1, 5.0) == NOT_WOKEN

    run_story(story)


# --- how often


def test_a_burst_is_said_at_its_beginning_and_at_its_end() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        bell = wakeups_on(board, clock)
        began = clock.monotonic()
        for _ in range(50):
            bell.wake({LANE: 0}, ())
            await clock.sleep(0.0001)
        await clock.sleep(1.0)
        times = [at - began for at, _, _ in board.notified]
        assert times == [pytest.approx(0.0, abs=1e-6), pytest.approx(0.010, abs=1e-6)]

    run_story(story)


def test_a_lane_is_said_once_in_ten_milliseconds_and_the_last_ring_never_lost() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        bell, last = wakeups_on(board, clock), 0.0
        for n in range(1000):
            bell.wake({LANE: 0, "shop:mail": 0} if n % 2 else {LANE: 0}, ())
            last = clock.monotonic()
            await clock.sleep(0.001)
        await clock.sleep(1.0)
        for lane in (LANE, "shop:mail"):
            times = [at for at, _, word in board.notified if word.endswith(lane)]
            assert 95 <= len(times) <= 102
            gaps = [after - before for before, after in pairwise(times)]
            assert min(gaps) >= 0.010 - 1e-9
            assert last <= times[-1] <= last + 0.010 + 1e-9

    run_story(story)


def test_what_a_commit_rings_goes_in_one_statement() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        bell = wakeups_on(board, clock)
        bell.wake({f"shop:{n}": 0 for n in range(50)}, range(1, 50))
        await clock.sleep(0.005)
        assert len(board.payloads("+")) == 50
        assert len(board.payloads("!")) == 49
        assert len({at for at, _, _ in board.notified}) == 1

    run_story(story)


def test_a_trailing_edge_whose_loop_has_ended_holds_up_nobody() -> None:
    board, clock = FakeServer(), ManualClock()
    ringer = Notifier(board.new(), clock, "rings")

    async def ring(times: int, seconds: float) -> None:
        for _ in range(times):
            ringer.notify(["+" + LANE])
        await clock.sleep(seconds)

    asyncio.run(ring(2, 0.001))  # the second would be said when this loop is gone
    before = len(board.notified)
    clock.sleepers.clear()
    clock.advance(0.015)
    asyncio.run(ring(2, 0.05))
    assert len(board.notified) == before + 2
    assert not ringer._trailing


def test_a_ring_never_fails_its_caller() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        bell, other = wakeups_on(board, clock), wakeups_on(board, clock)
        await other.register(1, "shop", None)
        board.fails = True
        bell.wake({LANE: 0}, {1})
        await clock.sleep(1.0)
        board.fails = False
        bell.wake({LANE: 0}, ())
        assert (await other.wait(1, 50.0)).lanes == {LANE}

    run_story(story)


def test_the_last_ring_is_said_before_the_end() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        bell = wakeups_on(board, clock)
        bell.wake({LANE: 0}, ())
        await bell.close()
        assert board.payloads() == ["+" + LANE]

    run_story(story)


# --- when nothing arrives


def test_a_deaf_worker_looks_slower_and_slower_until_it_finds_something() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        board.swallows = True
        seen: list[bool] = []
        bell = wakeups_on(board, clock, on_change=seen.append)
        await bell.register(1, "shop", ["default"])
        began = clock.monotonic()
        assert await bell.wait(1, 3.0) == NOT_WOKEN
        assert clock.monotonic() - began == pytest.approx(3.0)
        assert seen == [False]
        assert board.looks[0] - began == pytest.approx(1.01, abs=0.01)
        pauses = [after - before for before, after in pairwise(board.looks)]
        for pause, wanted in zip(pauses, (20, 40, 80, 160, 250, 250), strict=False):
            assert 0.7 * wanted <= pause * 1000 <= 1.3 * wanted
        board.busy = [LANE, "shop:mail"]
        wake = await bell.wait(1, 50.0)
        assert wake == Wake(True, frozenset({LANE}), False)
        bell.on_claims(1)
        before = clock.monotonic()
        assert (await bell.wait(1, 50.0)).lanes == {LANE}
        assert clock.monotonic() - before < 0.013
        board.control = (None, 0, [LANE])
        assert await bell.wait(1, 50.0) == Wake(True, frozenset(), True)
        assert await bell.wait(1, 5.0) == NOT_WOKEN  # what is paused is no work

    run_story(story)


def test_hearing_is_proved_again_and_comes_back_by_itself() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        seen: list[tuple[bool, float]] = []
        began = clock.monotonic()

        def note(hears: bool) -> None:  # noqa: FBT001
            seen.append((hears, clock.monotonic() - began))

        bell = wakeups_on(board, clock, on_change=note)
        await bell.register(1, "shop", None)
        while clock.monotonic() - began < 200:
            now = clock.monotonic() - began
            board.swallows = 50 < now < 110
            await bell.wait(1, 1.0)
        assert [hears for hears, _ in seen] == [False, True]
        assert 60 < seen[0][1] < 63
        assert 110 < seen[1][1] < 145
        proofs = [at for at, _, word in board.notified if word[12:13] == "="]
        assert len(proofs) < 20

    run_story(story)


def test_a_deaf_worker_is_told_once_of_every_act_on_it() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        bell = wakeups_on(board, clock, notify=False)
        await bell.register(1, "shop", None)
        assert not (await bell.wait(1, 9.0)).control
        for control in (
            (7, 0, []),
            (8, 0, []),
            (None, 0, []),
            (None, 1, []),
            (None, 0, ["shop:default"]),
            (None, 0, ["shop:default", "shop:mail"]),
            (None, 0, []),
        ):
            board.control = control
            assert (await bell.wait(1, 9.0)).control, control
            assert not (await bell.wait(1, 9.0)).control, control

    run_story(story)


def test_without_notify_nothing_is_said_and_nobody_listens() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        seen: list[bool] = []
        bell = wakeups_on(board, clock, notify=False, on_change=seen.append)
        await bell.register(1, "shop", None)
        bell.wake({LANE: 0}, {1})
        wake = await bell.wait(1, 9.0)
        assert wake == Wake(True, frozenset({LANE}), True)
        assert await bell.wait(1, 5.0) == NOT_WOKEN
        board.busy = [LANE]
        assert (await bell.wait(1, 5.0)).lanes == {LANE}
        assert (board.notified, seen, board.clients[0].listens) == ([], [], 0)
        assert bell.payloads_in_transaction({LANE: 0}) == []

    run_story(story)


def test_a_store_that_is_down_is_listened_to_again_when_it_is_back() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        board.fails = True
        seen: list[bool] = []
        bell, other = (
            wakeups_on(board, clock, on_change=seen.append),
            wakeups_on(board, clock),
        )
        await bell.register(1, "shop", None)
        began = clock.monotonic()
        while clock.monotonic() - began < 20:
            board.fails = clock.monotonic() - began < 10
            try:
                await bell.wait(1, 1.0)
            except StoreUnavailable:
                await clock.sleep(1.0)
        assert seen == [False, True]
        wake = await woken(bell, 1, lambda: other.wake({LANE: 0}, ()))
        assert wake.lanes == {LANE}

    run_story(story)


def test_rings_in_a_users_transaction_reach_its_own_process_too() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        bell, lines = wakeups_on(board, clock), board.new()
        await bell.register(1, "shop", None)
        payloads = bell.payloads_in_transaction({LANE: 0})
        assert len(payloads) == 1
        wake = await woken(bell, 1, lambda: lines.notify(bell.channel, payloads))
        assert wake.lanes == {LANE}

    run_story(story)


def test_a_forked_child_is_somebody_else() -> None:
    async def story(clock: VirtualClock, board: FakeServer) -> None:
        bell = wakeups_on(board, clock)
        await bell.register(1, "shop", None)
        name = bell.name
        bell.forget()
        assert bell.name != name
        assert not bell.has_workers

    run_story(story)


@pytest.mark.parametrize("schema", ["durio", "a" * 63, "ü" * 31])
def test_every_schema_has_channels_of_its_own(schema: str) -> None:
    names = {
        channel_name(each, kind) for each in (schema, "z" + schema[1:]) for kind in "ab"
    }
    assert len(names) == 4
    assert all(len(name.encode()) < 63 for name in names)
