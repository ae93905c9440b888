"""Asks child processes where their code is at the moment."""

import asyncio
from collections.abc import Collection
from typing import Protocol

from durio.host.child_wire import Look, ToChild


class Line(Protocol):
    """The way to a child."""

    def say(self, word: ToChild) -> None:
        """Send a word."""
        ...


class Asked(Protocol):
    """A child that can be asked."""

    looked: asyncio.Future[str] | None

    @property
    def pid(self) -> int:
        """Its process."""
        ...

    @property
    def process(self) -> Line:
        """The way there."""
        ...


async def stacks_of(
    children: Collection[Asked], timeout_seconds: float
) -> dict[int, str]:
    """What each answers, by pid; one that says nothing in time is missing."""
    loop = asyncio.get_running_loop()
    answers: dict[int, asyncio.Future[str]] = {}
    for child in children:
        child.looked = answers[child.pid] = loop.create_future()
        child.process.say(Look())
    if answers:
        await asyncio.wait(answers.values(), timeout=timeout_seconds)
    return {pid: answer.result() for pid, answer in answers.items() if answer.done()}
