"""The tasks of a stored signature or plan, and the queues that their jobs go to."""

from collections.abc import Iterator, Mapping
from typing import Any

from durio.model.names import known_as
from durio.model.queues import DEFAULT_QUEUE


def places_of_link(
    link: Mapping[str, Any], published: Mapping[str, Mapping[str, Any]]
) -> set[tuple[str, str]]:
    """Return the tasks with their queues: that of the options, else the published one."""
    return set(_places(link, published, None))


def _places(
    link: Mapping[str, Any],
    published: Mapping[str, Mapping[str, Any]],
    outside: str | None,
) -> Iterator[tuple[str, str]]:
    named = link.get("options", {}).get("queue", outside)
    for handler in link.get("error_handlers", ()):
        yield from _places(handler, published, None)
    if "task" in link:
        name = known_as(link["task"], published)
        of_task = DEFAULT_QUEUE if name is None else published[name]["queue"]
        yield link["task"], of_task if named is None else named
        return
    for member in link.get("chain") or link.get("group") or ():
        yield from _places(member, published, named)
