"""What a task's own transaction refuses before it begins."""

import asyncio
from typing import Any

import pytest

from durio.errors import UsageError
from durio.worker.transaction import TaskTransaction


class Attempt:
    """An attempt in a child process: no store is in reach."""

    transaction: Any = None
    recorded: Any = None
    is_over = False
    is_unsure = False
    begin = None

    def bench(self) -> Any:
        return self

    def done(self) -> Any:
        raise AssertionError


def test_a_task_in_a_child_process_has_none() -> None:
    async def enter() -> None:
        async with TaskTransaction(Attempt()):
            raise AssertionError

    with pytest.raises(UsageError) as told:
        asyncio.run(enter())
    assert "process=True" in told.value.what
    assert Attempt.transaction is None
