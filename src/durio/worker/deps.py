"""The user's `deps=`, entered before the first job of a worker and left after the last.

An error on entry ends the worker. An error on exit is only reported: all jobs have ended by
then, and a restart of the worker would not help.
"""

from types import TracebackType
from typing import Any

from durio.model.failure import failure_of
from durio.telemetry.emit import Emit
from durio.telemetry.frames import OUR_FRAMES
from durio.worker.worker_config import DepsFactory


class Dependencies:
    def __init__(self, factory: DepsFactory, emit: Emit) -> None:
        self._factory = factory
        self._emit = emit

    async def __aenter__(self) -> Any:
        self._entered = self._factory()
        return await self._entered.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            return await self._entered.__aexit__(kind, error, trace)
        except Exception as failure:
            if error is not None:
                raise
            details = failure_of(failure, hidden=OUR_FRAMES)
            what = f"{details.type}: {details.message}"
            self._emit("deps.failed", error=what, stack=details.traceback)
            return None
