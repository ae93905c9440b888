"""Tasks that every worker has: users cannot declare tasks of these names."""

from typing import Any

JOIN = "~join"  # no name of a task may have a tilde


def is_system_task(task: str) -> bool:
    """Whether every worker has the task."""
    return "~" in task


def join_task(namespace: str) -> str:
    """Return the name of the task that ends a plan whose last part is a group."""
    return f"{namespace}.{JOIN}"


async def join(values: list[Any]) -> list[Any]:
    """Return the results of a group as one result."""
    return values
