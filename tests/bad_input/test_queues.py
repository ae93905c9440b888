"""Mistakes about queues: in declarations, and in what a worker is told to serve."""

from typing import Any

import pytest

from durio import App
from durio.app.worker_builder import make_worker
from durio.errors import InvalidName, InvalidOption
from durio.queues import Queue
from tests.bad_input.refusals import declined
from tests.unit.app.app_harness import MEMORY, virtual


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("weight", 0),
        ("weight", -1),
        ("weight", 10**9),
        ("weight", 0.5),
        ("weight", "heavy"),
        ("weight", True),
        ("weight", None),
        ("weight", float("nan")),
        ("slots", 0),
        ("slots", -4),
        ("slots", 10**9),
        ("slots", "4"),
        ("prefetch", -1),
        ("prefetch", 10**9),
        ("prefetch", []),
    ],
)
def test_a_queue_with_bad_options(option: str, value: Any) -> None:
    app = App(MEMORY)
    with declined(InvalidOption, "'mail'", option, repr(value)):
        app.queue("mail", **{option: value})
    assert "mail" not in app.registry.queues


@pytest.mark.parametrize("name", ["", "a b", "mail*", "mail=4", "\0", "ü", None, 4])
def test_a_queue_with_a_bad_name(name: Any) -> None:
    with declined(InvalidName, "a queue cannot be named"):
        App(MEMORY).queue(name)


@pytest.mark.parametrize("queue", ["mail", None, {"name": "mail"}, ("mail", 3)])
def test_something_else_than_queues(queue: Any) -> None:
    with declined(InvalidOption, "TIERS"):
        App(MEMORY, queues=[Queue("high"), queue])


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"queues": ["mial"]}, InvalidOption, "Did you mean 'mail'?"),
        ({"queues": ["unheard"]}, InvalidOption, 'app.queue("unheard", weight=1)'),
        ({"queues": ["mail", "mail"]}, InvalidOption, "twice"),
        ({"queues": ["mail=0"]}, InvalidOption, "from 1"),
        ({"queues": ["mail=-1"]}, InvalidOption, "from 1"),
        ({"queues": ["mail=1.5"]}, InvalidOption, "whole number"),
        ({"queues": ["mail=all"]}, InvalidOption, "whole number"),
        ({"queues": ["mail=11", "default"]}, InvalidOption, "the worker has 10"),
        ({"queues": ["mail=3"], "concurrency": 2}, InvalidOption, "the worker has 2"),
        ({"queues": ["mail["]}, InvalidName, "can match no queue"),
        ({"queues": [""]}, InvalidName, "cannot be named"),
        ({"queues": [None]}, InvalidName, "cannot be named"),
        ({"weights": ["mail"]}, InvalidOption, "the number is missing"),
        ({"weights": ["mail=0"]}, InvalidOption, "from 1 to 1000"),
        ({"weights": ["mail=-6"]}, InvalidOption, "from 1 to 1000"),
        ({"weights": ["mail=1000000"]}, InvalidOption, "from 1 to 1000"),
        ({"weights": ["mail=six"]}, InvalidOption, "whole number"),
        ({"weights": ["mial=6"]}, InvalidOption, "Did you mean 'mail'?"),
        ({"weights": ["mail=1", "mail=2"]}, InvalidOption, "twice"),
        ({"queues": ["default"], "weights": ["mail=2"]}, InvalidOption, "not serve it"),
        ({"prefetches": ["mail=-1"]}, InvalidOption, "from 0"),
        ({"prefetches": ["mial=1"]}, InvalidOption, "Did you mean 'mail'?"),
    ],
)
@virtual
async def test_a_worker_that_is_badly_told(
    app: App, options: dict[str, Any], error: Any, word: str
) -> None:
    app.queue("mail", weight=1)
    with declined(error, word):
        await make_worker(app, **options)
    assert not await (await app.store()).workers(app.name)


@virtual(settings={"worker": {"strict": True}})
async def test_strict_without_an_order_or_with_weights(app: App) -> None:
    with declined(InvalidOption, "order of queues"):
        await make_worker(app)
    app.queue("mail", weight=1)
    with declined(InvalidOption, "strict", "weight"):
        await make_worker(app, weights=["mail=2"])
