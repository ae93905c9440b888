"""Mistakes with breakers: in their numbers, in tasks, and in blocks."""

from typing import Any

import pytest

from durio import App, Concurrency
from durio.errors import InvalidName, InvalidOption, UnknownBreaker, UsageError
from durio.limits import Breaker
from tests.bad_input.refusals import declined
from tests.unit.app.app_harness import MEMORY


@pytest.fixture
def app() -> App:
    return App(MEMORY, name="shop", breakers=[Breaker("smtp")])


async def send() -> None: ...


def test_a_breaker_that_nobody_declared(app: App) -> None:
    words = ("no breaker 'stmp' is declared", "breakers=", "Did you mean 'smtp'?")
    with declined(UnknownBreaker, *words):
        app.task(breaker="stmp")(send)
    assert app.registry.handlers == {}
    with declined(UnknownBreaker, *words):
        app.breaker("stmp")
    with declined(UnknownBreaker, "no breaker 'smtp'"):
        App(MEMORY, name="other").task(breaker="smtp")(send)


@pytest.mark.parametrize("name", [5, None, "", "no spaces", "a/b"], ids=repr)
def test_a_name_that_no_breaker_can_have(app: App, name: Any) -> None:
    with declined(InvalidName, "a breaker cannot be named"):
        app.task(breaker=name)
    with declined(InvalidName, "a breaker cannot be named"):
        Breaker(name)


def test_a_call_cannot_choose_a_breaker(app: App) -> None:
    task: Any = app.task(breaker="smtp")(send)
    with declined(InvalidOption, "breaker"):
        task.options(breaker="smtp")


def test_a_task_in_a_child_process(app: App) -> None:
    with declined(InvalidOption, "shop.send", "process=True"):
        app.task(breaker="smtp", process=True)(send)


def test_a_fifth_gate(app: App) -> None:
    limits = [Concurrency(n, name=f"l{n}") for n in range(1, 5)]
    with declined(InvalidOption, "5 limits", "breaker:smtp", "at most 4"):
        app.task(breaker="smtp", limits=limits)(send)
    app.task(breaker="smtp", limits=limits[1:])(send)


def test_two_tasks_share_a_breaker(app: App) -> None:
    app.task(breaker="smtp")(send)
    app.task(breaker="smtp", name="again")(send)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"failure_rate": 0}, "failure_rate cannot be 0"),
        ({"failures": -1}, "failures cannot be -1"),
        ({"calls_min": 0}, "calls_min cannot be 0"),
        ({"window": "100ms"}, "window cannot be '100ms'"),
        ({"open_for": "2d"}, "open_for cannot be '2d'"),
        ({"open_for": "soon"}, "open_for cannot be 'soon'"),
        ({"probes": 5}, "Give 1 or 2"),
        ({"on": ["smtplib.SMTPException"]}, "a class of exceptions"),
    ],
)
def test_wrong_numbers(numbers: dict[str, Any], words: str) -> None:
    with declined(InvalidOption, words):
        Breaker("smtp", **numbers)


@pytest.mark.parametrize("given", ["smtp", [5], [Breaker("a"), Breaker("a")]], ids=str)
def test_wrong_breakers_of_an_app(given: Any) -> None:
    with declined(InvalidOption, "breaker"):
        App(MEMORY, name="shop", breakers=given)


def test_a_block_outside_a_task(app: App) -> None:
    with declined(UsageError, "outside a task"), app.breaker("smtp"):
        raise AssertionError
