"""Arguments that do not fit the code here may fit the code of another worker.

A payload that fails validation is dead at once. But while old and new code stand side by
side, in a rolling deploy or after a way back, a task may have another signature elsewhere.
Workers publish theirs; when one of the last weeks differs from ours, the job is put aside
like one of an unknown task, for a worker that can read it. The same when it was a child
process that could not read it, but we can: a child loads the code anew, and that may have
changed on disk since this worker began.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from durio.model.errors import StoreError
from durio.model.outcome import Outcome, Reason
from durio.model.signature import mark_of
from durio.ports.clock import Clock
from durio.ports.store import Store
from durio.telemetry.emit import JobEvent
from durio.worker.inflight import Attempt
from durio.worker.unrunnable import put_aside

Settle = Callable[[Attempt, Outcome, JobEvent | None], None]


class Versions:
    """Knows which code of a task is ours, and asks which others there are."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tasks: Mapping[str, Mapping[str, Any]],
        unknown_seconds: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._unknown_seconds = unknown_seconds
        self._asking: set[asyncio.Task[None]] = set()

    def judge(
        self, attempt: Attempt, outcome: Outcome, event: JobEvent, settle: Settle
    ) -> bool:
        """Whether the end of this attempt waits for what the store knows."""
        if outcome.reason != Reason.BAD_PAYLOAD or self._is_too_old(attempt):
            return False
        asking = asyncio.get_running_loop().create_task(
            self._ask(attempt, outcome, event, settle)
        )
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return True

    def _is_too_old(self, attempt: Attempt) -> bool:
        since = attempt.claim.parked_at
        return since is not None and (
            self._clock.now() - since >= self._unknown_seconds
        )

    async def _ask(
        self, attempt: Attempt, outcome: Outcome, event: JobEvent, settle: Settle
    ) -> None:
        if fits_here(attempt) or await self._has_others(attempt.task):
            aside = put_aside(attempt.claim, self._clock.now())
            told = aside.event and aside.event._replace(
                error_type=event.error_type, error=event.error
            )
            outcome, event = aside.outcome, told or event
        if not attempt.is_over:
            settle(attempt, outcome, event)

    async def _has_others(self, task: str) -> bool:
        ours = mark_of(self._tasks.get(task, {}).get("parameters"))
        try:
            marks = await self._store.signatures(task)
        except StoreError:
            return True  # nobody can tell: put aside, not buried
        return any(mark != ours for mark in marks)


def fits_here(attempt: Attempt) -> bool:
    """Whether our code can read what a child process could not: it has other code."""
    if not attempt.handler.is_process:
        return False
    try:
        attempt.handler.signature.decode(attempt.claim.payload)
    except Exception:  # ours, or a type's own validator
        return False
    return True
