"""The lag of a worker's loop, as its watchdog measures it."""

from durio.testing.clock import VirtualClock, run_virtual
from durio.worker.loop_lag import LoopLag


def test_it_is_the_time_until_the_loop_ran_the_last_call() -> None:
    async def main(clock: VirtualClock) -> None:
        lag = LoopLag(clock)
        assert lag.seconds() is None
        lag.asked()
        await clock.sleep(0.25)
        assert lag.seconds() is None  # nothing is known before the first answer
        lag.answered()
        assert lag.seconds() == 0.25
        lag.asked()
        lag.answered()
        assert lag.seconds() == 0

    run_virtual(main)


def test_a_call_that_waits_counts_from_the_first_one() -> None:
    async def main(clock: VirtualClock) -> None:
        lag = LoopLag(clock)
        lag.asked()
        lag.answered()
        for _ in range(3):
            lag.asked()
            await clock.sleep(1)
        assert lag.seconds() == 3

    run_virtual(main)
