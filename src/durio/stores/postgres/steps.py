"""What a process remembers of bulk acts in steps: where each is, and its audit line.

It saves going over what did not fit, and makes all steps one line; nothing is wrong
without it.
"""

from typing import Any, NamedTuple

REMEMBERED_MAX = 64

Key = tuple[Any, ...]


class Place(NamedTuple):
    """Where a walk through several states has come to."""

    nth: int = 0  # of the states
    after: Key = ()  # the last job met; none: at the beginning


class Begun(NamedTuple):
    """A bulk act in steps: where it is, and its line in the audit."""

    place: Place
    line: int | None


class Bulks:
    """The bulk acts that this process has begun and not ended."""

    def __init__(self) -> None:
        self._begun: dict[Key, Begun] = {}

    def get(self, key: Key) -> Begun:
        """Where this one is."""
        return self._begun.get(key) or Begun(Place(), None)

    def put(self, key: Key, begun: Begun | None) -> None:
        """Remember a step that is committed; None: that was the last."""
        self._begun.pop(key, None)
        if begun is not None:
            self._begun[key] = begun
        while len(self._begun) > REMEMBERED_MAX:
            self._begun.pop(next(iter(self._begun)))
