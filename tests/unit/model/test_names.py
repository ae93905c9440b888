"""Names: what may be stored, how it is joined, what was probably meant."""

import pytest

from durio.model.errors import InvalidName
from durio.model.names import (
    check_app,
    check_key,
    check_name,
    did_you_mean,
    lane,
    namespace_of,
    queue_of,
    task_name,
)


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
