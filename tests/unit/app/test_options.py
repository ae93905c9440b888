"""The signatures that are written by hand say what the table of options says."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from durio import App
from durio.app.task_decorator import BatchKeywords, TaskKeywords
from durio.app.tasks import TaskWithOptions
from durio.limits import Batch
from durio.model.options import OPTIONS, UNSET, CallOptions
from durio.ports.handler import Handler


def keywords(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters
    return {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def types_of(place: str) -> dict[str, Any]:
    """What the table says: each option that may be given here, with its type."""
    annotations = CallOptions.__annotations__
    return {
        name: annotations[name].__origin__
        for name, option in OPTIONS.items()
        if place in option.places
    }


def declared_types(found: dict[str, inspect.Parameter]) -> dict[str, Any]:
    return {name: parameter.annotation for name, parameter in found.items()}


def test_the_options_of_a_call() -> None:
    found = keywords(TaskWithOptions.options)
    assert declared_types(found) == types_of("call")
    assert all(parameter.default is UNSET for parameter in found.values())


def test_the_options_of_a_task() -> None:
    assert BatchKeywords.__annotations__.keys() == types_of("task").keys()
    batch = {"batch": Batch}
    assert TaskKeywords.__annotations__ | batch == types_of("task")
    assert TaskKeywords.__required_keys__ == frozenset()
    assert BatchKeywords.__required_keys__ == {"batch"}


def test_the_options_of_an_app() -> None:
    found = keywords(App)
    expected = types_of("app")
    assert {name: found[name].annotation for name in expected} == expected
    assert all(found[name].default is UNSET for name in expected)


def test_every_option_of_a_task_reaches_its_handler() -> None:
    fields = {option.handler for option in OPTIONS.values() if option.handler}
    assert fields <= {*Handler.__struct_fields__}
    given = {name: o.handler for name, o in OPTIONS.items() if "task" in o.places}
    assert [name for name, handler in given.items() if not handler] == [
        "name",
        "aliases",
        "limits",  # these two are the gate rule
        "fair_by",
    ]


def test_positional_options_are_refused() -> None:
    app = App("sqlite:///:memory:")

    @app.task(name="pay")
    async def pay() -> None: ...

    with pytest.raises(TypeError, match=r"options\(\) takes 1 positional argument"):
        pay.options("high")
