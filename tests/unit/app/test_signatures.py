"""`task.s(...)`: a task with its arguments as a value, and what a task object looks like."""

import copy
import inspect
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from fastapi import BackgroundTasks

from durio import App, Context, Signature
from durio.errors import InvalidOption
from tests.unit.app.app_harness import MEMORY, records, virtual


async def send(order_id: int, /, note: str = "", *, to: str) -> str:
    """Send a receipt."""
    return f"{order_id}{note}{to}"


def resize(ctx: Context, path: str, *sizes: int, **labels: str) -> list[object]:
    return [ctx.attempt, path, sizes, labels]


def test_a_signature_is_a_task_with_its_arguments_and_options():
    task = App(MEMORY, name="shop").task(send)
    later = task.options(delay="5m")
    signature = later.s(42, to="a@b.c")
    assert isinstance(signature, Signature)
    assert signature.task == "shop.send"
    assert (signature.args, signature.kwargs) == ((42,), {"to": "a@b.c"})
    assert signature.options.delay == "5m"
    assert repr(signature) == "shop.send.s(42, to='a@b.c')"


def test_equal_calls_are_equal_signatures():
    app = App(MEMORY, name="shop")
    task, other = app.task(send), app.task(name="other")(send)
    assert task.s(1, to="a") == task.s(1, to="a")
    assert task.s(1, "x", to="a") == task.s(1, to="a", note="x")
    assert task.s(1, to="a") != task.s(2, to="a")
    assert task.s(1, to="a") != other.s(1, to="a")
    assert task.s(1, to="a") != task.options(priority=9).s(1, to="a")
    assert task.options(priority=9).s(1, to="a") == task.options(priority=9).s(
        1, to="a"
    )


def test_the_context_is_no_argument_of_a_signature():
    task = App(MEMORY).task(resize)
    signature = task.s("a", 1, 2, kind="x")
    assert (signature.args, signature.kwargs) == (("a", 1, 2), {"kind": "x"})


def test_a_signature_is_frozen_and_can_be_copied():
    signature = App(MEMORY).task(send).s(1, to="a")
    with pytest.raises(FrozenInstanceError):
        signature.task = "app.other"  # type: ignore[misc]
    assert copy.deepcopy(signature) == signature


@virtual
async def test_a_signature_can_be_enqueued_again_and_again(app: App):
    task = app.task(send)
    signature = task.s(1, to="a")
    for _ in range(2):
        await task.enqueue_many([signature, signature])
    assert len({row.id for row in await records(app)}) == 4
    assert len({row.payload for row in await records(app)}) == 1


# --- a task looks like its function


@pytest.mark.parametrize("function", [send, resize], ids=["async", "sync"])
def test_a_task_keeps_what_describes_its_function(function: Any):
    task = App(MEMORY, name="shop").task(queue="mail")(function)
    assert task.__name__ == function.__name__
    assert task.__qualname__ == function.__qualname__
    assert task.__doc__ == function.__doc__
    assert task.__module__ == function.__module__
    assert task.__wrapped__ is function
    assert task.__signature__ == inspect.signature(function)
    assert inspect.signature(task) == inspect.signature(function)
    assert inspect.unwrap(task) is function


def test_libraries_see_that_the_call_of_an_async_task_is_a_coroutine():
    app = App(MEMORY)
    assert inspect.iscoroutinefunction(app.task(send).__call__)
    assert not inspect.iscoroutinefunction(app.task(resize).__call__)


@virtual
async def test_background_tasks_of_fastapi_run_a_task(app: App):
    ran: list[object] = []

    @app.task(name="note")
    async def note(ctx: Context, number: int, *, to: str) -> None:
        ran.append((ctx.attempt, number, to))

    background = BackgroundTasks()
    background.add_task(note, 1, to="a")
    await background()
    assert ran == [(1, 1, "a")]
    assert await records(app) == []


# --- a decorator that is kept


def test_a_decorator_with_options_serves_many_tasks():
    app = App(MEMORY)
    high = app.task(queue="high", priority=9)
    first, second = high(send), high(priority=7, process=True)(resize)
    assert (first._handler.queue, first._handler.priority) == ("high", 9)
    assert (second._handler.queue, second._handler.priority) == ("high", 7)
    assert second._handler.is_process
    with pytest.raises(InvalidOption, match="prioritty"):
        high(prioritty=3)
