"""Encode a task's arguments: bind and check them, decode them to the annotated types.

The payload is `[args, kwargs]`. If the signature is known, every named parameter is sent by
name, so `f(42)` and `f(order_id=42)` are the same bytes; `args` holds only what a `*args`
parameter takes. Producers that know only the task's name may send positionals; then the
worker binds them.
"""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from inspect import Parameter
from sys import maxsize
from typing import Any

import msgspec

from durio.model.argument_errors import call_of, given_twice, misfit, unbound
from durio.model.codec import (
    PLAIN,
    UNREADABLE,
    canonical,
    check_hint,
    check_plain,
    check_value,
    decode_other,
    decoder_of,
    encoder,
)
from durio.model.errors import InvalidArguments, NotSerializable, UsageError
from durio.model.names import did_you_mean
from durio.model.result_codec import ResultCodec

Arguments = tuple[Sequence[Any], dict[str, Any]]
_values = msgspec.json.Decoder(tuple[list[Any], dict[str, Any]])
_raw_values = msgspec.json.Decoder(tuple[list[msgspec.Raw], dict[str, msgspec.Raw]])
NAMED = (
    Parameter.POSITIONAL_ONLY,
    Parameter.POSITIONAL_OR_KEYWORD,
    Parameter.KEYWORD_ONLY,
)


