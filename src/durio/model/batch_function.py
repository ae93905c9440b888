"""The function of a batch task, as its jobs see it: one item in, one result out.

The worker gives such a function a list. A job has one item, so its arguments are checked
and decoded as those of a function `(item)`, with the types of the elements.
"""

import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from inspect import Parameter, Signature
from types import UnionType
from typing import Any, Union

from durio.model.argument_codec import NAMED, ArgumentCodec, hints_of
from durio.model.batch import BatchErr, BatchOk
from durio.model.errors import UsageError

ITEM = "item"  # the name of a job's argument
LISTS = (list, Sequence, Collection, Iterable)  # that a list is an instance of
UNCHECKED = (Any, object)


def item_codec(
    function: Callable[..., Any], task: str, *, skip_first: int
) -> ArgumentCodec:
    """Return the codec of one job of a batch task; refuse a function of another shape."""
    parameters = list(inspect.signature(function).parameters.values())[skip_first:]
    hints = hints_of(function, task)
    if not parameters or parameters[0].kind not in NAMED[:2]:
        raise _refused(task, "has no list of items as its first parameter")
    first, *others = parameters
    if others:
        raise _refused(
            task, f"has the parameter {others[0].name} beside {first.name}, its list"
        )
    hint = hints.get(first.name, list[Any])
    item = _element(hint, LISTS)
    if item is None:
        raise _refused(task, f"has a first parameter that is no list: {hint}")
    returned = hints.get("return", Any)
    result = _result(returned)
    if result is None:
        raise _refused(task, f"returns {returned}, and not a list of results")
    return ArgumentCodec(_of_one(item[0], result[0]), task, skip_first=0)


def _result(hint: Any) -> tuple[Any] | None:
    """Return the type of one result; None if the function does not return a list."""
    if hint in UNCHECKED:
        return (hint,)
    element = _element(hint, (*LISTS, tuple))
    if element is None:
        return None
    kinds = tuple(_value_types(element[0]))
    return (Union[kinds] if kinds else Any,)  # noqa: UP007 - of a tuple of types


def _element(hint: Any, kinds: tuple[Any, ...]) -> tuple[Any] | None:
    """Return the type of the elements of a list; None if the type is no list."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind not in kinds:
        return None
    if kind is tuple and inner[1:] != (...,):
        return None
    return (inner[0] if inner else Any,)


def _value_types(hint: Any) -> list[Any]:
    """Return the types of the value in the result of one item, without errors and Ok."""
    if typing.get_origin(hint) in (Union, UnionType):
        return [kind for one in typing.get_args(hint) for kind in _value_types(one)]
    if typing.get_origin(hint) is BatchOk:
        return [typing.get_args(hint)[0]]
    if isinstance(hint, type) and issubclass(hint, (BatchErr, BaseException)):
        return []
    return [Any] if hint is BatchOk else [hint]


def _of_one(item: Any, result: Any) -> Callable[..., Any]:
    """Return a function with this signature; it is never called."""

    def of_one(item: Any) -> Any:
        raise NotImplementedError(item)

    kind = Parameter.POSITIONAL_OR_KEYWORD
    parameter = Parameter(ITEM, kind, annotation=item)
    shape: Any = of_one
    shape.__signature__ = Signature([parameter], return_annotation=result)
    shape.__annotations__ = {ITEM: item, "return": result}
    return of_one


def _refused(task: str, why: str) -> UsageError:
    return UsageError(
        f"task {task} has batch=, but its function {why}",
        cure="Write it as `async def f(items: list[str]) -> list[int]`: it takes a list "
        "of items, and returns a list of as many results.",
    )
