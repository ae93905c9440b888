"""Commands that a worker receives through the store, and its answers.

A renewal of the lease returns the commands. They are answered on the side loop, so that a
worker whose loop is blocked can still report its stack. Every answer is one JSON object.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from durio.model.effects import Effects, Put
from durio.model.errors import StoreError
from durio.model.ids import id_text
from durio.model.job import Claim, attempt_number
from durio.model.names import queue_of
from durio.model.worker_commands import (
    COMMAND_TTL_SECONDS,
    answer_kind,
    commands_kind,
)
from durio.ports.clock import Clock
from durio.ports.executor import ChildPool, SideLoop, ThreadStack
from durio.ports.lease import Command
from durio.ports.records import RECORD_BYTES_MAX
from durio.ports.store import Store
from durio.telemetry.emit import Emit
from durio.telemetry.frames import user_stack
from durio.worker.heartbeat import VitalsReporter
from durio.worker.inflight import Attempt
from durio.worker.slots import Slots
from durio.worker.stacks import attempt_stack
from durio.worker.stop_control import StopControl
from durio.worker.watchdog import Machine
from durio.worker.worker_config import WorkerConfig, WorkerIdentity

LAG_SECONDS_MAX = 1.0  # a loop that does not respond within this time is blocked
CHILD_SECONDS_MAX = 2.0
ANSWER_CHARS_MAX = 200_000  # characters of stacks and jobs in one answer
JOBS_MAX = 200
ANSWER_BYTES_MAX = 4 * RECORD_BYTES_MAX
TRUNCATED = "\n... cut: the answer was {} bytes long"
DONE = b"done"


class CommandResponder:
    """Answers the commands of one worker, each once."""

    def __init__(  # noqa: PLR0913 - the parts of a worker that it asks
        self,
        *,
        store: Store,
        clock: Clock,
        emit: Emit,
        identity: WorkerIdentity,
        config: WorkerConfig,
        stop_control: StopControl,
        side_loop: SideLoop,
        machine: Machine,
        slots: Slots,
        vitals: VitalsReporter,
        child_pool: ChildPool | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._identity = identity
        self._config = config
        self._stop_control = stop_control
        self._side_loop = side_loop
        self._machine = machine
        self._slots = slots
        self._vitals = vitals
        self._child_pool = child_pool
        self._loop = asyncio.get_running_loop()
        self._in_progress: set[str] = set()

    def receive(self, commands: Sequence[Command]) -> None:
        """Handle commands; called on the loop that renewed.

        A command is received again until it is answered.
        """
        for command in commands:
            if command.id not in self._in_progress:
                self._in_progress.add(command.id)
                self._side_loop.start(partial(self._execute, command))

    async def _execute(self, command: Command) -> None:
        body = await self._body(command.verb)
        try:
            # A conflict means that the command has been answered, or has expired.
            puts = answer_puts(self._identity.id, command, body)
            await self._store.commit(Effects(puts=puts))
        except StoreError as error:
            self._emit("store.failed", call="answer", error=str(error))
            # The next renewal returns the command again, unless its answer was stored.
            # Because that is possible after a lost reply, a drain is then executed.
            self._in_progress.discard(command.id)
            if not error.unknown:
                return
        if command.verb == "drain":
            # The answer is written first, because a worker that drains may end at any
            # moment.
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        """Drain and report it, so that a supervisor starts no process in its place."""
        self._vitals.drain_commanded()
        self._stop_control.drain()

    async def _body(self, verb: str) -> str:
        """Return the answer; an error is an answer too, because the caller waits."""
        try:
            answer = await self._answer(verb)
            return msgspec.json.encode(answer, enc_hook=repr).decode()
        except Exception as error:
            answer = {**self._name(), "error": f"{type(error).__name__}: {error}"}
            return msgspec.json.encode(answer, enc_hook=repr).decode()

    async def _answer(self, verb: str) -> dict[str, Any]:
        if verb == "stack":
            return await self._stack()
        if verb == "report":
            return await self._report()
        if verb == "drain":
            return {**self._name(), "draining": True, "running": self._running()}
        return {
            **self._name(),
            "error": f"this release does not know the command {verb!r}",
        }

    def _name(self) -> dict[str, Any]:
        config = self._config
        return {"worker": self._identity.id, "name": config.name, "pid": config.pid}

    def _running(self) -> int:
        return len(self._slots.running)

    # --- stack

    async def _stack(self) -> dict[str, Any]:
        lag = await self._lag()
        threads = self._machine.stacks()
        by_thread = {thread.id: thread for thread in threads}
        left = AnswerBudget(ANSWER_CHARS_MAX)
        attempts = [
            {**self._attempt(attempt), **self._where(attempt, by_thread)}
            for attempt in self._attempts()
        ]
        return {
            **self._name(),
            "loop_lag_seconds": lag,
            "attempts": left.take(attempts),
            "threads": left.take(
                [{"name": thread.name, "stack": thread.stack} for thread in threads]
            ),
            "children": left.take(await self._children(is_blocked=lag is None)),
            "left_out": left.left_out,
        }

    def _where(
        self, attempt: Attempt, threads: Mapping[int, ThreadStack]
    ) -> dict[str, Any]:
        call = attempt.call
        if call is not None:
            thread = threads.get(call.thread_id)
            stack = (
                "waits for a thread\n" if thread is None else user_stack(thread.stack)
            )
            return {"where": "thread", "stack": stack}
        if asyncio.current_task(self._loop) is attempt.asyncio_task is not None:
            return {
                "where": "loop",
                "stack": user_stack(self._machine.stack()),
            }  # it runs now, or blocks the loop
        if attempt.handler.is_process:
            return {"where": "child", "stack": ""}
        return {"where": "loop", "stack": attempt_stack(attempt)}

    async def _children(self, *, is_blocked: bool) -> list[dict[str, Any]]:
        """Return the stacks of child processes, whose messages the worker's loop reads."""
        if self._child_pool is None or is_blocked:
            return []
        stacks = self._child_pool.stacks(CHILD_SECONDS_MAX)
        asked = asyncio.run_coroutine_threadsafe(stacks, self._loop)
        try:
            async with asyncio.timeout(CHILD_SECONDS_MAX * 2):
                found = await asyncio.wrap_future(asked)
        except TimeoutError:
            return []
        return [{"pid": pid, "stack": stack} for pid, stack in sorted(found.items())]

    # --- report

    async def _report(self) -> dict[str, Any]:
        lag = await self._lag()
        config, vitals = self._config, self._vitals.measure()
        reserved = [self._claim(claim) for claim in list(self._slots.buffer)]
        return {
            **self._name(),
            "namespace": config.namespace,
            "version": config.version,
            "loop_lag_seconds": lag,
            "active": [self._attempt(attempt) for attempt in self._attempts()],
            "reserved": reserved[:JOBS_MAX],
            "registered": sorted(config.tasks),
            "queues": config.serving.as_arguments,
            **config.serving.shown(),
            "stats": {
                "concurrency": self._slots.concurrency,
                "running": self._running(),
                "reserved": len(reserved),
                **vitals._asdict(),
            },
        }

    def _attempts(self) -> list[Attempt]:
        """Return at most 200 running attempts, copied in one step while the loop runs."""
        return list(self._slots.running.values())[:JOBS_MAX]

    def _attempt(self, attempt: Attempt) -> dict[str, Any]:
        progress = attempt.progress
        return {
            **self._claim(attempt.claim),
            "seconds": round(self._loop.time() - attempt.started, 3),
            "hard_seconds": attempt.limits.hard_seconds,
            "progress": None if progress is None else msgspec.Raw(progress),
        }

    def _claim(self, claim: Claim) -> dict[str, Any]:
        return {
            "job_id": id_text(claim.id),
            "task": claim.task,
            "queue": queue_of(claim.lane),
            "attempt": attempt_number(claim.retried, claim.losses),
        }

    # --- the loop

    async def _lag(self) -> float | None:
        """Return how long the worker's loop takes to respond; None if it is blocked."""
        here = asyncio.get_running_loop()
        answered: asyncio.Future[None] = here.create_future()
        began = self._clock.monotonic()

        def settle() -> None:
            if not answered.done():
                answered.set_result(None)

        def answer() -> None:
            try:
                here.call_soon_threadsafe(settle)
            except RuntimeError:  # the side loop has ended
                return

        self._loop.call_soon_threadsafe(answer)
        try:
            async with asyncio.timeout(LAG_SECONDS_MAX):
                await answered
        except TimeoutError:
            return None
        return round(self._clock.monotonic() - began, 6)


