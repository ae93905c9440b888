"""Mistakes with batch tasks: in their declaration, in a call, and in what they return."""

from collections.abc import Sequence
from typing import Any

import pytest

from durio import App, Context, JobDead
from durio.errors import (
    InvalidArguments,
    InvalidOption,
    InvalidPlan,
    InvalidSchedule,
    UsageError,
)
from durio.limits import Batch, Err, Ok
from tests.bad_input.refusals import declined
from tests.unit.app.app_harness import MEMORY, drained, virtual


@pytest.fixture
def app() -> App:
    return App(MEMORY, name="shop")


async def double(items: list[int]) -> list[int]:
    return [2 * item for item in items]


# --- the option


@pytest.mark.parametrize("size", [0, 1, -3, 1001, 2.5, True, "64", None], ids=repr)
def test_a_size_out_of_bounds(size: Any):
    with declined(
        InvalidOption, "Batch cannot have the size", repr(size), "2 to 1,000"
    ):
        Batch(size)


@pytest.mark.parametrize("wait", [0, "0s", "0.5ms", "61s", "2h"], ids=repr)
def test_a_wait_out_of_bounds(wait: Any):
    with declined(InvalidOption, "Batch cannot wait for", repr(wait), '"1ms" to "1m"'):
        Batch(8, wait)


@pytest.mark.parametrize(
    "wait", [-1, "-1s", "soon", None, float("nan"), True], ids=repr
)
def test_a_wait_that_is_no_duration(wait: Any):
    with declined(InvalidOption, "wait cannot be", repr(wait)):
        Batch(8, wait)


@pytest.mark.parametrize("batch", [64, "64", (64, "50ms"), None, True], ids=repr)
def test_an_option_that_is_no_batch(app: App, batch: Any):
    with declined(InvalidOption, "batch cannot be", 'Batch(64, "50ms")'):
        app.task(batch=batch)


def test_batch_is_no_option_of_a_call_or_an_app(app: App):
    task = app.task(double)
    with declined(InvalidOption, "there is no option 'batch'"):
        task.options(batch=Batch(8))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="batch"):
        App(MEMORY, batch=Batch(8))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_a_child_process(app: App):
    with declined(InvalidOption, "task shop.double has both batch= and process=True"):
        app.task(batch=Batch(8), process=True)(double)
    assert "shop.double" not in app.registry.handlers


def test_a_schedule_takes_the_option_from_the_task(app: App):
    with declined(InvalidSchedule, "a schedule takes no options of a task"):
        app.every("5m")(batch=Batch(8))(double)


# --- the function


async def nothing() -> list[int]:
    return []


async def one(item: int) -> list[int]:
    return [item]


async def text(items: str) -> list[int]:
    return [len(items)]


async def mapping(items: dict[str, int]) -> list[int]:
    return [*items.values()]


async def pair(items: tuple[int, int]) -> list[int]:
    return [*items]


async def only_keyword(*, items: list[int]) -> list[int]:
    return items


async def rest(*items: int) -> list[int]:
    return [*items]


@pytest.mark.parametrize("function", [one, text, mapping, pair])
def test_a_first_parameter_that_is_no_list(app: App, function: Any):
    with declined(UsageError, "has a first parameter that is no list", "list[str]"):
        app.task(batch=Batch(8))(function)
    assert not app.registry.handlers


@pytest.mark.parametrize("function", [nothing, only_keyword, rest])
def test_no_first_parameter(app: App, function: Any):
    with declined(UsageError, "has no list of items as its first parameter"):
        app.task(batch=Batch(8))(function)


def test_a_second_parameter(app: App):
    async def two(items: list[int], model: str = "x") -> list[int]:
        return [len(model)] * len(items)

    with declined(UsageError, "has the parameter model beside items, its list"):
        app.task(batch=Batch(8), name="two")(two)


def test_a_context_in_the_wrong_place(app: App):
    async def late(items: list[int], ctx: Context) -> list[int]:
        return [ctx.attempt] * len(items)

    with declined(UsageError, "ctx is a Context, but not the first parameter"):
        app.task(batch=Batch(8), name="late")(late)


async def returns_none(items: list[int]) -> None:
    items.clear()


async def returns_text(items: list[int]) -> str:
    return str(items)


async def returns_mapping(items: list[int]) -> dict[int, int]:
    return dict.fromkeys(items, 0)


async def returns_pair(items: list[int]) -> tuple[int, int]:
    return (items[0], items[1])


@pytest.mark.parametrize(
    "function", [returns_none, returns_text, returns_mapping, returns_pair]
)
def test_a_function_that_returns_no_list(app: App, function: Any):
    with declined(UsageError, "and not a list of results"):
        app.task(batch=Batch(8))(function)


def test_an_item_that_json_cannot_carry(app: App):
    async def odd(items: list[range]) -> list[int]:
        return [len(item) for item in items]

    with declined(UsageError, "shop.odd", "item"):
        app.task(batch=Batch(8), name="odd")(odd)


# --- calls


@virtual
async def test_a_list_is_not_an_item(app: App):
    task: Any = app.task(batch=Batch(8))(double)
    for wrong in ([1, 2], "1", None):
        with declined(InvalidArguments, "item"):
            await task.enqueue(wrong)
    with declined(InvalidArguments, "items"):
        await task.enqueue(items=[1])
    with declined(InvalidArguments, "It takes (item: int)"):
        await task.enqueue(1, 2)


def test_chunks_of_a_batch_task(app: App):
    task: Any = app.task(batch=Batch(8))(double)
    with declined(InvalidPlan, "task shop.double has batch=", "task.map(items)"):
        task.chunks([(1,), (2,)], 2)


def test_an_error_that_is_none():
    wrong: Any = "too late"
    with declined(UsageError, "Err cannot take 'too late'", "which is no exception"):
        Err(wrong)


# --- what it returns


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1], "wrong() returned 1 result for 2 items"),
        ([], "wrong() returned no results for 2 items"),
        ([1, 2, 3], "wrong() returned 3 results for 2 items"),
        (None, "returned None, and not a list with the results of its 2 items"),
        ({1: 1, 2: 2}, "and not a list with the results of its 2 items"),
        ("ab", "and not a list with the results of its 2 items"),
    ],
    ids=repr,
)
def test_a_wrong_number_of_results_and_no_list(returned: Any, message: str):
    @virtual(name="shop")
    async def test(app: App):
        @app.task(batch=Batch(8), name="wrong")
        async def wrong(items: list[int]) -> list[int]:
            assert items == [1, 2]
            return returned

        jobs = [await wrong.enqueue(1), await wrong.enqueue(2)]
        await drained(app)
        for job in jobs:
            with pytest.raises(JobDead) as caught:
                await job.result()
            assert caught.value.reason == "bad_result"
            error = (await job.status()).last_error
            assert error is not None
            assert message in error.message
            assert message in str((await job.explain()).to_dict())

    test()


@virtual
async def test_outcomes_may_be_mixed_with_plain_values(app: App):
    @app.task(batch=Batch(8), name="mixed", retry=0)
    async def mixed(items: Sequence[int]) -> Sequence[Ok[int] | int | Err]:
        ends: list[Ok[int] | int | Err] = [1, Ok(2), Err(ValueError("three"))]
        return ends[: len(items)]

    jobs = [await mixed.enqueue(n) for n in range(3)]
    await drained(app)
    assert [await job.result() for job in jobs[:2]] == [1, 2]
    with pytest.raises(JobDead, match="three"):
        await jobs[2].result()
