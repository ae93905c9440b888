"""JSON encoding and decoding by msgspec, with checks of values.

Only JSON, never pickle. msgspec would write NaN as null and accept a naive datetime,
and some stores cannot hold a NUL in text: such values are refused here.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, cast, get_args, get_origin

import msgspec

from durio.model.errors import NotSerializable, UsageError
from durio.model.plan_ends import Collected, Err, Ok

DEPTH_MAX = 64
PLAIN = frozenset({int, bool, type(None), bytes})
# What msgspec raises for bytes that it cannot decode to a type.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
JSON_TYPES = frozenset({int, bool, type(None), float, str})


def is_path(kind: Any) -> bool:
    """Whether this is a path type; compares names, since importing pathlib is slow."""
    mro: tuple[type[Any], ...] = kind.__mro__
    return any(each.__module__.startswith("pathlib") for each in mro)


def _encode_other(value: Any) -> Any:
    if is_path(cast("Any", type(value))):
        return str(value)
    dump = getattr(value, "model_dump", None)  # pydantic, when installed
    if callable(dump):
        check_value(dump(), type(value).__qualname__)
        return dump(mode="json")
    raise not_serializable(value, "value")


def decode_other(kind: type[Any], value: Any) -> Any:
    """Build the types that msgspec does not know from their JSON value."""
    if kind is object:
        return value
    if (get_origin(kind) or kind) is Collected:
        (result,) = get_args(kind) or (Any,)
        item: Any = Ok[result] | Err
        return Collected(msgspec.convert(value, list[item], dec_hook=decode_other))
    if is_path(kind):
        return kind(value)
    validate = getattr(kind, "model_validate", None)
    if callable(validate):
        try:
            return validate(value)
        except ValueError as error:
            raise ValueError(_model_error(error)) from None  # msgspec adds its place
    raise msgspec.ValidationError(f"{kind.__name__} cannot be built from JSON")


def _model_error(error: ValueError) -> str:
    """Return the first problem of a pydantic model on one line, without the input."""
    errors: Any = getattr(error, "errors", None)
    problems: Any = errors() if callable(errors) else None
    if not problems:
        return str(error)
    field = ".".join(map(str, problems[0]["loc"]))
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{field + ': ' if field else ''}{problems[0]['msg']}{more}"


def check_hint(task: str, name: str, hint: Any) -> None:
    """Refuse at declaration a type that cannot be decoded from JSON."""
    try:
        other = unreadable_type(hint)
    except TypeError as error:
        raise UsageError(
            f"task {task}: annotation of {name}: {error}",
            cure="Annotate it with a type that JSON can carry.",
        ) from None
    if other is not None:
        raise UsageError(
            f"task {task}: annotation of {name} is or holds {other.__qualname__}, "
            "which cannot be built from JSON",
            cure="Pass its id, or a dataclass, Struct or pydantic model.",
        )


def unreadable_type(hint: Any) -> type[Any] | None:
    """Return a type in this annotation that cannot be built from JSON, at any depth."""
    for kind in _custom_types(msgspec.inspect.type_info(hint), set()):
        fine = kind in (object, Collected) or hasattr(kind, "model_validate")
        if not fine and not is_path(kind):
            return kind
    return None


def _custom_types(info: Any, seen: set[int]) -> Iterator[type[Any]]:
    if id(info) in seen:  # a type that refers to itself
        return
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        yield info.cls
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        for name in info.__struct_fields__:
            if name not in ("default", "default_factory", "values"):
                yield from _custom_types(getattr(info, name), seen)
    elif isinstance(info, tuple):
        for each in cast("tuple[Any, ...]", info):
            yield from _custom_types(each, seen)


encoder = msgspec.json.Encoder(enc_hook=_encode_other)
_sorting = msgspec.json.Encoder(enc_hook=_encode_other, order="sorted")
_decoder = msgspec.json.Decoder()


def decoder_of(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(kind, dec_hook=decode_other).decode


def encode(value: Any, what: str) -> bytes:
    """Encode a value as JSON bytes; raises NotSerializable with `what` and the reason."""
    check_value(value, what)
    try:
        return encoder.encode(value)
    except NotSerializable as error:
        raise NotSerializable(f"{what}: {error.what}", cure=error.cure) from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotSerializable(
            f"{what} cannot be stored as JSON: {error}", cure="Use plain data."
        ) from None


def canonical(value: Any, encoded: bytes) -> bytes:
    """Return the same bytes for equal values: dicts and sets are sorted.

    A set that cannot be sorted (of enums, of mixed types) keeps its order.
    """
    try:
        return _sorting.encode(value)
    except TypeError:
        return encoded


def json_text(value: object) -> str:
    """Encode a value of our own as JSON text, because SQLite does not read a blob as JSON."""
    return msgspec.json.encode(value).decode()


def decode(data: bytes) -> Any:
    """Decode JSON bytes that we wrote to plain values."""
    return _decoder.decode(data)


def check_value(value: Any, what: str, depth: int = 0) -> None:
    """Refuse values that JSON or some store would change or lose."""
    kind = cast("type[Any]", type(value))
    if kind in PLAIN:
        return
    if kind is str:
        check_text(value, what)
    elif kind is float:
        if not math.isfinite(value):
            raise _refused(what, f"is {value!r}", "JSON has no such number: use None.")
    elif depth > DEPTH_MAX:
        raise _refused(
            what,
            f"is nested deeper than {DEPTH_MAX}",
            "Flatten it, or break the cycle.",
        )
    else:
        _check_nested(value, what, depth)


def check_plain(value: Any, call: str, name: str) -> None:
    """Refuse a value that JSON would turn into another type."""
    other = _other_part(value)
    if other is None:
        return
    verb = "be" if other is value else "hold"
    kind = cast("type[Any]", type(other)).__name__
    if kind == "dict":
        kind = "dict with keys that are not str"
    raise NotSerializable(
        f"{call}: argument {name!r} has no annotation, so it cannot {verb} a {kind}",
        cure=f"Annotate {name.lstrip('*')}, or pass None, bool, int, float, str, or lists "
        "and dicts (with str keys) of these.",
    )


def _other_part(value: Any) -> Any:
    """Return the first part that JSON would change; None if there is none."""
    kind = cast("type[Any]", type(value))
    if kind in JSON_TYPES:
        return None
    parts: Iterable[Any] = ()
    if kind is list:
        parts = cast("list[Any]", value)
    elif kind is dict:
        pairs = cast("dict[Any, Any]", value)
        other = next((k for k in pairs if type(k) is not str), None)
        if other is not None or None in pairs:
            return value if other is None else pairs
        parts = pairs.values()
    else:
        return value
    found = (_other_part(part) for part in parts)
    return next((part for part in found if part is not None), None)


def _check_nested(value: Any, what: str, depth: int) -> None:
    for name, part in _parts(value):
        check_value(part, f"{what}{name}", depth + 1)
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise _refused(
            what,
            f"is a naive datetime ({value!r})",
            "Say which zone: datetime.now(UTC).",
        )
    if isinstance(value, Decimal) and not value.is_finite():
        raise _refused(what, f"is {value!r}", "Use None.")
    if is_orm_object(value) or isinstance(value, msgspec.Raw):
        raise not_serializable(value, what)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a container, each with its name for errors."""
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            yield "", key
            yield f"[{key!r:.40}]", item
    elif isinstance(value, list | tuple | set | frozenset):
        yield from (("", item) for item in cast("Iterable[Any]", value))
    else:
        yield from _fields(value)


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an object, each with its name for errors."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield f".{name}", getattr(value, name)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield f".{field.name}", getattr(value, field.name)
    elif isinstance(value, Enum):
        yield "", value.value
    elif is_path(cast("Any", type(value))):
        yield "", str(value)


def check_text(value: str, what: str) -> None:
    if "\0" in value:
        raise _refused(
            what, "holds a NUL character", "Not every store can keep it: use bytes."
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refused(
            what, "is not valid text (a lone surrogate)", "Decode it with its encoding."
        ) from None


def is_orm_object(value: Any) -> bool:
    """Whether the value belongs to a database session (SQLAlchemy, Django)."""
    kind = cast("type[Any]", type(value))
    return hasattr(kind, "__mapper__") or (
        hasattr(kind, "_meta") and hasattr(value, "pk")
    )


def not_serializable(value: Any, what: str) -> NotSerializable:
    """Return the error for a value without a JSON form, with a hint for database objects."""
    kind = cast("type[Any]", type(value))
    name = f"{kind.__module__}.{kind.__qualname__}"
    if is_orm_object(value):
        cure = "Use its id, and load it again: the row may change meanwhile."
    else:
        cure = "Use plain data, a dataclass, a msgspec Struct or a pydantic model."
    return NotSerializable(f"{what} is a {name}, which is not JSON", cure=cure)


def _refused(what: str, why: str, cure: str) -> NotSerializable:
    return NotSerializable(f"{what} {why}", cure=cure)
