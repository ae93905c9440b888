"""The live stack of a coroutine that waits: who awaits whom, the innermost last.

A task that waits has no thread to look at. Its frames hang on each other by what each of
them awaits; the driver of an attempt, which stands between, is looked through.
"""

import traceback
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any

from durio.worker.inflight import Attempt, SoftLimitDriver

FRAMES_MAX = 40
CHARS_MAX = 8_000
# What can be awaited, its own frame, and what it awaits itself.
LINKS = (
    (CoroutineType, "cr_frame", "cr_await"),
    (AsyncGeneratorType, "ag_frame", "ag_await"),
    (GeneratorType, "gi_frame", "gi_yieldfrom"),
)


def attempt_stack(attempt: Attempt) -> str:
    """Where the code of an attempt is, on the event loop; nothing: it is elsewhere."""
    task = attempt.asyncio_task
    if task is None:
        return ""
    frames = awaited_frames(task.get_coro())
    summary = traceback.StackSummary.extract(iter(frames[-FRAMES_MAX:]))
    return "".join(traceback.format_list(summary))[-CHARS_MAX:]


def awaited_frames(root: Any) -> list[tuple[FrameType, int]]:
    """The frames below a coroutine, its own first; ours above the task's are left out."""
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
    """The task's own coroutine, where a link is our driver of it."""
    frame = awaitable.gi_frame if isinstance(awaitable, GeneratorType) else None
    driver = None if frame is None else frame.f_locals.get("self")
    return driver.coro if isinstance(driver, SoftLimitDriver) else None


def frame_and_awaited(awaitable: Any) -> tuple[FrameType | None, Any]:
    """A link's own frame, and what it awaits."""
    for kind, frame, below in LINKS:
        if issubclass(type(awaitable), kind):
            return getattr(awaitable, frame), getattr(awaitable, below)
    return None, None  # a future: nobody's code waits below
