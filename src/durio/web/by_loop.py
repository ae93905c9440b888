"""Parts of the dashboard that belong to one event loop, such as tasks and waiting viewers."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class ByLoop(Generic[T]):
    """Makes one part for each event loop, on first use."""

    def __init__(self, make: Callable[[], T]) -> None:
        self.make = make
        self.parts: WeakKeyDictionary[asyncio.AbstractEventLoop, T]
        self.parts = WeakKeyDictionary()

    def here(self) -> T:
        """Return the part of the running loop."""
        loop = asyncio.get_running_loop()
        part = self.parts.get(loop)
        if part is None:
            part = self.parts[loop] = self.make()
        return part
