"""What a task's own transaction refuses before it begins, and what it leaves to tell."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from durio.errors import UsageError
from durio.worker.transaction import TaskTransaction


class Attempt:
    """An attempt in a child process: no store is in reach."""

    is_in_batch = False
    transaction: Any = None
    recorded: Any = None
    is_over = False
    is_commit_unknown = False
    progress: bytes | None = None
    begin: Any = None

    def __init__(self) -> None:
        self.told: list[tuple[Any, bytes]] = []

    def report(self, attempt: Any, progress: bytes) -> None:
        assert attempt.transaction is None
        self.told.append((attempt, progress))

    def environment(self) -> Any:
        return self

    async def done(self) -> Any:
        raise AssertionError


def test_a_task_in_a_child_process_has_none() -> None:
    async def enter() -> None:
        async with TaskTransaction(Attempt()):
            raise AssertionError

    with pytest.raises(UsageError) as told:
        asyncio.run(enter())
    assert "process=True" in told.value.what
    assert Attempt.transaction is None


class Own:
    """A transaction of a store's."""

    connection = None

    async def commit(self, _outcome: Any) -> None:
        return

    async def roll_back(self) -> None:
        return


class AtWork(Attempt):
    """An attempt that has told how far it is, inside of the block."""

    progress = b"{}"
    plan = None
    is_process = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()

    def begin(self, _is_sync: bool) -> Coroutine[Any, Any, Own]:  # noqa: FBT001
        async def begun() -> Own:
            return Own()

        return begun()

    async def done(self) -> Any:
        return "done"


def test_progress_that_no_end_brings_is_told_after_the_block() -> None:
    async def fail() -> None:
        attempt = AtWork()
        with pytest.raises(KeyError):
            async with TaskTransaction(attempt):
                raise KeyError
        assert attempt.told == [(attempt, b"{}")]

    async def succeed() -> None:
        attempt = AtWork()
        async with TaskTransaction(attempt):
            pass
        assert (attempt.recorded, attempt.told) == ("done", [])

    asyncio.run(fail())
    asyncio.run(succeed())
