"""How the suite is written and run: promises, collected in chapters.

A promise is a short test of one store, `async def (scene) -> None`, named by what it shows.
It uses only the ports, so the same suite tests every store. Features that only some stores
have are fields of `Subject`, and a promise names those that it needs.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from durio.model.errors import UsageError
from tests.conformance.manual_clock import ManualClock
from tests.conformance.scene import Scene
from tests.conformance.subject import Subject

STORY_SECONDS_MAX = 60.0  # a store that hangs fails the promise

Row = TypeVar("Row")
Story = Callable[[Scene], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise, with its chapter and the requirements that it proves."""

    chapter: str
    name: str
    story: Story
    proves: tuple[str, ...]
    needs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.chapter}.{self.name}"

    def lacks(self, subject: Subject) -> tuple[str, ...]:
        """Return the features that this promise needs and the subject does not have."""
        return tuple(need for need in self.needs if not getattr(subject, need))


class Chapter:
    """The promises about one capability, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.promises: list[Promise] = []

    def promise(
        self, *proves: str, needs: tuple[str, ...] = ()
    ) -> Callable[[Story], Story]:
        """Add the function below as a promise under its own name."""

        def add(story: Story) -> Story:
            name = story.__name__
            self.promises.append(Promise(self.name, name, story, proves, needs))
            return story

        return add

    def table(
        self, rows: Mapping[str, Row], *proves: str, needs: tuple[str, ...] = ()
    ) -> Callable[
        [Callable[[Scene, Row], Coroutine[Any, Any, None]]],
        Callable[[Scene, Row], Coroutine[Any, Any, None]],
    ]:
        """Add the function below once for each row, under its name and the row's."""

        def add(
            story: Callable[[Scene, Row], Coroutine[Any, Any, None]],
        ) -> Callable[[Scene, Row], Coroutine[Any, Any, None]]:
            for title, row in rows.items():
                name = f"{story.__name__}: {title}"
                row_story = _with_row(story, row)
                self.promises.append(Promise(self.name, name, row_story, proves, needs))
            return story

        return add


def _with_row(
    story: Callable[[Scene, Row], Coroutine[Any, Any, None]], row: Row
) -> Story:
    def row_story(scene: Scene) -> Coroutine[Any, Any, None]:
        return story(scene, row)

    return row_story


def check(promise: Promise, subject: Subject) -> None:
    """Run one promise on a fresh store; AssertionError says where it is broken."""
    asyncio.run(perform(promise, subject))


async def perform(promise: Promise, subject: Subject) -> None:
    """Run one promise inside a running loop."""
    if not __debug__:  # otherwise a store that breaks its promises would pass
        raise UsageError(
            "the promises are told with assert, and python -O takes those out",
            cure="Run the suite without -O and without PYTHONOPTIMIZE.",
        )
    async with asyncio.timeout(STORY_SECONDS_MAX), AsyncExitStack() as stack:
        clock = ManualClock()
        store = await stack.enter_async_context(subject.open_store(clock))
        await promise.story(Scene(store, clock, subject, stack))
