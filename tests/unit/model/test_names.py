"""Names: what may be stored, how it is joined, what was probably meant."""

from typing import Any

import pytest

from durio.model.errors import InvalidName
from durio.model.names import (
    check_app,
    check_key,
    check_name,
    check_task,
    did_you_mean,
    is_prefix,
    known_as,
    lane,
    namespace_of,
    queue_of,
    task_name,
)
from tests.bad_input.refusals import declined


@pytest.mark.parametrize("name", ["a", "shop", "my-shop_2", "a" * 63])
def test_apps(name: str) -> None:
    assert check_app(name) == name


@pytest.mark.parametrize("name", ["", "Shop", "1a", "a:b", "a" * 64, "a\n", "é", None])
def test_apps_that_cannot_be(name: str) -> None:
    with pytest.raises(InvalidName, match="an app cannot be named"):
        check_app(name)


@pytest.mark.parametrize("name", ["default", "mail:high.v2-x", "A" * 128])
def test_queues_and_tasks(name: str) -> None:
    assert check_name("queue", name) == name


@pytest.mark.parametrize("name", ["", "a b", "a" * 129, "a\0", "ü", 5])
def test_queues_and_tasks_that_cannot_be(name: str) -> None:
    with pytest.raises(InvalidName, match="a queue cannot be named"):
        check_name("queue", name)


@pytest.mark.parametrize("key", ["k", "ü" * 127, "any text: even\nthis"])
def test_keys(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize("key", ["", "ü" * 128, "a\0", "\ud800", 5, None])
def test_keys_that_cannot_be(key: str) -> None:
    with pytest.raises(InvalidName):
        check_key(key)


@pytest.mark.proves("M13")
def test_names_are_stored_under_their_app() -> None:
    assert lane("shop", "mail:high") == "shop:mail:high"
    assert queue_of("shop:mail:high") == "mail:high"
    assert namespace_of("shop:mail:high") == "shop"
    assert task_name("shop", "pay") == "shop.pay"
    assert task_name("shop", "bank.pay") == "bank.pay"


def test_a_close_word_is_suggested() -> None:
    assert (
        did_you_mean("prioritty", ["delay", "priority"]) == " Did you mean 'priority'?"
    )
    assert did_you_mean("zzz", ["delay", "priority"]) == ""
    assert did_you_mean("delay", ["delay", "relay"]) == " Did you mean 'relay'?"


@pytest.mark.parametrize(
    ("task", "known"),
    [
        ("shop.email:welcome", "shop.email:welcome"),
        ("shop.email:new:1", "shop.email:new:*"),
        ("shop.email:new", "shop.email:*"),
        ("shop.email:", "shop.email:*"),
        ("shop.mail", "shop.*"),
        ("web.email:welcome", None),
    ],
)
def test_a_task_is_known_by_its_name_or_the_longest_prefix(
    task: str, known: str | None
) -> None:
    names = ["shop.*", "shop.email:new:*", "shop.email:*", "shop.email:welcome"]
    assert known_as(task, names) == known
    assert known_as(task, names[::-1]) == known


@pytest.mark.parametrize("name", ["email:*", "shop.email:*", "*", "send"])
def test_a_task_may_be_for_many_names(name: str) -> None:
    assert check_task(name) == name
    assert is_prefix(name) is (name != "send")


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("*:email", "* is not at the end"),
        ("email:**", "* is not at the end"),
        ("em*ail", "* is not at the end"),
        ("a b*", "a task cannot be named 'a b'"),
        ("a b", "a task cannot be named 'a b'"),
        (7, "a task cannot be named '7'"),
    ],
)
def test_a_bad_name_of_a_task(name: Any, word: str) -> None:
    with declined(InvalidName, word):
        check_task(name)
