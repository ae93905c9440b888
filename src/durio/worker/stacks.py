"""The live stack of a waiting coroutine, from the outermost frame to the innermost.

A waiting task has no thread to inspect. Its frames are found by following what each of
them awaits. SoftLimitDriver, between the worker's frames and the task's, is skipped.
"""

import traceback
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any

from durio.worker.inflight import Attempt, SoftLimitDriver

FRAMES_MAX = 40
CHARS_MAX = 8_000
# Type of awaitable, attribute of its frame, attribute of what it awaits.
LINKS = (
    (CoroutineType, "cr_frame", "cr_await"),
    (AsyncGeneratorType, "ag_frame", "ag_await"),
    (GeneratorType, "gi_frame", "gi_yieldfrom"),
)


def attempt_stack(attempt: Attempt) -> str:
    """Return the stack of an attempt on the event loop.

    The text is empty if the attempt runs in a child process.
    """
    task = attempt.asyncio_task
    if task is None:
        return ""
    frames = awaited_frames(task.get_coro())
    summary = traceback.StackSummary.extract(iter(frames[-FRAMES_MAX:]))
    return "".join(traceback.format_list(summary))[-CHARS_MAX:]


def awaited_frames(root: Any) -> list[tuple[FrameType, int]]:
    """Return the frames of a coroutine, outermost first, without the worker's own frames."""
    frames: list[tuple[FrameType, int]] = []
    seen: Any = root
    while seen is not None:
        driven = driven_coroutine(seen)
        if driven is not None:
            frames.clear()
            seen = driven
            continue
        frame, seen = frame_and_awaited(seen)
        if frame is not None:
            frames.append((frame, frame.f_lineno))
    return frames


def driven_coroutine(awaitable: Any) -> Any:
    """Return the task's coroutine, if this awaitable is a SoftLimitDriver; else None."""
    frame = awaitable.gi_frame if isinstance(awaitable, GeneratorType) else None
    driver = None if frame is None else frame.f_locals.get("self")
    return driver.coro if isinstance(driver, SoftLimitDriver) else None


def frame_and_awaited(awaitable: Any) -> tuple[FrameType | None, Any]:
    """Return the frame of an awaitable, and what it awaits."""
    for kind, frame, below in LINKS:
        if issubclass(type(awaitable), kind):
            return getattr(awaitable, frame), getattr(awaitable, below)
    return None, None  # a future: no code runs below it
