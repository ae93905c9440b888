"""Figures are read once for all viewers, rest after it, and keep nobody waiting."""

import asyncio

from durio.ports.clock import Clock
from durio.testing.clock import VirtualClock, run_virtual
from durio.web.figure import REST_FACTOR, WAIT_SECONDS, Figure


class SlowCount:
    """A count that takes some seconds and returns its own number."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds
        self.runs = 0

    async def __call__(self) -> int:
        self.runs += 1
        await self.clock.sleep(self.seconds)
        return self.runs


def test_viewers_who_ask_together_share_a_count():
    async def main(clock: VirtualClock) -> None:
        count = SlowCount(clock, 3.0)
        figure = Figure(clock, count, pause_seconds=1.0)
        found = await asyncio.gather(*(figure.read() for _ in range(20)))
        assert {each.value for each in found} == {1}
        assert count.runs == 1

    run_virtual(main)


def test_a_viewer_waits_a_moment_and_then_gets_the_value_before():
    async def main(clock: VirtualClock) -> None:
        count = SlowCount(clock, 3.0)
        figure = Figure(clock, count, pause_seconds=1.0)
        first = await figure.read()
        await clock.sleep(REST_FACTOR * 3.0)
        began = clock.monotonic()
        again = await figure.read()
        assert again == first
        assert clock.monotonic() - began <= WAIT_SECONDS + 0.01
        await clock.sleep(3.0)
        assert (await figure.read()).value == 2
        assert count.runs == 2

    run_virtual(main)


def test_a_long_count_rests_twenty_times_as_long():
    async def main(clock: VirtualClock) -> None:
        count = SlowCount(clock, 0.5)
        figure = Figure(clock, count, pause_seconds=1.0)
        await figure.read()
        await clock.sleep(REST_FACTOR * 0.5 - 0.1)
        assert (await figure.read()).value == 1
        assert count.runs == 1

    run_virtual(main)


def test_a_brief_count_is_made_for_each_request():
    async def main(clock: VirtualClock) -> None:
        count = SlowCount(clock, 0.0)
        figure = Figure(clock, count, pause_seconds=0.0, brief_seconds=0.02)
        assert [(await figure.read()).value for _ in range(3)] == [1, 2, 3]

    run_virtual(main)


def test_a_count_that_fails_leaves_the_value_before():
    async def main(clock: VirtualClock) -> None:
        answers = iter([7])

        async def count() -> int:
            for answer in answers:
                return answer
            raise OSError("the store is away")

        figure = Figure(clock, count, pause_seconds=1.0)
        assert (await figure.read()).value == 7
        await clock.sleep(2.0)
        assert (await figure.read()).value == 7

    run_virtual(main)


def test_counting_takes_at_most_a_twentieth_of_the_time():
    async def main(clock: VirtualClock) -> None:
        count = SlowCount(clock, 1.0)
        figure = Figure(clock, count, pause_seconds=2.0)
        end = clock.monotonic() + 1000
        while clock.monotonic() < end:
            await figure.read()
            await clock.sleep(0.1)
        assert 45 <= count.runs <= 48

    run_virtual(main)


def test_a_viewer_who_leaves_does_not_end_the_count_of_others():
    async def main(clock: VirtualClock) -> None:
        figure = Figure(clock, SlowCount(clock, 2.0), pause_seconds=2.0)
        async with asyncio.TaskGroup() as group:
            gone, stays = (group.create_task(figure.read()) for _ in range(2))
            await clock.sleep(0.1)
            gone.cancel()
        assert stays.result().value == 1

    run_virtual(main)