def answer_puts(worker: int, command: Command, body: str) -> list[Put]:
    """Return the puts that replace a command by its answer; the first answer is kept."""
    kind = answer_kind(command.id)
    puts = [Put(commands_kind(worker), command.id, None, if_version=command.version)]
    for number, piece in enumerate(answer_pieces(body)):
        puts.append(Put(kind, str(number), piece, ttl_seconds=COMMAND_TTL_SECONDS))
    return puts


def answer_pieces(body: str) -> list[bytes]:
    """Split an answer of at most 256 KiB into records; an empty answer is one record."""
    raw = body.encode("utf-8", "replace") or DONE
    if len(raw) > ANSWER_BYTES_MAX:
        note = TRUNCATED.format(len(raw)).encode()
        kept = raw[: ANSWER_BYTES_MAX - len(note)].decode("utf-8", "ignore")
        raw = kept.encode() + note
    return [
        raw[start : start + RECORD_BYTES_MAX]
        for start in range(0, len(raw), RECORD_BYTES_MAX)
    ]


class AnswerBudget:
    """Limits the characters of an answer; counts the rows left out."""

    def __init__(self, chars: int) -> None:
        self._chars = chars
        self.left_out = 0

    def take(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        kept: list[dict[str, Any]] = []
        for row in rows:
            size = len(str(row))
            if size > self._chars:
                self.left_out += 1
                continue
            self._chars -= size
            kept.append(row)
        return kept
