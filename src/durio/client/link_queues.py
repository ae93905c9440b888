"""The queues that the jobs of a stored signature or plan go to."""

from collections.abc import Iterator, Mapping
from typing import Any

from durio.model.names import known_as
from durio.model.queues import DEFAULT_QUEUE


def queues_of_link(
    link: Mapping[str, Any], published: Mapping[str, Mapping[str, Any]]
) -> set[str]:
    """Return the queues: those that options name, else those of the published tasks."""
    return set(_queues(link, published, None))


def _queues(
    link: Mapping[str, Any],
    published: Mapping[str, Mapping[str, Any]],
    outside: str | None,
) -> Iterator[str]:
    named = link.get("options", {}).get("queue", outside)
    for handler in link.get("error_handlers", ()):
        yield from _queues(handler, published, None)
    if "task" in link:
        name = known_as(link["task"], published)
        of_task = DEFAULT_QUEUE if name is None else published[name]["queue"]
        yield of_task if named is None else named
        return
    for member in link.get("chain") or link.get("group") or ():
        yield from _queues(member, published, named)
