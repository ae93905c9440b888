"""Check a task's result against its annotation, encode it and decode it."""

import typing
from types import NoneType, UnionType
from typing import Any, Never, NoReturn, Union

import msgspec

from durio.model.argument_errors import call_of, plain_words, python_names
from durio.model.codec import (
    UNREADABLE,
    check_text,
    decoder_of,
    encode,
    encoder,
    unreadable_type,
)
from durio.model.errors import InvalidResult, NotSerializable, UsageError
from durio.model.failure import redacted, redacted_repr
from durio.model.plan import Link

# An instance of exactly this type fits this annotation; no other check is needed.
EXACT: dict[Any, type[Any]] = {
    None: NoneType,
    NoneType: NoneType,
    bool: bool,
    int: int,
    float: float,
    str: str,
    dict: dict,
    list: list,
    dict[str, Any]: dict,
    list[Any]: list,
}
NUMBERS = frozenset({int, bool})
UNCHECKED = (Any, object, NoReturn, Never)


class ResultCodec:
    """Checks, encodes and decodes the result of one function."""

    def __init__(self, task: str, hint: Any) -> None:
        self._task = task
        self._hint = hint
        self._is_checked = hint not in UNCHECKED
        self._label = f"{task}: result"
        self._fitting = _fitting(hint)
        self._may_be_none = not self._is_checked or NoneType in self._fitting
        self._plain = NUMBERS & self._fitting if self._is_checked else NUMBERS
        self._takes_text = not self._is_checked or str in self._fitting
        try:
            other = unreadable_type(hint) if self._is_checked else None
            # What the caller of `job.result()` gets.
            self.decode = decoder_of(hint if self._is_checked else Any)
        except TypeError as error:
            raise _uncheckable(task, str(error)) from None
        if other is not None:
            raise _uncheckable(task, f"it is or holds {other.__qualname__}")

    def encode(self, value: object) -> bytes:
        """Return JSON bytes that a caller can decode to the annotated type.

        Raises InvalidResult if the value cannot be stored or does not fit.
        """
        if value is None and self._may_be_none:
            return b"null"
        kind = type(value)
        if kind in self._plain:  # most results: no call more than needed
            return encoder.encode(value)
        try:
            return self._encode_other(value, kind)
        except NotSerializable as error:
            what, cure = error.what, error.cure
            if isinstance(value, Link):
                what = f"{call_of(self._task)} returned a plan: {redacted_repr(value)}"
                cure = (
                    "To put a plan in the place of the job, `return ctx.replace(plan)`."
                )
            raise InvalidResult(what, cure=cure, task=self._task) from None

    def _encode_other(self, value: object, kind: type[Any]) -> bytes:
        if kind is str and self._takes_text:
            check_text(value, self._label)  # pyright: ignore[reportArgumentType]
            return encoder.encode(value)
        data = encode(value, self._label)
        if self._is_checked and kind not in self._fitting:
            self._check(value, data)
        return data

    def _check(self, value: Any, data: bytes) -> None:
        try:
            self.decode(data)
        except UNREADABLE as error:
            shown = python_names(_shown(self._hint))
            raise InvalidResult(
                f"{call_of(self._task)} returned {redacted_repr(value)}, which does not "
                f"fit its annotation {shown}: {redacted(plain_words(str(error)))}",
                cure="Return what the annotation says, or change the annotation.",
                task=self._task,
            ) from None

    def check_missing(self) -> None:
        """Refuse to end without a result where the annotation requires one."""
        if not self._is_checked:
            return
        try:
            self.decode(b"null")
        except msgspec.ValidationError:
            raise InvalidResult(
                f"{self._task} ends in ctx.transaction() without its result",
                cure="Give it inside the block: return ctx.result(value).",
                task=self._task,
            ) from None


def _fitting(hint: Any) -> frozenset[type[Any]]:
    """Return types whose instances fit without a check of their contents."""
    each = (
        typing.get_args(hint)
        if typing.get_origin(hint) in (Union, UnionType)
        else (hint,)
    )
    return frozenset(EXACT[one] for one in each if _is_hashable(one) and one in EXACT)


def _is_hashable(hint: object) -> bool:
    try:
        hash(hint)
    except TypeError:  # Annotated with a list, for example
        return False
    return True


def _shown(hint: Any) -> str:
    return (
        hint.__name__
        if isinstance(hint, type) and not typing.get_args(hint)
        else str(hint)
    )


def _uncheckable(task: str, why: str) -> UsageError:
    return UsageError(
        f"task {task}: results cannot be checked against the annotation of return: {why}",
        cure="Annotate it with plain types, a dataclass, Struct or pydantic model; or "
        "with object, which is not checked.",
    )
