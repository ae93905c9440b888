"""The arguments of `task.s(...)`: a whole call, or a call without its first argument."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from durio.model.argument_errors import is_missing
from durio.model.errors import InvalidArguments

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
FIRST = None  # stands for the result that the signature will get


class Parameters(Protocol):
    """The parameters of a task whose code is loaded."""

    def takes(self, count: int) -> bool:
        """Whether so many positional arguments, without named ones, are a whole call."""
        ...

    def why_unfit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Return why a call does not fit; None if it does."""
        ...

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        """Return a call in one form, with positional arguments where possible."""
        ...


def signature_arguments(
    parameters: Parameters, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Arguments:
    """Return the arguments of a signature; refuse those that fit in no place of a plan.

    `f.s(1, 2)` and `f.s(1, b=2)` become equal. A call keeps its form where another form
    would fit in more places: behind a result, `f.s(1)` gives 1 to the second parameter, and
    `f.s(a=1)` is refused.
    """
    if not kwargs and (parameters.takes(len(args)) or parameters.takes(len(args) + 1)):
        return tuple(args), {}
    is_whole = parameters.why_unfit(args, kwargs) is None
    why = parameters.why_unfit((FIRST, *args), kwargs)
    follows = why is None
    if why is not None and is_missing(why) and not is_whole:
        raise InvalidArguments(
            f"{why}, and its first argument unless it follows another node",
            cure="Give them to .s(...).",
        )
    if follows and not is_whole:
        (_, *rest), named = parameters.bound((FIRST, *args), kwargs)
        form, in_other_place = (tuple(rest), named), (rest, named)
    else:
        form = parameters.bound(args, kwargs)
        in_other_place = ((FIRST, *form[0]), form[1])
    if (follows and is_whole) or parameters.why_unfit(*in_other_place) is None:
        return tuple(args), dict(kwargs)
    return form
