"""Which rules an App accepts, and which names of tasks a glob matches."""

from typing import Any

import pytest

from durio.errors import InvalidName, InvalidOption
from durio.model.routes import GlobRoute, Route, checked_rules, name_of_router
from tests.bad_input.refusals import declined

HIGH = Route("high")


def by_nothing(_task: str, _arguments: Any, _meta: Any) -> None:
    return None


class CallableRouter:
    def __call__(self, _task: str, _arguments: Any, _meta: Any) -> Route | None:
        return HIGH


@pytest.mark.parametrize(
    ("pattern", "task", "is_match"),
    [
        ("payment:*", "shop.payment:charge", True),
        ("payment:*", "shop.payment", False),
        ("payment:*", "web.payment:charge", False),  # of another App
        ("shop.payment:*", "shop.payment:charge", True),
        ("*.payment:*", "web.payment:charge", True),
        ("*", "shop.send", True),
        ("*", "web.send", False),
        ("send", "shop.send", True),
        ("send", "shop.send_all", False),
        ("send?", "shop.send2", True),
        ("send[12]", "shop.send3", False),
        ("SEND", "shop.send", False),
    ],
)
def test_which_tasks_a_glob_matches(pattern: str, task: str, *, is_match: bool) -> None:
    (rule,) = checked_rules("shop", [(pattern, HIGH)])
    assert isinstance(rule, GlobRoute)
    assert rule.matches(task) is is_match


def test_rules_keep_their_order() -> None:
    router = CallableRouter()
    rules = checked_rules("shop", [by_nothing, ("*", HIGH), router, max])
    assert rules == [by_nothing, GlobRoute("shop.*", HIGH), router, max]
    assert name_of_router(by_nothing) == "by_nothing"
    assert "CallableRouter" in name_of_router(router)


@pytest.mark.parametrize(
    ("values", "error", "word"),
    [
        ({}, InvalidOption, "neither a queue nor a priority"),
        ({"queue": "a b"}, InvalidName, "a queue cannot be named"),
        ({"queue": None}, InvalidName, "a queue cannot be named"),
        ({"priority": 10}, InvalidOption, "priority"),
    ],
)
def test_a_bad_route(values: Any, error: Any, word: str) -> None:
    with declined(error, word):
        Route(**values)


async def later(_task: str, _arguments: Any, _meta: Any) -> None: ...


class AsyncRouter:
    async def __call__(self, _task: str, _arguments: Any, _meta: Any) -> None: ...


def of_one(_task: str) -> None: ...


@pytest.mark.parametrize(
    ("rules", "error", "word"),
    [
        ("payment:*", InvalidOption, "routes cannot hold 'payment:*'"),
        ({"payment:*": HIGH}, InvalidOption, "routes cannot hold"),
        (7, InvalidOption, "routes cannot hold 7"),
        ([HIGH], InvalidOption, "routes cannot hold Route("),
        ([("payment:*",)], InvalidOption, "routes cannot hold"),
        ([("payment:*", "high")], InvalidOption, "routes cannot hold"),
        ([CallableRouter], InvalidOption, "routes cannot hold"),
        ([later], InvalidOption, "router later is async"),
        ([AsyncRouter()], InvalidOption, "is async"),
        ([of_one], InvalidOption, "def router(task, arguments, meta)"),
        ([("a b", HIGH)], InvalidName, "a task cannot be named"),
        ([(7, HIGH)], InvalidName, "a task cannot be named"),
        ([("pay[", HIGH)], InvalidName, "can match no task"),
        ([("*" * 129, HIGH)], InvalidName, "can match no task"),
        ([("tasks.payment.*", HIGH)], InvalidName, "a name has one dot"),
        ([("*", HIGH)] * 1001, InvalidOption, "1,001 routes"),
    ],
)
def test_bad_rules(rules: Any, error: Any, word: str) -> None:
    with declined(error, word):
        checked_rules("shop", rules)
