"""A world in one thread: simulated processes, virtual time, and a seed that decides.

Each simulated process (`Node`) has two event loops, like a real worker: `main`, and
`side_loop` for what must go on while `main` is blocked. All loops share one virtual
clock and are driven here, one callback at a time. The seed chooses *between* loops;
within one loop, order is first in, first out, as asyncio guarantees. When no loop can
run, time jumps to the next timer. When there is no timer either, that is an error: a
simulated deadlock, with every stack.

A process can suffer what an operating system can do to it:

    node = world.start("worker-1", main)   # a new process runs `await main(node)`
    world.kill(node)                        # nothing of it runs again, not even `finally`
    world.pause(node); world.resume(node)   # SIGSTOP, SIGCONT: a zombie meanwhile
    await node.block(2.0)                   # a call that blocks its main loop
    node.skew_seconds = -300                # its wall clock is wrong

A killed coroutine must not be collected while the world runs: CPython would throw
GeneratorExit into it, and the `finally` blocks of a dead process would run after all. So
dead nodes are kept, and garbage collection is off, until `close`.
"""

import asyncio
import gc
import heapq
import random
import sys
from asyncio import events, tasks
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar, final

from durio.model.ids import uuid7
from durio.testing.clock import EPOCH, STARTED_SECONDS, Stuck, report_task, wake

T = TypeVar("T")

MAIN_NODE = "world"  # the process of the director: no fault disturbs it
PRUNE_MIN = 256  # number of tasks before finished ones are dropped


