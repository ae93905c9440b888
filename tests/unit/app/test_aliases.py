"""Earlier names of a task: their jobs run, and new jobs get the new name."""

from dataclasses import dataclass
from typing import Any

import pytest

from durio import App
from durio.errors import (
    DuplicateTask,
    InvalidArguments,
    InvalidName,
    InvalidOption,
    UsageError,
)
from tests.bad_input.refusals import declined
from tests.unit.app.app_harness import MEMORY, drained, record_of, virtual, working


@dataclass
class Receipt:
    order_id: int


async def send_receipt(order_id: int) -> Receipt:
    return Receipt(order_id)


async def other(order_id: int) -> Receipt:
    return Receipt(order_id)


def beside(app: App, name: str = "shop") -> App:
    """Another program on the same store."""
    program = App(MEMORY, name=name, clock=app.clock)
    program.state = app.state
    return program


@virtual(name="shop")
async def test_a_worker_runs_jobs_that_are_stored_under_an_old_name(app: App):
    before = beside(app)
    old = await before.task(name="receipt")(other).enqueue(1)
    oldest = await before.task(name="mail_receipt")(other).enqueue(2)
    task = app.task(aliases=("receipt", "shop.mail_receipt"))(send_receipt)
    new = await task.enqueue(3)
    await drained(app)
    jobs = [await app.job(job.id) for job in (old, oldest, new)]
    # The results are decoded by the annotation of the task with the new name.
    assert [await job.result() for job in jobs] == [Receipt(1), Receipt(2), Receipt(3)]
    assert (await record_of(app, old)).task == "shop.receipt"
    assert (await record_of(app, new)).task == "shop.send_receipt"


@virtual(name="shop")
async def test_an_enqueue_by_an_old_name_is_stored_under_the_new_one(app: App):
    app.task(queue="mail", aliases=["receipt"])(send_receipt)
    web = beside(app, "web")
    async with working(app):
        await app.clock.sleep(1)
        jobs = [
            await app.enqueue("receipt", 1),
            await web.enqueue("shop.receipt", 2),
            *await web.named("shop.receipt").enqueue_many([(3,)]),
        ]
        seen = [await job.status() for job in jobs]
        with pytest.raises(
            InvalidArguments, match=r"send_receipt\(\): argument .order_id."
        ):
            await web.enqueue("shop.receipt", "x")
    assert {status.task for status in seen} == {"shop.send_receipt"}
    assert {status.queue for status in seen} == {"mail"}


@virtual(name="shop")
async def test_a_key_is_the_same_by_the_old_and_the_new_name(app: App):
    task = app.task(aliases=("receipt",))(send_receipt)
    first = await task.options(key="k").enqueue(1)
    again = await app.named("receipt").options(key="k").enqueue(1)
    assert (again, again.created) == (first, False)


def test_an_alias_that_is_the_name_or_alias_of_another_task():
    app = App(MEMORY, name="shop")
    app.task(aliases=("receipt",))(send_receipt)
    for options in (
        {"aliases": ("send_receipt",)},
        {"aliases": ("receipt",)},
        {"name": "receipt"},
    ):
        with declined(DuplicateTask, "test_aliases.py", "an alias is a name too"):
            app.task(**options)(other)
    assert app.declared_names()[0] == {"shop.send_receipt", "shop.receipt"}


def test_an_alias_that_is_the_tasks_own_name():
    app = App(MEMORY, name="shop")
    for own in ("send_receipt", "shop.send_receipt"):
        with declined(InvalidOption, "its own name as an alias", "remove this one"):
            app.task(aliases=(own,))(send_receipt)
    assert not app.registry.handlers


@pytest.mark.parametrize(
    ("aliases", "error", "words"),
    [
        ("receipt", InvalidOption, "aliases=('old_name',)"),
        (5, InvalidOption, "aliases cannot be 5"),
        (None, InvalidOption, "aliases=('old_name',)"),
        ((5,), InvalidName, "cannot be named '5'"),
        (("a b",), InvalidName, "cannot be named 'a b'"),
        (("web.send",), InvalidName, "the app's name"),
    ],
    ids=str,
)
def test_aliases_that_are_no_names(aliases: Any, error: Any, words: str):
    with declined(error, words):
        App(MEMORY, name="shop").task(aliases=aliases)(send_receipt)


def test_aliases_are_not_an_option_of_a_call():
    task = App(MEMORY).task(send_receipt)
    with declined(InvalidOption, "there is no option 'aliases'"):
        task.options(aliases=("a",))


@virtual(name="shop")
async def test_an_old_name_gives_rows_and_handles_of_the_task(app: App):
    task = app.task(aliases=("receipt",))(send_receipt)
    here, elsewhere = app.named("receipt"), beside(app, "web").named("shop.receipt")
    assert here.name == task.name
    assert here.s(1) == app.named("send_receipt").s(1)
    async with working(app):
        await app.clock.sleep(1)
        jobs = [
            *await here.enqueue_many([here.s(1), task.s(2)]),
            *await task.enqueue_many([here.s(3)]),
            *await elsewhere.enqueue_many([elsewhere.s(4), task.s(5)]),
        ]
        assert [(await each.status()).task for each in jobs] == [task.name] * 5
        assert await app.jobs(task=here).count() == 5
        assert await here.job(jobs[0].id) == jobs[0]
    with declined(UsageError, "a signature of shop.other", "its own task"):
        await elsewhere.enqueue_many([app.task(name="other")(other).s(1)])
