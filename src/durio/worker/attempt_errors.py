"""Errors of attempts: which one decides about the retry, and where it comes from."""

import traceback
from typing import cast

from durio.model.errors import Control, DurioError, InvalidResult
from durio.model.failure import Failure
from durio.ports.executor import SoftTimeLimit
from durio.worker.inflight import Attempt


def late_result_error(task: str) -> DurioError:
    """Return the error for a result that came after the job was recorded without it."""
    return InvalidResult(
        f"{task} returned a value after ctx.transaction() had recorded another, or none",
        cure="Give it inside the block: return ctx.result(value).",
    )


def child_lost(
    attempt: Attempt, how: str, stack: str, now: float, worker: str
) -> Failure:
    """Return the failure of an attempt whose child process died."""
    return Failure(
        type="ChildLost",
        message=how,
        traceback=stack,
        attempt=attempt.number,
        at=now,
        worker=worker,
        logs=tuple(attempt.log_lines()),
    )


def is_from_keyboard(error: KeyboardInterrupt) -> bool:
    """Whether asyncio's SIGINT handler raised it while this task happened to run."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_code.co_name == "_on_sigint"


def raise_error(error: BaseException) -> None:
    raise error


def control_error(error: BaseException) -> BaseException:
    """Return the Control or SoftTimeLimit in an exception group; else the error itself."""
    return _find_control_error(error) or error


def _find_control_error(error: BaseException) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return next(filter(None, map(_find_control_error, inner)), None)
    return error if isinstance(error, Control | SoftTimeLimit) else None