@final
class NodeLoop(asyncio.BaseEventLoop):
    """One thread of a simulated process: a loop that the world drives."""

    def __init__(self, world: "World", node: "Node", name: str) -> None:
        self.world = world
        self.node = node
        self.name = name
        super().__init__()
        self.ready: deque[asyncio.Handle] = deque()
        self.is_blocked = False
        # asyncio holds tasks weakly
        self.made: list[asyncio.Task[Any]] = []
        self.made_max = PRUNE_MIN

    # --- the interface that asyncio needs

    def time(self) -> float:
        """Virtual seconds, the same for all loops."""
        return self.world.seconds

    def call_soon(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # pyright: ignore[reportAssignmentType]

    def call_at(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self.world.add_timer(self, timer)
        return timer

    def call_later(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        when = self.world.seconds + delay
        return self.call_at(when, callback, *args, context=context)

    def create_task(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[T]":
        """Create a task that stays in memory until it or the world has ended."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        if len(self.made) >= self.made_max:
            self.made = [
                one for one in self.made if not one.done() or is_unretrieved(one)
            ]
            self.made_max = max(PRUNE_MIN, 2 * len(self.made))
        self.made.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record every error."""
        if not self.world.is_closed:
            self.world.errors.append((self.node.name, context))

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001 - asyncio's own
        """Always off: asyncio's debug checks would add steps."""
        del enabled
        self._debug = False

    def is_running(self) -> bool:
        """True while its process lives."""
        return not self.node.is_dead

    def is_closed(self) -> bool:
        return False

    def _check_closed(self) -> None:  # pyright: ignore[reportUnusedFunction]
        """A loop of the world is never closed."""

    def _timer_handle_cancelled(  # pyright: ignore[reportUnusedFunction]
        self, handle: asyncio.TimerHandle
    ) -> None:
        """A cancelled timer is dropped when its time comes."""

    def __del__(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """There is nothing to close."""

    # --- driven by the world

    @property
    def can_run(self) -> bool:
        return bool(self.ready) and not self.is_blocked and not self.node.is_paused

    def step(self) -> None:
        handle = self.ready.popleft()
        if not handle.cancelled():
            events._set_running_loop(self)
            handle._run()  # pyright: ignore[reportAttributeAccessIssue]


@final
class Node:
    """One simulated process."""

    def __init__(self, world: "World", name: str, boot: int) -> None:
        self.world = world
        self.name = name
        self.boot = boot  # how many processes of this name came before
        self.is_dead = False
        self.is_paused = False
        self.skew_seconds = 0.0  # error of its wall clock
        self.chance = world.chance(f"{name}/{boot}")
        self.clock = NodeClock(self)
        self.main = NodeLoop(world, self, "main")
        self.side_loop = NodeLoop(world, self, "aside")

    @property
    def loops(self) -> tuple[NodeLoop, NodeLoop]:
        return self.main, self.side_loop

    async def block(self, seconds: float) -> None:
        """Block the loop that awaits this, as a call like time.sleep does.

        Meanwhile the task that awaits it stays the current task of its loop, so that a
        watchdog on the other loop finds the task that blocks.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if not isinstance(loop, NodeLoop) or task is None:
            raise RuntimeError("only tasks of a simulated process can block it")
        over: asyncio.Future[None] = loop.create_future()
        loop.is_blocked = True
        world = self.world
        world.director.main.call_soon(tasks._enter_task, loop, task)

        def end() -> None:
            if not self.is_dead:
                tasks._leave_task(loop, task)
                loop.is_blocked = False
                # Run before everything else that became due meanwhile.
                wake(over)
                loop.ready.rotate(1)

        world.director.main.call_later(seconds, end)
        await over


@final
class NodeClock:
    """The clock of one simulated process, as `ports.clock.Clock` asks for it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.stamp = 0

    def now(self) -> float:
        """Return the wall clock of this process's machine: it may be wrong."""
        return self.node.world.wall() + self.node.skew_seconds

    def monotonic(self) -> float:
        """Return seconds that never go back, common to all processes of one boot."""
        return self.node.world.seconds

    def boot_id(self) -> str:
        """Constant: there is one machine, and it never reboots."""
        return "simulated-boot"

    async def sleep(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(max(seconds, 0.0), wake, woken)
        try:
            await woken
        finally:
            timer.cancel()

    def random(self) -> float:
        """Uniform, from 0 to below 1, for jitter."""
        return self.node.chance.random()

    def new_id(self) -> bytes:
        """Return a new job id: grows within a process, unique everywhere."""
        self.stamp = max(self.stamp + 1, int(self.now() * 1000) << 12)
        return uuid7(self.stamp >> 12, self.stamp, self.node.chance.getrandbits(62))

    def secret_bytes(self, size: int) -> bytes:
        """Return random bytes, from the seed of the world."""
        return self.node.chance.randbytes(size)


@final
class World:
    """A simulated world: its time, its random numbers and its processes."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.seconds = STARTED_SECONDS
        self.step_seconds = 0.0  # by which a fault has set the wall clock
        self.steps = 0
        self.errors: list[tuple[str, dict[str, Any]]] = []
        self.is_closed = False
        self._order = self.chance("order")
        self._timers: list[tuple[float, int, NodeLoop, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._loops: list[NodeLoop] = []
        self._dead_nodes: list[Node] = []
        self._boots: dict[str, int] = {}
        self.nodes: dict[str, Node] = {}
        self.director = self._new_node(MAIN_NODE)

    def chance(self, name: str) -> random.Random:
        """Return an independent random source, whose draws do not change another's."""
        return random.Random(f"{self.seed}:{name}")

    def wall(self) -> float:
        """Return the true wall clock; that of a process may be wrong."""
        return EPOCH - STARTED_SECONDS + self.seconds + self.step_seconds

    # --- processes

    def start(
        self, name: str, main: Callable[[Node], Coroutine[Any, Any, None]]
    ) -> Node:
        """Start a new process of this name, in place of a dead one."""
        node = self._new_node(name)
        # A new context: a process inherits nothing from the code that starts it.
        node.main.create_task(main(node), name=name, context=Context())
        return node

    def _new_node(self, name: str) -> Node:
        boot = self._boots.get(name, 0)
        self._boots[name] = boot + 1
        node = self.nodes[name] = Node(self, name, boot)
        self._loops.extend(node.loops)
        return node

    def kill(self, node: Node) -> None:
        """Kill a process as SIGKILL does: no further line of it runs."""
        if node.is_dead:
            return
        node.is_dead = True
        self._loops = [loop for loop in self._loops if loop.node is not node]
        self._dead_nodes.append(node)

    def pause(self, node: Node) -> None:
        """Stop a process as SIGSTOP does."""
        node.is_paused = True

    def resume(self, node: Node) -> None:
        """Resume a process as SIGCONT does: what became due meanwhile runs now."""
        node.is_paused = False

    # --- running

    def add_timer(self, loop: NodeLoop, timer: asyncio.TimerHandle) -> None:
        """Add a timer; timers of equal time run in the order of their creation."""
        self._timer_count += 1
        entry = (timer.when(), self._timer_count, loop, timer)
        heapq.heappush(self._timers, entry)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run the director's coroutine to its end; then the world stands still."""
        gc.disable()
        before = events._get_running_loop()
        try:
            task = self.director.main.create_task(main, name=MAIN_NODE)
            while not task.done():
                self._turn()
            return task.result()
        finally:
            events._set_running_loop(before)
            gc.enable()

    def _turn(self) -> None:
        # `can_run` written inline: it runs some million times per world.
        can_run = [
            loop
            for loop in self._loops
            if loop.ready and not loop.is_blocked and not loop.node.is_paused
        ] or [self._jump()]
        self.steps += 1
        place = int(self._order.random() * len(can_run)) if len(can_run) > 1 else 0
        can_run[place].step()

    def _jump(self) -> NodeLoop:
        """Advance to the next timer of a living process, because all loops are idle."""
        while self._timers:
            when, _, loop, timer = heapq.heappop(self._timers)
            if loop.node.is_dead:
                loop.ready.append(timer)  # kept in memory, and never run
            elif not timer.cancelled():
                self.seconds = max(self.seconds, when)
                loop.ready.append(timer)
                # A paused or blocked loop finds it when it goes on.
                if loop.can_run:
                    return loop
        raise Stuck(
            "simulated deadlock: nothing runnable and no timer left\n" + self.report()
        )

    def report(self) -> str:
        """Return where every task of every living process is."""
        told = [
            f"[{loop.node.name}/{loop.name}] {report_task(task)}"
            for loop in self._loops
            for task in loop.made
            if not task.done()
        ]
        return "\n".join(told) or "there are no tasks"

    def unretrieved_errors(self) -> list[tuple[str, dict[str, Any]]]:
        """Tasks that ended in an exception that no code retrieved, as in `errors`."""
        return [
            (loop.node.name, told)
            for loop in self._every_loop()
            for told in unretrieved_in(loop.made, loop.ready)
        ]

    def _every_loop(self) -> list[NodeLoop]:
        dead = [loop for node in self._dead_nodes for loop in node.loops]
        return [*self._loops, *dead]

    def close(self) -> None:
        """Let dead nodes be collected; their errors are ignored."""
        self.is_closed = True
        hook, sys.unraisablehook = sys.unraisablehook, _ignore
        before = events._get_running_loop()
        try:
            for loop in self._every_loop():
                events._set_running_loop(loop)
                for task in asyncio.all_tasks(loop):
                    # Its `finally` may run now: nothing is recorded any more.
                    with suppress(BaseException):
                        task.get_coro().close()
                loop.made.clear()
                loop.ready.clear()
            self._loops.clear()
            self._timers.clear()
            self._dead_nodes.clear()
        finally:
            events._set_running_loop(before)
            gc.collect()
            sys.unraisablehook = hook


def _ignore(_unraisable: object) -> None:
    """Errors of dead coroutines are expected."""


def is_unretrieved(task: "asyncio.Task[Any]") -> bool:
    """Whether a task ended in an exception that no code has retrieved yet."""
    return bool(task.done() and getattr(task, "_log_traceback", False))


def unretrieved_in(
    made: Iterable["asyncio.Task[Any]"], ready: Iterable[asyncio.Handle]
) -> list[dict[str, Any]]:
    """Such tasks of one loop, as contexts for an exception handler."""
    dead = [task for task in made if is_unretrieved(task)]
    if not dead:
        return []
    # A task that waits for one gets the exception in its next step.
    told = {id(one) for handle in ready for one in getattr(handle, "_args", ()) or ()}
    return [
        {
            "message": f"task {task.get_name()} died",
            "exception": getattr(task, "_exception", None),
        }
        for task in dead
        if id(task) not in told
    ]
