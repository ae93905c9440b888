"""Signatures: a task with all its arguments, as a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from durio.model.options import NO_OPTIONS, CallOptions

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Signature(Generic[P, R_co]):
    """A task with all its arguments and options, as a value: `task.s(42)`.

    Signatures of equal calls are equal: `send.s("a") == send.s(address="a")`.
    """

    __module__ = "durio"

    task: str  # full name of the task
    args: tuple[Any, ...]  # positional arguments
    kwargs: Mapping[str, Any]  # keyword arguments
    options: CallOptions = NO_OPTIONS  # those of `task.options(...)`

    def __repr__(self) -> str:
        given = [repr(value) for value in self.args]
        given += [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.task}.s({', '.join(given)})"
