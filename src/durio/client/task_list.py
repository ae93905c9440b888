"""The tasks of an App as workers have published them, and who can run them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from durio.client.error_groups import StoredGroup
from durio.client.task_by_name import published_tasks
from durio.model.names import is_prefix
from durio.ports.browse import WorkerRow
from durio.ports.store import Store

NAMED = frozenset({"positional_or_keyword", "keyword_only", "positional_only"})


class KnownTask(NamedTuple):
    """A task as workers have published it."""

    name: str
    published: Mapping[str, Any]
    aliases: tuple[str, ...] = ()  # earlier names

    @property
    def queue(self) -> str:
        return self.published["queue"]

    @property
    def limits(self) -> list[str]:
        """The names of the limits that its jobs pass."""
        gates = self.published.get("limits", {}).get("gates", [])
        return sorted({gate["limit"] for gate in gates})

    def arguments_schema(self) -> dict[str, Any]:
        """Return a JSON schema of an object with the arguments by name."""
        parameters: Sequence[Mapping[str, Any]] = self.published.get("parameters", [])
        named = [p for p in parameters if p["kind"] in NAMED]
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {p["name"]: p["schema"] for p in named},
            "required": [p["name"] for p in named if p["required"]],
            "additionalProperties": any(p["kind"] == "var_keyword" for p in parameters),
        }
        positional = [p["name"] for p in named if p["kind"] == "positional_only"]
        rest = any(p["kind"] == "var_positional" for p in parameters)
        return schema | {"x-positional-only": positional, "x-more-positional": rest}

    def workers(self, rows: Iterable[WorkerRow]) -> list[WorkerRow]:
        """Return the live workers that serve its queue and have its code."""
        return [
            row
            for row in rows
            if row.serves(self.queue)
            and (is_prefix(self.name) or row.has_task(self.name))
        ]


async def list_tasks(store: Store, namespace: str) -> list[KnownTask]:
    """Return the tasks of an App by name; earlier names are with their task."""
    published = await published_tasks(store, namespace) or {}
    aliases: dict[str, list[str]] = {}
    for name, described in published.items():
        if "task" in described:
            aliases.setdefault(described["task"], []).append(name)
    return [
        KnownTask(name, described, tuple(sorted(aliases.get(name, ()))))
        for name, described in sorted(published.items())
        if "task" not in described
    ]


def newest_group(groups: Iterable[StoredGroup], task: str) -> StoredGroup | None:
    """Return the group of the newest errors that has errors of this task."""
    found = [one for one in groups if task in one.group.tasks]
    return max(found, key=lambda one: one.group.last_at, default=None)