class ArgumentCodec:
    """Encodes and decodes the arguments of one function; `result` does its result."""

    def __init__(
        self, function: Callable[..., Any], task: str, *, skip_first: int
    ) -> None:
        self.task, self._function, self._skipped = task, function, skip_first
        self._full_signature = inspect.signature(function)
        hints = hints_of(function, task)
        parameters = list(self._full_signature.parameters.values())[skip_first:]
        self.bindable = self._full_signature.replace(parameters=parameters)
        self._named = [p for p in parameters if p.kind in NAMED]
        self._positional = [
            p.name for p in self._named if p.kind is not Parameter.KEYWORD_ONLY
        ]
        self._only_positional = [
            p.name for p in self._named if p.kind is Parameter.POSITIONAL_ONLY
        ]
        self._has_defaults = any(p.default is not Parameter.empty for p in self._named)
        self._rest = _hint_of(parameters, Parameter.VAR_POSITIONAL, hints)
        self._extra = _hint_of(parameters, Parameter.VAR_KEYWORD, hints)
        self._is_simple = (
            self._rest is None and self._extra is None and not self._only_positional
        )
        required = [p.name for p in self._named if p.default is Parameter.empty]
        self._fit: dict[str, Any] = {
            "positional": self._positional,
            "required": required,
            "known": {p.name for p in self._named} - {*self._only_positional},
            "has_rest": self._rest is not None,
            "is_open": self._extra is not None,
        }
        # How many positionals are a whole call; no number if a parameter needs its name.
        most = maxsize if self._rest is not None else len(self._positional) + 1
        fewest = len(required) if {*required} <= {*self._positional} else most
        self._whole = range(fewest, most)
        self._struct = _struct(task, self._named, hints)
        rest = list[self._rest] if self._rest is not None else tuple[()]
        for what, hint in (("*args", self._rest), ("**kwargs", self._extra)):
            check_hint(task, what, Any if hint is None else hint)
        self._unannotated = {p.name for p in parameters if p.name not in hints}
        self._has_datetimes = _has_datetimes(self._struct, rest, self._extra)
        self._decode = decoder_of(tuple[rest, self._struct])
        self.result = ResultCodec(task, hints.get("return", Any))

    # --- the caller's side

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Encode arguments as a payload; refuse what the worker could not decode."""
        rest, named = self.bind(args, kwargs)
        for name, value in named.items():
            if type(value) not in PLAIN:
                check_value(value, f"{self.task}: argument {name}")
        if self._extra is not None:
            check_value(tuple(named), f"{self.task}: the name of an argument")
        for value in rest:
            check_value(value, f"{self.task}: argument")
        if self._unannotated:
            self._check_unannotated(rest, named)
        try:
            payload = encoder.encode((rest, named))
        except NotSerializable as error:
            raise NotSerializable(
                f"{self.task}: {error.what}", cure=error.cure
            ) from None
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise NotSerializable(
                f"{self.task}: arguments cannot be stored as JSON: {error}",
                cure="Pass plain data, a dataclass, a Struct or a pydantic model.",
            ) from None
        self._check_readable(payload)
        return payload

    def encode_following(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Encode a call without its first argument, which the worker adds."""
        if (why := self.why_unfit((None, *args), kwargs)) is not None:
            raise self._invalid(why, kwargs)
        return (self._following if self._positional else self).encode(args, kwargs)

    @cached_property
    def _following(self) -> "ArgumentCodec":
        return ArgumentCodec(self._function, self.task, skip_first=self._skipped + 1)

    def _check_readable(self, payload: bytes) -> None:
        """Refuse what the worker could not decode; the arguments are not built."""
        if self._extra is not None or self._has_datetimes:
            self.decode(payload)
            return
        try:
            self._decode(payload)
        except UNREADABLE as error:
            self._decode_positional(payload, error)

    def bound(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the call in one form: `f(42)` and `f(order_id=42)` become equal.

        Refuse a call that does not fit. `encode` checks the types.
        """
        if not kwargs and self.takes(len(args)):
            return tuple(args), {}
        bound = self._bound(args, kwargs)
        return bound.args, bound.kwargs

    def canonical(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], payload: bytes
    ) -> bytes:
        """Return the same bytes for the same arguments, for idempotency keys to compare."""
        return canonical(self.bind(args, kwargs), payload)

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return what `*args` takes, and the others by parameter, without defaults."""
        if self._is_simple and len(args) <= len(self._positional):
            named = dict(zip(self._positional, args, strict=False))
            if not kwargs:
                return (), named
            if not (named.keys() & kwargs.keys()):
                named.update(kwargs)
                return (), self._in_order(named) if len(kwargs) > 1 else named
        bound = self._bound(args, kwargs)
        named, rest = dict(bound.arguments), ()
        for name, parameter in self.bindable.parameters.items():
            if parameter.kind is Parameter.VAR_POSITIONAL:
                rest = named.pop(name, ())
            elif parameter.kind is Parameter.VAR_KEYWORD:
                extra = named.pop(name, {})
                if twice := named.keys() & extra.keys():
                    raise self._invalid(given_twice(self.task, min(twice)), kwargs)
                named.update(sorted(extra.items()))
        return rest, named

    def _bound(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> inspect.BoundArguments:
        try:
            return self.bindable.bind(*args, **kwargs)
        except TypeError as error:
            why = self.why_unfit(args, kwargs) or str(error)
            raise self._invalid(why, kwargs) from None

    def _in_order(self, named: dict[str, Any]) -> dict[str, Any]:
        """Sort names in the function's order, so that equal arguments are the same bytes."""
        known = {p.name: named.pop(p.name) for p in self._named if p.name in named}
        return {**known, **named}

    def takes(self, count: int) -> bool:
        return count in self._whole

    def why_unfit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        if not kwargs and self.takes(len(args)):
            return None
        return unbound(self.task, args, kwargs, **self._fit)

    def _check_unannotated(self, rest: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Refuse values that would arrive as another type without an annotation."""
        open_names = {
            p.kind: p.name
            for p in self.bindable.parameters.values()
            if p.kind not in NAMED and p.name in self._unannotated
        }
        known = {p.name for p in self._named}
        for name, value in named.items():
            if name in self._unannotated or (
                name not in known and Parameter.VAR_KEYWORD in open_names
            ):
                check_plain(value, call_of(self.task), name)
        if Parameter.VAR_POSITIONAL in open_names:
            for value in rest:
                name = f"*{open_names[Parameter.VAR_POSITIONAL]}"
                check_plain(value, call_of(self.task), name)

    # --- the worker's side

    def decode(self, payload: bytes) -> Arguments:
        """Decode typed arguments for the call; raises InvalidArguments."""
        if self._extra is not None:
            return self._decode_open(payload)
        try:
            rest, struct = self._decode(payload)
        except UNREADABLE as error:
            return self._decode_positional(payload, error)
        named = msgspec.structs.asdict(struct)
        if self._has_defaults:
            named = {k: v for k, v in named.items() if v is not msgspec.UNSET}
        return self._call(rest, named)

    def decode_by_name(self, payload: bytes) -> dict[str, Any]:
        """Return decoded arguments by parameter name, without defaults."""
        args, kwargs = self.decode(payload)
        return dict(self.bindable.bind(*args, **kwargs).arguments)

    def _call(self, rest: Sequence[Any], named: dict[str, Any]) -> Arguments:
        if self._has_datetimes:
            # A naive datetime may arrive as text, which `encode` did not check.
            try:
                check_value((rest, named), "arguments")
            except NotSerializable as error:
                raise self._invalid(f"{self.task}: {error.what}", {}) from None
        if self._is_simple:
            return rest, named
        first = self._only_positional if not rest else self._positional
        args = [named.pop(name) for name in first if name in named]
        return [*args, *rest], named

    def _decode_positional(self, payload: bytes, error: Exception) -> Arguments:
        """Bind the positionals of a producer without our signature, then decode."""
        args, kwargs = self._parts(payload, _raw_values)
        is_open = self._needs_binding(args, kwargs)
        if is_open and isinstance(error, msgspec.ValidationError):
            rest, named = self.bind(args, kwargs)
            return self.decode(encoder.encode((rest, named)))
        raise self._misfit(error, kwargs) from None

    def _misfit(self, error: Exception, kwargs: Mapping[str, Any]) -> InvalidArguments:
        kinds = {p.kind: p.name for p in self.bindable.parameters.values()}
        rest = kinds.get(Parameter.VAR_POSITIONAL, "args")
        return self._invalid(misfit(self.task, str(error), rest), kwargs)

    def _needs_binding(self, args: list[Any], kwargs: dict[str, Any]) -> bool:
        """Whether there are positionals although a named parameter is missing."""
        if self._rest is None:
            return bool(args)
        return bool(args) and any(name not in kwargs for name in self._positional)

    def _decode_open(self, payload: bytes) -> Arguments:
        """Decode for functions with **kwargs: known names by their types, then the rest."""
        rest, named = self._parts(payload, _values)
        kwargs = named
        if self._needs_binding(rest, named):
            rest, named = self.bind(rest, named)
        known = {p.name for p in self._named}
        extra = {k: v for k, v in named.items() if k not in known}
        try:
            struct = msgspec.convert(
                {k: v for k, v in named.items() if k in known},
                self._struct,
                dec_hook=decode_other,
            )
            extra, rest = self._decode_others(extra, rest)
        except msgspec.ValidationError as error:
            raise self._misfit(error, kwargs) from None
        typed = {
            k: v
            for k, v in msgspec.structs.asdict(struct).items()
            if v is not msgspec.UNSET
        }
        return self._call(rest, {**typed, **extra})

    def _decode_others(
        self, extra: dict[str, Any], rest: Sequence[Any]
    ) -> tuple[dict[str, Any], Sequence[Any]]:
        """Decode the arguments of **kwargs and *args; an error names the argument."""
        decoded = dict[str, Any]()
        for name, value in extra.items():
            try:
                decoded[name] = msgspec.convert(
                    value, self._extra, dec_hook=decode_other
                )
            except msgspec.ValidationError as error:
                why, at, path = str(error).partition(" - at `$")
                path = path if at else "`"
                raise msgspec.ValidationError(f"{why} - at `$.{name}{path}") from None
        if self._rest is not None:
            kind = tuple[list[self._rest]]  # so that the path of an error is `$[0]`
            (rest,) = msgspec.convert((rest,), kind, dec_hook=decode_other)
        return decoded, rest

    def _parts(self, payload: bytes, decoder: Any) -> tuple[list[Any], dict[str, Any]]:
        try:
            return decoder.decode(payload)
        except UNREADABLE as error:
            raise InvalidArguments(
                f"{self.task}: the payload is not [args, kwargs] as JSON: {error}",
                cure="Enqueue through Durio, or write this shape.",
            ) from None

    # --- published for producers that know only the task's name

    def parameters(self) -> list[dict[str, Any]]:
        """Return names, kinds and JSON types of the arguments, as plain data."""
        try:
            schema: dict[str, Any] = msgspec.json.schema(self._struct)
            properties: dict[str, Any] = schema["$defs"]["Arguments"]["properties"]
        except (TypeError, NotImplementedError, KeyError):
            properties = {}
        return [
            {
                "name": p.name,
                "kind": p.kind.name.lower(),
                "required": p.default is Parameter.empty and p.kind in NAMED,
                "schema": properties.get(p.name, {}),
            }
            for p in self.bindable.parameters.values()
        ]

    def _invalid(self, what: str, kwargs: Mapping[str, Any]) -> InvalidArguments:
        known = [p.name for p in self._named]
        unknown = [name for name in kwargs if name not in known]
        hint = did_you_mean(unknown[0], known) if unknown and not self._extra else ""
        return InvalidArguments(
            what,
            cure=f"It takes {self.bindable}.{hint}",
            task=self.task,
        )


def hints_of(function: Callable[..., Any], task: str) -> dict[str, Any]:
    """Return the annotations of a function; refuse those that cannot be resolved."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise UsageError(
            f"task {task}: an annotation cannot be resolved: {error}",
            cure="Import that name at run time, not under TYPE_CHECKING: arguments "
            "are decoded by their annotations.",
        ) from None


def _hint_of(
    parameters: list[Parameter], kind: Any, hints: Mapping[str, Any]
) -> Any | None:
    for parameter in parameters:
        if parameter.kind is kind:
            return hints.get(parameter.name, Any)
    return None


def _struct(
    task: str, named: list[Parameter], hints: Mapping[str, Any]
) -> type[msgspec.Struct]:
    fields: list[Any] = []
    for parameter in named:
        hint = hints.get(parameter.name, Any)
        check_hint(task, parameter.name, hint)
        if parameter.default is Parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint | msgspec.UnsetType, msgspec.UNSET))
    try:
        return msgspec.defstruct(
            "Arguments", fields, kw_only=True, forbid_unknown_fields=True
        )
    except (TypeError, ValueError, NameError, RuntimeError) as error:
        raise UsageError(
            f"task {task}: its parameters cannot be carried: {error}",
            cure="Use plain parameter names and types that JSON can carry.",
        ) from None


def _has_datetimes(struct: type[msgspec.Struct], rest: Any, extra: Any) -> bool:
    """Whether a datetime is among the arguments, at any depth of their types."""
    kinds = (struct, rest, Any if extra is None else extra)
    return "DateTimeType" in repr(msgspec.inspect.multi_type_info(kinds))
