"""Parse the rows of `enqueue_many`: signatures, tuples and mappings."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from durio.client.plan import Signature, check_no_handlers
from durio.model.errors import DurioError, InvalidArguments, InvalidOption, UsageError
from durio.model.options import NO_OPTIONS, OPTIONS, UNSET, CallOptions

NO_KEYWORDS: dict[str, Any] = {}
# One call goes whole into one queue, in one transaction; a key is for one job.
OF_THE_CALL = ("queue", "tx")


class Row(NamedTuple):
    """The arguments of one row, and the options of its signature."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: CallOptions = NO_OPTIONS


def numbered(rows: Any) -> Iterator[tuple[int, object]]:
    """Return the rows with their numbers from 1; refuse text and what is not iterable."""
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes | Mapping):
        raise InvalidArguments(
            f"enqueue_many takes rows, not a {type(cast('object', rows)).__name__}",
            cure="Pass a list or a generator of rows: [(1,), (2,)].",
        )
    return enumerate(cast("Iterable[object]", rows), 1)


def parse_row(row: object, task: str, alias: str | None = None) -> Row:
    """Return the arguments and options of a row; `task`, or its `alias`, was called."""
    if isinstance(row, tuple):
        return Row(cast("tuple[Any, ...]", row), NO_KEYWORDS)
    if isinstance(row, Signature):
        signature = cast("Signature[..., Any]", row)
        if signature.task not in (task, alias):
            raise UsageError(
                f"a signature of {signature.task} is a row of {task}.enqueue_many",
                cure="Pass it to enqueue_many of its own task.",
            )
        check_no_handlers(signature)
        return Row(signature.args, signature.kwargs, signature.options)
    if isinstance(row, Mapping):
        keywords = cast("Mapping[Any, Any]", row)
        for name in keywords:
            if not isinstance(name, str):
                raise InvalidArguments(
                    f"a mapping row of {task} has the key {name!r:.80}, which is not "
                    "text",
                    cure="Its keys are the names of the task's parameters.",
                )
        return Row((), keywords)
    raise InvalidArguments(
        f"a row of {task} is a {type(row).__name__}, not a signature, tuple or mapping",
        cure=f"Write {task.partition('.')[2]}.s(42), the tuple (42,), or a mapping of "
        "keywords.",
    )


def row_options(call: CallOptions, row: CallOptions) -> CallOptions:
    """Return the options of the call, changed by those of the row's signature."""
    if row is call:
        return call
    changes = {name: getattr(row, name) for name in OPTIONS}
    changes = {name: value for name, value in changes.items() if value is not UNSET}
    if changes.get("key") is not None:
        raise InvalidOption(
            "a row of enqueue_many cannot have a key",
            cure="Enqueue it by itself: task.options(key=...).enqueue(...).",
        )
    for name in OF_THE_CALL:
        if name in changes and changes[name] != getattr(call, name):
            raise InvalidOption(
                f"a row of enqueue_many cannot have its own {name}",
                cure=f"Set it for all rows: task.options({name}=...).enqueue_many(rows).",
            )
    return call.with_changes(changes)


def explain_row(error: DurioError, number: int, row: object) -> None:
    """Add the number of the row to the error, and a hint if it has an old form."""
    error.what = f"row {number}: {error.what}"
    values = cast("tuple[Any, ...]", row) if isinstance(row, tuple) else ()
    is_misfit = isinstance(error, InvalidArguments)
    if is_misfit and values and isinstance(values[-1], dict):
        error.cure += (
            " A dict at the end of a tuple is a positional argument, no longer "
            "keywords: write task.s(1, to='a') or {'order_id': 1, 'to': 'a'}."
        )
