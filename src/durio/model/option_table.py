"""The types of the table of options, and the decorator of typed `options` methods."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, cast

Q = ParamSpec("Q")
T = TypeVar("T")

Place = Literal["app", "task", "call"]
APP_TASK_CALL: tuple[Place, ...] = ("app", "task", "call")
APP_TASK: tuple[Place, ...] = ("app", "task")
TASK_CALL: tuple[Place, ...] = ("task", "call")
TASK: tuple[Place, ...] = ("task",)
CALL: tuple[Place, ...] = ("call",)


class Flag(NamedTuple):
    """The flag of `durio enqueue` that gives an option."""

    metavar: str
    help: str
    kind: Literal["text", "number", "time", "json"] = "text"


class Option(NamedTuple):
    """The properties of an option, except its name and type."""

    meaning: str
    places: tuple[Place, ...]  # where it may be given
    # Turns value and task into what a worker uses; or refuses.
    parse: Callable[[Any, str], Any]
    default: str = ""  # the default as text, for the reference page
    handler: str = ""  # the field of Handler that it sets
    stored: str = ""  # the field of RowOptions that stores it
    # Turns what a worker uses into plain data.
    store: Callable[[Any], Any] | None = None
    flag: Flag | None = None

    def check(self, value: Any) -> None:
        """Refuse a value that a call cannot have."""
        parsed = self.parse(value, "")
        if self.store is not None:
            self.store(parsed)


def parsed_by(parse: Callable[[Any], Any]) -> Callable[[Any, str], Any]:
    """Return the `parse` of an option whose value does not depend on the task."""
    return lambda value, _task: parse(value)


def takes_options(signature: Callable[Q, T]) -> Callable[Q, T]:
    """Replace the body of `options`, which exists for its typed signature.

    The keywords are passed to `CallOptions.with_changes` unchanged, so a misspelt one gets
    our error with a suggestion, not Python's TypeError.
    """

    @wraps(signature)
    def options(self: Any, **given: Any) -> Any:
        return self._with_changes(given)

    return cast("Callable[Q, T]", options)
