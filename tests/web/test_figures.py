"""Figures are counted once for all who ask, and rest after that, in virtual time."""

import asyncio

import pytest

from durio.errors import StoreUnavailable
from durio.testing.clock import VirtualClock, run_virtual
from durio.web.figures import PAUSE_SECONDS, REST_FACTOR, Figure


class SlowCount:
    """Counts its calls; each takes some time, or fails."""

    def __init__(self, clock: VirtualClock, seconds: float = 0.0) -> None:
        self.clock = clock
        self.seconds = seconds
        self.calls = 0
        self.is_broken = False
        self.figure = Figure(clock, self.count)

    async def count(self) -> int:
        self.calls += 1
        call = self.calls
        await self.clock.sleep(self.seconds)
        if self.is_broken:
            raise StoreUnavailable("away")
        return call

    async def value(self) -> int:
        return (await self.figure.read()).value


def test_all_who_ask_share_one_count() -> None:
    async def main(clock: VirtualClock) -> None:
        slow = SlowCount(clock, seconds=0.5)
        assert await asyncio.gather(*(slow.value() for _ in range(200))) == [1] * 200
        assert slow.calls == 1

    run_virtual(main)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 3.0])
def test_a_count_rests_twenty_times_as_long_as_it_took(seconds: float) -> None:
    async def main(clock: VirtualClock) -> None:
        slow = SlowCount(clock, seconds)
        first = await slow.figure.read()
        assert first.at == clock.now() - seconds  # when the count began
        rest = max(PAUSE_SECONDS, REST_FACTOR * seconds)
        await clock.sleep(rest - 0.1)
        assert await slow.figure.read() == first
        await clock.sleep(0.2)
        await slow.figure.read()
        assert slow.calls == 2

    run_virtual(main)


def test_counting_takes_at_most_a_twentieth_of_the_time() -> None:
    async def main(clock: VirtualClock) -> None:
        slow, end = SlowCount(clock, seconds=1.0), clock.monotonic() + 1000
        while clock.monotonic() < end:
            await slow.value()
            await clock.sleep(0.1)
        assert 45 <= slow.calls <= 48

    run_virtual(main)


def test_a_long_count_is_not_waited_for_if_an_older_one_is_known() -> None:
    async def main(clock: VirtualClock) -> None:
        slow = SlowCount(clock)
        assert await slow.value() == 1
        slow.seconds = 30.0
        await clock.sleep(5)
        asked_at = clock.monotonic()
        assert await slow.value() == 1
        assert clock.monotonic() - asked_at == pytest.approx(1.0)
        await clock.sleep(30)
        assert await slow.value() == 2

    run_virtual(main)


def test_a_caller_that_goes_away_does_not_end_the_count_of_others() -> None:
    async def main(clock: VirtualClock) -> None:
        slow = SlowCount(clock, seconds=2.0)
        async with asyncio.TaskGroup() as group:
            gone, stays = (group.create_task(slow.value()) for _ in range(2))
            await clock.sleep(0.1)
            gone.cancel()
        assert stays.result() == 1

    run_virtual(main)


def test_a_count_that_fails_leaves_the_one_before() -> None:
    async def main(clock: VirtualClock) -> None:
        slow = SlowCount(clock)
        slow.is_broken = True
        with pytest.raises(StoreUnavailable):
            await slow.value()
        slow.is_broken = False
        assert await slow.value() == 2
        slow.is_broken = True
        await clock.sleep(5)
        assert await slow.value() == 2

    run_virtual(main)
