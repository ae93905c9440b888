"""The pool of a worker's child processes: started ahead, reused, replaced, killed.

A job goes to an idle child or waits for one. A child that dies loses only its own job,
and another child is started. A child that reached its maximum of jobs or memory is
replaced: the next one starts while it still works and waits as a spare until it has
left. So there is no gap, and never more than `count` children work.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import final

from durio.host.child import AT_WORK, Child, ChildState, ProcessJob, stacks_of
from durio.host.child_wire import End, Ready, Setup
from durio.model.errors import ChildFailed, DurioError
from durio.model.ids import id_text
from durio.model.job import Claim
from durio.model.transitions import LOST_MAX
from durio.ports.executor import ChildAttemptCallbacks, ChildVitals
from durio.telemetry.emit import Emit

START_SECONDS = 120.0  # time to import the App and enter its dependencies
LEAVE_SECONDS = 5.0  # time to leave the dependencies
KILL_SECONDS = 2.0
BACKOFF_FIRST, BACKOFF_LAST = 0.1, 30.0
FAILURES_MAX = 8  # children in a row that did not start, or ended before any use
HEALTHY_SECONDS = 30.0  # a child that lives this long is healthy, even without a job
NO_ROOM_CURE = (
    "See the limits of the machine: open files (ulimit -n), processes, memory."
)
# A replacement is started 20 jobs before the maximum, or at 90 % of the memory maximum.
AHEAD_JOBS, AHEAD_SHARE = 20, 0.9


@final
class ChildProcessPool:
    """Keeps `count` children at work."""

    def __init__(
        self, setup: Setup, emit: Emit, *, count: int, jobs_max: int, rss_max: int
    ) -> None:
        self._setup = setup
        self._emit = emit
        self._count = count
        self._jobs_max = jobs_max
        self._rss_max = rss_max
        self._loop = asyncio.get_running_loop()
        self._children: list[Child] = []
        self._idle: list[Child] = []
        self._waiting: deque[ProcessJob] = deque()
        self._changed = asyncio.Event()
        self._opened: asyncio.Future[None] | None = None
        self._broken: Callable[[DurioError], None] | None = None
        self._failures = 0
        self._backoff_timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._gone_cpu_seconds = 0.0

    # --- called by the worker

    async def open(self, *, ahead: bool, broken: Callable[[DurioError], None]) -> None:
        """Start the children now, or with the first job.

        `broken` is called if they fail to start FAILURES_MAX times in a row.
        """
        self._broken = broken
        if ahead:
            self._opened = self._loop.create_future()
            self._fill()
            await self._opened

    def send(self, claim: Claim, callbacks: ChildAttemptCallbacks) -> ProcessJob:
        job = ProcessJob(self, claim, callbacks)
        self._waiting.append(job)
        self._fill()
        self._assign_jobs()
        return job

    def withdraw(self, job: ProcessJob) -> bool:
        try:
            self._waiting.remove(job)
        except ValueError:
            return False
        return True

    def kill(self, child: Child, claim: Claim) -> None:
        self._emit(
            "child.killed", pid=child.pid, task=claim.task, job_id=id_text(claim.id)
        )
        child.state = ChildState.LEAVING
        child.process.kill()
        self._fill()

    def vitals(self) -> ChildVitals:
        vitals = [child.vitals() for child in list(self._children)]
        cpu_seconds = self._gone_cpu_seconds + sum(cpu for cpu, _ in vitals)
        return ChildVitals(cpu_seconds, sum(rss for _, rss in vitals), len(vitals))

    async def stacks(self, timeout_seconds: float) -> dict[int, str]:
        asked = [child for child in self._children if child.state in AT_WORK]
        return await stacks_of(asked, timeout_seconds)

    async def close(self) -> None:
        self._is_closed = True
        self._waiting.clear()
        if self._backoff_timer is not None:
            self._backoff_timer.cancel()
        for child in list(self._children):
            if child.state in (ChildState.IDLE, ChildState.SPARE):
                self._end_child(child)
            elif child.state is not ChildState.LEAVING:
                child.state, child.job = ChildState.LEAVING, None
                child.process.kill()
        await self._until_gone(LEAVE_SECONDS)
        for child in self._children:
            child.process.kill()
        await self._until_gone(KILL_SECONDS)

    async def _until_gone(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while self._children:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass

    # --- called by the children

    def ready(self, child: Child, message: Ready) -> None:
        """Make a child that has loaded the App a spare, unless it lacks a task."""
        unknown = {found.task for found in self._setup.origin.tasks} - set(
            message.tasks
        )
        if unknown:
            self.failed(
                child,
                f"it does not know the task {', '.join(sorted(unknown))}",
                "",
                "Declare tasks when their module is imported, always; if the code "
                "has changed since the worker started, restart the worker.",
            )
            return
        if child.state is not ChildState.STARTING:
            return
        self._loop.call_later(HEALTHY_SECONDS, self._mark_healthy, child)
        self._emit("child.started", pid=child.pid)
        child.state = ChildState.SPARE
        self._fill()
        self._assign_jobs()
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    def failed(
        self, child: Child, what: str, traceback_text: str, cure: str = ""
    ) -> None:
        """Handle a child that could not load the App, was slow, or failed while it left."""
        if child.state is not ChildState.STARTING:
            if traceback_text:
                self._emit("child.failed", error=what, stack=traceback_text)
            return
        child.state = ChildState.LEAVING
        child.process.kill()
        self._start_failed(what, traceback_text, cure)

    def _start_failed(self, what: str, traceback_text: str, cure: str) -> None:
        """Handle a failed start.

        During `open` the error is final; later the start is retried after a pause.
        """
        error = ChildFailed(
            f"a child process for tasks with process=True did not start: {what}",
            cure=cure
            or "Correct it: each child process imports the App, as a worker does.",
            traceback_text=traceback_text,
        )
        if self._opened is not None and not self._opened.done():
            self._is_closed = True
            self._opened.set_exception(error)
            return
        self._emit(
            "child.failed", error=what, tries=self._failures + 1, stack=traceback_text
        )
        self._back_off(error)

    def became_idle(self, child: Child) -> None:
        """Replace the child if it reached its maximum, else give it the next job."""
        self._mark_healthy(child)
        has_had_jobs = 0 < self._jobs_max <= child.jobs_given
        if has_had_jobs or 0 < self._rss_max < child.rss_bytes:
            self._emit("child.recycled", pid=child.pid, jobs=child.jobs_given)
            self._end_child(child)
        else:
            self._idle.append(child)
        self._fill()
        self._assign_jobs()

    def stopped_taking_jobs(self, child: Child, unbegun: ProcessJob | None) -> None:
        """Handle a broken child that ends by itself; `unbegun` becomes the next job."""
        if child.job is None:
            self._count_early_end(
                child, "its event loop was stopped, or its tasks cancelled"
            )
        child.state = ChildState.LEAVING
        if child in self._idle:
            self._idle.remove(child)
        if child.job is None:
            self.kill_later(child)
        if unbegun is not None:
            self._waiting.appendleft(unbegun)
            unbegun.callbacks.returned()
        self._fill()
        self._assign_jobs()

    def kill_later(self, child: Child) -> None:
        self._loop.call_later(LEAVE_SECONDS, child.process.kill)

    def exited(
        self, child: Child, how: str, stack: str, job: ProcessJob | None
    ) -> None:
        """Start another child, because this one's process has ended."""
        if child.state is ChildState.STARTING:
            self.failed(child, f"it died: {how}", stack)
        elif child.state is not ChildState.LEAVING or job is not None:
            # If the child had a job, its last stack is reported with the job.
            task, stack = (job.claim.task, "") if job else ("", stack)
            self._emit("child.died", pid=child.pid, how=how, task=task, stack=stack)
            if job is None:
                self._count_early_end(child, how)
        child.state = ChildState.LEAVING
        self._gone_cpu_seconds += child.cpu_seconds
        self._children.remove(child)
        if child in self._idle:
            self._idle.remove(child)
        self._changed.set()
        self._fill()
        self._assign_jobs()

    # --- repeated failures

    def _mark_healthy(self, child: Child) -> None:
        """Forget earlier failures, because the child works."""
        if child.state is not ChildState.LEAVING:
            child.is_healthy, self._failures = True, 0

    def _count_early_end(self, child: Child, how: str) -> None:
        """Count a child that ended by itself before any use as a failed start."""
        if child.state is ChildState.LEAVING or child.is_healthy:
            return
        self._back_off(
            ChildFailed(
                "a child process for tasks with process=True ended before it finished "
                f"a job: {how}",
                cure="See child.failed and child.died in the log, then correct what "
                "the App or its dependencies do in a child.",
            )
        )

    def _back_off(self, error: ChildFailed) -> None:
        """Count one failure and pause; at FAILURES_MAX in a row, report `broken`."""
        if self._backoff_timer is not None or self._is_closed:
            return  # same failure: its cause may have ended all children
        self._failures += 1
        pause = min(BACKOFF_FIRST * 2**self._failures, BACKOFF_LAST)
        self._backoff_timer = self._loop.call_later(pause, self._end_backoff)
        if self._failures == FAILURES_MAX and self._broken is not None:
            self._broken(error)

    # --- number of children, assignment of jobs

    def _fill(self) -> None:
        """Keep `count` children at work, and one more for each that leaves soon."""
        if self._is_closed:
            return
        at_work = [child for child in self._children if child.state in AT_WORK]
        spares = [child for child in self._children if child.state is ChildState.SPARE]
        while spares and len(at_work) < self._count:
            spare = spares.pop()
            spare.state = ChildState.IDLE
            at_work.append(spare)
            self._idle.append(spare)
        if self._backoff_timer is not None:
            return  # paused after failures; start none now
        starting = sum(child.state is ChildState.STARTING for child in self._children)
        wanted = self._count + sum(map(self._leaves_soon, at_work))
        for _ in range(wanted - len(at_work) - len(spares) - starting):
            if not self._start():
                return

    def _leaves_soon(self, child: Child) -> bool:
        ahead = min(AHEAD_JOBS, self._jobs_max // 10)
        if 0 < self._jobs_max <= child.jobs_given + ahead:
            return True
        return 0 < self._rss_max * AHEAD_SHARE < child.rss_bytes

    def _start(self) -> bool:
        """Start one child; return False if the machine has no room for it now."""
        try:
            child = Child(self, self._setup)
        except (OSError, RuntimeError) as error:  # descriptors, memory; threads
            self._start_failed(str(error), "", NO_ROOM_CURE)
            return False
        self._children.append(child)
        self._loop.call_later(
            START_SECONDS,
            self.failed,
            child,
            f"not ready within {START_SECONDS:g} s",
            "",
        )
        return True

    def _end_backoff(self) -> None:
        """Start children and assign waiting jobs: the pause after a failure is over."""
        self._backoff_timer = None
        self._fill()
        self._assign_jobs()

    def _assign_jobs(self) -> None:
        """Give waiting jobs to idle children; some wait for an unused child."""
        waiting = 0
        while self._idle and waiting < len(self._waiting):
            job = self._waiting[waiting]
            child = self._child_for(job)
            if child is None:
                waiting += 1
                continue
            del self._waiting[waiting]
            self._idle.remove(child)
            child.assign(job)
            self._fill()

    def _child_for(self, job: ProcessJob) -> Child | None:
        """Return an idle child; for a job's last chance, one that has had no job yet."""
        if job.claim.lost < LOST_MAX - 1:
            return self._idle[-1]
        child = self._unused_child()
        if child is None and self._may_replace():
            self._end_child(self._idle[0])
            self._fill()  # a spare takes its place now, or a new child is started
            child = self._unused_child()
        return child

    def _unused_child(self) -> Child | None:
        return next((child for child in self._idle if not child.jobs_given), None)

    def _may_replace(self) -> bool:
        """Whether an idle child may be ended for a new one; only one at a time."""
        states = {child.state for child in self._children}
        if ChildState.SPARE in states:
            return True
        return ChildState.STARTING not in states and self._backoff_timer is None

    def _end_child(self, child: Child) -> None:
        child.state = ChildState.LEAVING
        if child in self._idle:
            self._idle.remove(child)
        child.process.send(End())
        self.kill_later(child)
