"""The names of phases that a task may report with `ctx.progress(state=...)`, and its changes."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from durio.model.errors import InvalidOption, UsageError
from durio.model.names import did_you_mean

STATES_MAX = 50  # of a task
STATE_CHARS_MAX = 64
CHANGES_MAX = 20  # that are kept: the newest

Change = tuple[str, float]  # the state, and since when, in seconds since 1970


def parse_states(given: Any, task: str) -> tuple[str, ...]:
    """Return the states that a task declares; refuse what is no list of names."""
    del task
    names = tuple(cast("Sequence[Any]", given)) if is_list(given) else ()
    if not all(
        isinstance(name, str) and 0 < len(name) <= STATE_CHARS_MAX for name in names
    ):
        raise refused(given)
    if not 0 < len(names) <= STATES_MAX or len({*names}) < len(names):
        raise refused(given)
    return names


def is_list(given: object) -> bool:
    return isinstance(given, list | tuple)


def refused(given: object) -> InvalidOption:
    return InvalidOption(
        f"states cannot be {given!r:.80}",
        cure=f"Give 1 to {STATES_MAX} different names of 1 to {STATE_CHARS_MAX} "
        'characters: states=["validating", "uploading"].',
        option="states",
    )


class StateChanges:
    """The states that one attempt has reported."""

    def __init__(
        self, task: str, declared: Sequence[str], now: Callable[[], float]
    ) -> None:
        self._task = task
        self._declared = declared
        self._now = now
        self._newest: list[Change] = []

    def enter(self, state: str | None) -> list[Change]:
        """Note the state, if it is another one; return the newest changes, oldest first."""
        if state is not None and self._declared and state not in self._declared:
            raise UsageError(
                f"task {self._task} does not declare the state {state!r:.80}",
                cure=f"It declares {', '.join(self._declared)}."
                f"{did_you_mean(str(state), self._declared)}",
            )
        last = self._newest[-1][0] if self._newest else None
        if state is not None and state != last:
            self._newest = [*self._newest, (state, self._now())][-CHANGES_MAX:]
        return self._newest
