"""Call the function of a handler: through middleware, in a thread, several times."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from durio.model.argument_codec import Arguments
from durio.ports.executor import Executor
from durio.worker.inflight import Attempt
from durio.worker.middleware import Middleware, wrapped


class CallEnvironment(Protocol):
    """The parts of a worker or child that a call uses."""

    executor: Executor
    middleware: Sequence[Middleware]


async def call_handler(
    environment: CallEnvironment, attempt: Attempt, calls: Sequence[Arguments]
) -> Any:
    """Make the call; of a chunk all calls, one after the other, and return a list."""
    results = [await _call(environment, attempt, *call) for call in calls]
    return results if attempt.is_chunk else results[0]


async def _call(
    environment: CallEnvironment,
    attempt: Attempt,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    handler = attempt.handler
    if handler.takes_context:
        args = (attempt.context(), *args)
    call = partial(handler.function, *args, **kwargs)
    if not handler.is_async:
        call = partial(_in_thread, environment.executor, attempt, call)
    if not environment.middleware:
        return await call()
    return await wrapped(environment.middleware, attempt.context(), call)()


async def _in_thread(executor: Executor, attempt: Attempt, function: Any) -> Any:
    attempt.call = executor.start(function)
    ended = await attempt.call.future
    attempt.call = None
    if ended.error is not None:
        raise ended.error
    return ended.value
