"""Signatures of a few functions, for tests of plans."""

from collections.abc import Callable
from typing import Any

from durio.model.argument_codec import ArgumentCodec
from durio.model.plan import Source
from durio.model.signature_arguments import signature_arguments
from durio.plans import PlanFailure, Signature

CLIENT = object()
PLAN_ID = bytes.fromhex("018bcfe568007005a51cc5d900000015")


def first(path: str) -> str:
    return path


def size(path: str, unit: int = 1) -> int:
    return len(path) * unit


def add(a: int, b: int) -> int:
    return a + b


def nothing() -> None: ...


def alert(failure: PlanFailure, channel: str = "ops") -> None: ...


def s(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """As `task.s(...)` of this function."""
    codec = ArgumentCodec(function, f"shop.{function.__name__}", skip_first=False)
    given, named = signature_arguments(codec, args, kwargs)
    source = Source(CLIENT, codec)
    return Signature[..., Any](codec.task, given, named, source=source)


def si(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """As `task.si(...)` of this function."""
    codec = ArgumentCodec(function, f"shop.{function.__name__}", skip_first=False)
    given, named = codec.bound(args, kwargs)
    source = Source(CLIENT, codec)
    return Signature[..., Any](
        codec.task, given, named, is_immutable=True, source=source
    )


def named(task: str, *args: Any) -> Any:
    """A signature of a task whose code is elsewhere."""
    return Signature[..., Any](task, args, {})
