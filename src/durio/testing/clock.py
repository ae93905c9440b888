"""Virtual time: an event loop that jumps to its next timer, and its clock.

A test that sleeps for thirty days takes milliseconds, and its times are exact. The loop
handles real events first. When nothing can run, time jumps to the next timer. When there is
no timer either, the test is stuck, and the error shows every task's stack.

A real thread (a store's writer) does not know virtual time, so time must not advance while
it works. A caller that waits for a thread holds the loop: `with clock.held(): await ...`. A
sleep inside that block takes real seconds and no virtual ones, to poll the thread. Timers
of other tasks wait until the loop is not held.
"""

import asyncio
import random
import selectors
import traceback
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar, TypeVarTuple, final

from durio.model.ids import uuid7

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH = 1_800_000_000.0  # a Friday in January 2027; any fixed time works
STARTED_SECONDS = 1_000.0  # uptime of the machine when the test begins
RESOLUTION_SECONDS = 1e-6
HELD_SECONDS_MAX = 30.0  # in real seconds
STACK_FRAMES_MAX = 20

# True in the context of a caller that holds the loop.
HOLDING: ContextVar[bool] = ContextVar("HOLDING", default=False)


class Stuck(RuntimeError):
    """No task can run any more, or a real thread does not respond."""


@dataclass(slots=True)
class RealSleep:
    seconds: float  # remaining
    woken: "asyncio.Future[None]"


@final
class JumpingSelector(selectors.DefaultSelector):
    """The selector of the loop, which moves the clock instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = STARTED_SECONDS
        self.holders = 0
        self.real_sleeps: list[RealSleep] = []
        self.report: Callable[[], str] = str

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        """Return real events; without any, jump as far as asyncio would have waited."""
        events = super().select(0)
        if events or timeout == 0:
            return events
        if self.holders:
            return self.wait_in_real_time()
        if timeout is None:
            raise Stuck(
                "simulated deadlock: nothing runnable and no timer left "
                "(code that waits for a real thread must hold the loop)\n"
                + self.report()
            )
        self.seconds += timeout
        return []

    def wait_in_real_time(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for a real thread while virtual time does not advance."""
        span_seconds = min(
            [HELD_SECONDS_MAX, *(sleep.seconds for sleep in self.real_sleeps)]
        )
        events = super().select(span_seconds)
        if events:
            return events
        if not self.real_sleeps:
            raise Stuck(
                f"the loop is held, and no thread answered for {HELD_SECONDS_MAX:g} "
                "real seconds (timers do not run while it is held)\n" + self.report()
            )
        for sleep in self.real_sleeps:
            sleep.seconds -= span_seconds
            if sleep.seconds <= 0:
                wake(sleep.woken)
        return events


@final
class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self) -> None:
        self.jumping = JumpingSelector()
        super().__init__(self.jumping)
        self.jumping.report = self.report_tasks
        # asyncio runs timers due within one step of its clock. A step of 1 ns vanishes
        # beside the seconds of a year, and a timer due exactly now would never run.
        self._clock_resolution = RESOLUTION_SECONDS

    def time(self) -> float:
        """Return virtual seconds since the virtual boot."""
        return self.jumping.seconds

    def hold(self) -> None:
        """Stop virtual time and wait for real threads, until the matching release.

        Call it on the loop; from a thread: `loop.call_soon_threadsafe(loop.hold)`.
        """
        self.jumping.holders += 1

    def release(self) -> None:
        """Undo one hold."""
        self.jumping.holders -= 1

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold for the length of a block."""
        self.hold()
        holding = HOLDING.set(True)
        try:
            yield
        finally:
            HOLDING.reset(holding)
            self.release()

    async def sleep_in_real_time(self, seconds: float) -> None:
        """Sleep in real time, while the loop is held."""
        sleep = RealSleep(seconds, self.create_future())
        self.jumping.real_sleeps.append(sleep)
        try:
            await sleep.woken
        finally:
            self.jumping.real_sleeps.remove(sleep)

    def run_in_executor(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        executor: Any,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Run a function in a real thread; virtual time does not advance meanwhile."""
        future = super().run_in_executor(executor, func, *args)
        self.hold()
        future.add_done_callback(lambda _: self.release())
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the executor's threads, which are real ones."""
        del timeout  # since Python 3.12; virtual time has no use for it
        with self.held():
            await super().shutdown_default_executor()

    def report_tasks(self) -> str:
        """Return the stacks of all tasks of this loop."""
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        return "\n".join(report_task(task) for task in tasks) or "there are no tasks"


def report_task(task: "asyncio.Task[Any]") -> str:
    """Return the whole chain of awaits of one task, innermost last."""
    frames = list(await_frames(task.get_coro()))[-STACK_FRAMES_MAX:]
    stack = [(frame, frame.f_lineno) for frame in frames]
    lines = traceback.StackSummary.extract(iter(stack)).format()
    return f"{task.get_name()}:\n{''.join(lines)}"


def await_frames(waiting: object) -> Iterator[FrameType]:
    """Yield the frames of a suspended coroutine and of what it awaits."""
    while waiting is not None:
        for kind in ("cr", "gi", "ag"):  # coroutine, generator, async generator
            frame = getattr(waiting, f"{kind}_frame", None)
            if isinstance(frame, FrameType):
                yield frame
                break
        waiting = getattr(waiting, "cr_await", None) or getattr(
            waiting, "gi_yieldfrom", None
        )


@final
class VirtualClock:
    """The clock of a virtual loop; randomness and ids come from a seed."""

    def __init__(self, loop: VirtualLoop, seed: int = 0) -> None:
        self.loop = loop
        self.generator = random.Random(seed)
        self.offset_seconds = EPOCH - STARTED_SECONDS
        self.stamp = 0

    def now(self) -> float:
        return self.loop.time() + self.offset_seconds

    def monotonic(self) -> float:
        return self.loop.time()

    def boot_id(self) -> str:
        return "virtual-boot"

    async def sleep(self, seconds: float) -> None:
        if seconds > 0 and HOLDING.get() and self.loop.jumping.holders:
            return await self.loop.sleep_in_real_time(seconds)
        woken: asyncio.Future[None] = self.loop.create_future()
        timer = self.loop.call_later(max(seconds, 0.0), wake, woken)
        try:
            await woken
        finally:
            timer.cancel()
        return None

    def random(self) -> float:
        return self.generator.random()

    def new_id(self) -> bytes:
        self.stamp = max(self.stamp + 1, int(self.now() * 1000) << 12)
        return uuid7(self.stamp >> 12, self.stamp, self.generator.getrandbits(62))

    def secret_bytes(self, size: int) -> bytes:
        return self.generator.randbytes(size)

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or NTP may do."""
        self.offset_seconds += seconds

    @contextmanager
    def held(self) -> Generator[None]:
        """Stop virtual time while waiting for a real thread."""
        with self.loop.held():
            yield


def wake(woken: "asyncio.Future[None]") -> None:
    """End a sleep, unless it was cancelled at the same moment."""
    if not woken.done():
        woken.set_result(None)


def run_virtual(
    main: Callable[[VirtualClock], Coroutine[Any, Any, T]], *, seed: int = 0
) -> T:
    """Run `main(clock)` to its end in virtual time; return its result."""
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(VirtualClock(loop, seed)))
