"""What plans are made of: a signature is a task with all its arguments, as a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from durio.model.options import NO_OPTIONS, CallOptions

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Signature(Generic[P, R_co]):
    """A task with all its arguments and the options of the call: `task.s(42)`.

    Equal calls are equal values, however their arguments are written.
    """

    __module__ = "durio"

    task: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: CallOptions = NO_OPTIONS

    def __repr__(self) -> str:
        given = [repr(value) for value in self.args]
        given += [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.task}.s({', '.join(given)})"
