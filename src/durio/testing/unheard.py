"""Tasks that died of an exception which nobody asked them for.

asyncio tells of such a task when it is collected; in a simulated world nothing is.
"""

import asyncio
from collections.abc import Iterable
from typing import Any


def is_unheard(task: "asyncio.Task[Any]") -> bool:
    """Whether a task died of an exception, and nobody has asked for it yet."""
    return bool(task.done() and getattr(task, "_log_traceback", False))


def unheard_in(
    made: Iterable["asyncio.Task[Any]"], ready: Iterable[asyncio.Handle]
) -> list[dict[str, Any]]:
    """Such tasks of one loop, as an exception handler is told of them."""
    dead = [task for task in made if is_unheard(task)]
    if not dead:
        return []
    # Whoever waits for one hears of it in the next step, if he lives so long.
    told = {id(one) for handle in ready for one in getattr(handle, "_args", ()) or ()}
    return [
        {
            "message": f"task {task.get_name()} died",
            "exception": getattr(task, "_exception", None),
        }
        for task in dead
        if id(task) not in told
    ]
