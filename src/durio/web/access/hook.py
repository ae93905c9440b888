"""Ask the host application who sends a request: `auth=f`, `f(request) -> User | None`."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.types import Scope

from durio.model.errors import InvalidOption
from durio.web.identity import User
from durio.web.options import Hook
from durio.web.threads import BesideLoop

HOOK_SECONDS_MAX = 2.0
THREADS = BesideLoop(4)  # of hooks that are plain functions


async def user_from_hook(
    hook: Hook, scope: Scope, report: Callable[[BaseException], None]
) -> User | None:
    """Return the user; None if the hook says so, fails, or takes too long."""
    request = Request(scope)
    try:
        async with asyncio.timeout(HOOK_SECONDS_MAX):
            answer = await called(hook, request)
    except (Exception, SystemExit) as error:
        report(error)
        return None
    if answer is None or isinstance(answer, User):
        return answer
    report(
        InvalidOption(
            f"auth= returned {answer!r:.80}, not a User",
            cure='Return durio.web.User("ann", "operator"), or None.',
        )
    )
    return None


async def called(hook: Hook, request: Request) -> Any:
    is_async = inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(
        getattr(hook, "__call__", None)  # noqa: B004 - an object with an async call
    )
    answer = hook(request) if is_async else await THREADS.run(hook, request)
    return await answer if inspect.isawaitable(answer) else answer
