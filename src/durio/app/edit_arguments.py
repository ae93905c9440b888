"""Check and encode new arguments for an existing job, before anything is written."""

from collections.abc import Mapping, Sequence
from typing import Any

from durio.app.app import App
from durio.client.enqueue import too_large
from durio.client.task_by_name import named_arguments, published_tasks
from durio.model.codec import encode
from durio.model.errors import InvalidArguments
from durio.model.names import known_as


async def checked_payload(
    app: App,
    task: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    unchecked: bool = False,
) -> bytes:
    """Encode the arguments, checked by the App's own signature or the published one.

    Raises InvalidArguments if neither is known, unless `unchecked` is set.
    """
    handler = None if unchecked else app.registry.by_name.find(task)
    if handler is not None:
        payload = handler.codec.encode(args, kwargs)
    else:
        published = None if unchecked else await published_task(app, task)
        payload = encode(
            named_arguments(task, args, kwargs, published), f"{task}: arguments"
        )
    bytes_max = app.settings.payload.bytes_max
    if len(payload) > bytes_max:
        raise too_large(task, len(payload), bytes_max)
    return payload


async def published_task(app: App, task: str) -> Mapping[str, Any]:
    """Return the description of a task that workers published."""
    known = await published_tasks(await app.store(), task.partition(".")[0])
    name = None if known is None else known_as(task, known)
    if known is None or name is None:
        raise InvalidArguments(
            f"the signature of {task} is unknown: its arguments cannot be checked",
            cure="Name its code with --app, start a worker that has it, or skip the "
            "check with --unchecked.",
            task=task,
        )
    return known[name]
