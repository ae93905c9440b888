"""Mistakes in plans that are found before anything is stored."""

from collections.abc import Callable
from itertools import repeat
from typing import Any

import apsw
import pytest

from durio import App
from durio.errors import (
    DurioError,
    InvalidArguments,
    InvalidName,
    InvalidOption,
    InvalidPlan,
    NotSerializable,
    UnknownAttribute,
    UsageError,
)
from durio.keys import debounce, replace, while_waiting
from durio.model import plan, plan_build, plan_checks
from durio.model.celery_names import PLAN_METHODS
from durio.model.plan_arguments import with_first_arguments
from durio.plans import Plan, PlanFailure, chain, chord, group
from tests.bad_input.refusals import declined
from tests.unit.app.app_harness import MEMORY

app = App(MEMORY, name="shop")


@app.task
async def fetch(path: str) -> str:
    return path


@app.task
def measure(path: str, unit: int = 1) -> int:
    return len(path) * unit


@app.task
async def add(a: int, b: int) -> int:
    return a + b


@app.task
async def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
async def nothing() -> None: ...


@app.task
async def only_keywords(*, to: str) -> None: ...


@app.task
async def alert(failure: PlanFailure, channel: str = "ops") -> None: ...


other_app = App(MEMORY, name="bank")
twin_app = App(MEMORY, name="shop")


@other_app.task(name="pay")
async def pay(text: str) -> str:
    return text


@twin_app.task(name="twin")
async def twin(text: str) -> str:
    return text


Make = Callable[[], Any]
refusals: dict[str, tuple[Make, type[DurioError], list[str]]] = {
    "an empty chain": (chain, InvalidPlan, ["a chain has no members"]),
    "a chain of nothing": (lambda: chain([]), InvalidPlan, ["has no members"]),
    "a chord without callback": (
        lambda: chord([fetch.s("a")]),  # type: ignore[call-overload]
        InvalidPlan,
        ["no callback", "group()"],
    ),
    "a chord of one signature": (
        lambda: chord(fetch.s("a"), measure.s()),
        InvalidPlan,
        ["shop.fetch.s('a'), which is not a group", "a | b"],
    ),
    "a chord of a chain": (
        lambda: chord(chain(fetch.s("a")), measure.s()),
        InvalidPlan,
        ["not a group"],
    ),
    "a coroutine in a group": (
        lambda: group([fetch("a")]),
        InvalidPlan,
        ["a coroutine", "task.s(...)"],
    ),
    "a coroutine behind a bar": (
        lambda: fetch.s("a") | fetch("b"),
        InvalidPlan,
        ["a coroutine"],
    ),
    "a plain call": (
        lambda: group([measure("a")]),
        InvalidPlan,
        ["is 1, a int", "task.s(...)"],
    ),
    "a forgotten s": (
        lambda: chain(fetch.s("a"), measure),
        InvalidPlan,
        ["the task measure, without its arguments", "measure.s(...)"],
    ),
    "a forgotten s behind a bar": (
        lambda: fetch.s("a") | measure,
        InvalidPlan,
        ["measure.s(...)"],
    ),
    "a forgotten s before a bar": (
        lambda: fetch | measure.s(),  # type: ignore[operator]
        InvalidPlan,
        ["the task fetch, without its arguments", "fetch.s(...)"],
    ),
    "a forgotten s behind options": (
        lambda: group([measure.options(delay=5)]),
        InvalidPlan,
        ["without its arguments"],
    ),
    "a list behind a bar": (
        lambda: fetch.s("a") | [measure.s()],  # type: ignore[operator]
        InvalidPlan,
        ["[shop.measure.s()], a list", "Write group(...)"],
    ),
    "options behind the arguments": (
        lambda: fetch.s("a").options(queue="q"),
        UsageError,
        ["a signature has its options already", "task.options(queue="],
    ),
    **{
        f"{name}() of Celery": (
            lambda name=name: getattr(fetch.s("a") | measure.s(), name),
            UnknownAttribute,
            [f"signatures and plans have no {name}()", line],
        )
        for name, line in PLAN_METHODS.items()
    },
    "a text": (lambda: group("abc"), InvalidPlan, ["is 'abc', a str"]),
    "a number": (lambda: chain(5), InvalidPlan, ["is 5, a int"]),
    "nothing": (lambda: group([None]), InvalidPlan, ["is None"]),
    "a mapping": (lambda: group({"a": 1}), InvalidPlan, ["a dict"]),
    "another App": (
        lambda: fetch.s("a") | pay.s(),
        InvalidPlan,
        ["two Apps: shop.fetch and bank.pay"],
    ),
    "another App in a group": (
        lambda: group(group(fetch.s("a")), chain(pay.s("b"))),
        InvalidPlan,
        ["two Apps"],
    ),
    "another App by name": (
        lambda: fetch.s("a") | app.s("bank.pay"),
        InvalidPlan,
        ["shop.fetch and bank.pay"],
    ),
    "two Apps of one name": (
        lambda: fetch.s("a") | twin.s(),
        InvalidPlan,
        ["two App objects"],
    ),
    "a handler of another App": (
        lambda: fetch.s("a").on_error(pay.s()),
        InvalidPlan,
        ["two Apps"],
    ),
    "cancel_rest with collect": (
        lambda: group([fetch.s("a")], cancel_rest=True, on_error="collect"),  # type: ignore[call-overload]
        InvalidPlan,
        ["both cancel_rest and"],
    ),
    "an unknown rule": (
        lambda: group([fetch.s("a")], on_error="ignore"),  # type: ignore[call-overload]
        InvalidPlan,
        ["on_error='ignore'", '"collect"'],
    ),
    "a handler that takes no argument": (
        lambda: chain(fetch.s("a")).on_error(nothing.s()),
        InvalidArguments,
        ["PlanFailure", "nothing()", ".si(...)"],
    ),
    "a handler that has its argument": (
        lambda: fetch.s("a").on_error(total.s([1])),
        InvalidArguments,
        ["PlanFailure"],
    ),
    "a handler that is a plan": (
        lambda: fetch.s("a").on_error(chain(alert.s())),
        InvalidPlan,
        ["handler is a plan"],
    ),
    "a handler that is a task": (
        lambda: fetch.s("a").on_error(alert),
        InvalidPlan,
        ["alert.s(...)"],
    ),
    "a handler with a handler": (
        lambda: fetch.s("a").on_error(alert.s().on_error(alert.s())),
        InvalidPlan,
        ["cannot be an on_error handler"],
    ),
    "a handler that is a chunk": (
        lambda: fetch.s("a").on_error(add.chunks([(1, 2)], 1).members[0]),
        InvalidPlan,
        ["cannot be an on_error handler"],
    ),
    "a handler of a group that collects": (
        lambda: group([fetch.s("a")], on_error="collect").on_error(alert.s()),
        InvalidPlan,
        ["never fails"],
    ),
    "a call that has all its arguments, behind another": (
        lambda: add.s(1, 2) | add.s(3, 4),
        InvalidArguments,
        ["shop.add.s(3, 4) follows", ".si(...)"],
    ),
    "a named first argument, behind another": (
        lambda: fetch.s("a") | measure.s(path="b"),
        InvalidArguments,
        ["'path' twice"],
    ),
    "a task that takes nothing, behind another": (
        lambda: chain(fetch.s("a"), group(measure.s(), chain(nothing.s()))),
        InvalidArguments,
        ["shop.nothing.s() follows"],
    ),
    "a task that takes only keywords, behind another": (
        lambda: fetch.s("a") | only_keywords.s(to="b"),
        InvalidArguments,
        ["shop.only_keywords"],
    ),
    "missing arguments, whatever comes before": (
        add.s,
        InvalidArguments,
        ["add() needs the argument 'b', and its first argument unless it follows"],
    ),
    "a missing argument of an immutable signature": (
        lambda: add.si(1),
        InvalidArguments,
        ["add() needs the argument 'b'"],
    ),
    "an unknown argument": (
        lambda: add.s(c=1),
        InvalidArguments,
        ["has no parameter 'c'"],
    ),
    "a row that is no tuple": (
        lambda: add.starmap([[1, 2]]),  # type: ignore[list-item]
        InvalidArguments,
        ["a row of add() is [1, 2], not a tuple"],
    ),
    "a short row": (
        lambda: add.chunks([(1,)], 5),  # type: ignore[misc]
        InvalidArguments,
        ["needs the argument 'b'"],
    ),
    "chunks of nothing": (
        lambda: add.chunks([(1, 2)], 0),
        InvalidPlan,
        ["chunks cannot have 0 calls"],
    ),
    "chunks of too many": (
        lambda: add.chunks([(1, 2)], 1_000_001),
        InvalidPlan,
        ["1000001 calls", "from 1 to 1,000,000"],
    ),
    "chunks of a text": (
        lambda: add.chunks([(1, 2)], "5"),  # type: ignore[arg-type]
        InvalidPlan,
        ["'5' calls"],
    ),
    "a bad name": (lambda: app.s("re size", "a"), InvalidName, ["re size"]),
    "an unknown option of a plan": (
        lambda: chain(fetch.s("a")).options(delay=5),  # type: ignore[call-arg]
        InvalidOption,
        ["no option 'delay'", "task.options(...)"],
    ),
    "a policy that a plan cannot have": (
        lambda: chain(fetch.s("a")).options(key="k", unique=while_waiting),
        InvalidOption,
        ["unique=while_waiting"],
    ),
    "a policy without a key": (
        lambda: chain(fetch.s("a")).options(unique="while_active"),
        InvalidOption,
        ["needs a key"],
    ),
    "a key of a plan inside a plan": (
        lambda: chain(fetch.s("a")).options(key="k") | measure.s(),
        InvalidOption,
        ["cannot have its own key", "(a | b).options(key=...)"],
    ),
    "replace on a node": (
        lambda: chain(fetch.options(key="k", unique=replace).s("a")),
        InvalidOption,
        ["shop.fetch is part of a plan", "unique=replace"],
    ),
    "debounce on a node": (
        lambda: group(fetch.options(key="k", unique=debounce("5s")).s("a")),
        InvalidOption,
        ["unique=debounce"],
    ),
    "an argument that is no JSON": (
        (fetch.s(object()) | measure.s()).to_dict,  # type: ignore[arg-type]
        NotSerializable,
        ["shop.fetch"],
    ),
}


@pytest.mark.parametrize("name", refusals)
def test_a_plan_is_refused(name: str):
    make, error, words = refusals[name]
    with declined(error, *words):
        make()


def test_a_transaction_belongs_to_the_whole_plan():
    tx = apsw.Connection(":memory:")
    node = fetch.options(tx=tx).s("a")
    with declined(InvalidOption, "shop.fetch", "its own tx", "plan.options(tx=...)"):
        chain(node)
    with declined(InvalidOption, "its own tx"):
        measure.s("a").on_error(node)
    whole = chain(fetch.s("a")).options(tx=tx)
    with declined(InvalidOption, "cannot have its own tx"):
        group(whole)
    with declined(InvalidOption, "a transaction cannot be stored"):
        whole.to_dict()
    assert whole.options(tx=None).defaults.tx is None
    assert fetch.options(tx=None).s("a") | measure.s()


def test_too_many_members(monkeypatch: pytest.MonkeyPatch):
    for module in (plan, plan_build, plan_checks):
        monkeypatch.setattr(module, "MEMBERS_MAX", 100)
    member = fetch.s("a")
    assert group([member] * 100).size == 100
    with declined(InvalidPlan, "101 members, over the bound of 100", "chunks"):
        group(repeat(member))  # without an end
    with declined(InvalidPlan, "101 members"):
        fetch.map(repeat("a"))
    with declined(InvalidPlan, "101 members"):
        add.chunks(repeat((1, 2)), 5)
    with declined(InvalidPlan, "102 members"):
        group(chain([member, *[fetch.s()] * 50]) for _ in range(2))


def test_too_many_handlers():
    link = fetch.s("a")
    for _ in range(16):
        link = link.on_error(alert.s())
    with declined(InvalidPlan, "more than 16"):
        link.on_error(alert.s())


def test_a_plan_inside_itself():
    nested: Any = fetch.s("a")
    with declined(InvalidPlan, "deeper than 200 levels, or contains itself"):
        for _ in range(300):
            nested = group(nested, cancel_rest=True)
    document: dict[str, Any] = {"group": [], "cancel_rest": True}
    document["group"].append(document)
    with declined(InvalidPlan, "contains itself"):
        Plan.from_dict(document)


@pytest.mark.parametrize(
    ("link", "args", "kwargs", "words"),
    [
        (fetch.si("a") | measure.s(), (1,), {}, ["shop.fetch.si('a')", ".s(...)"]),
        (group(fetch.si("a"), fetch.si("b")), (1,), {}, ["shop.fetch.si('a')"]),
        (fetch.map(["a"]), (1,), {}, ["takes no further arguments"]),
        (group() | total.s(), (1,), {}, ["an empty group"]),
        (fetch.s() | measure.s(), (), {}, ["fetch() needs the argument 'path'"]),
        (group(fetch.s("a"), fetch.s()), (), {}, ["shop.fetch.s() is the first node"]),
        (fetch.s("a") | measure.s(), ("b",), {}, ["takes 1 positional argument"]),
        (fetch.s(), (), {"way": "b"}, ["has no parameter 'way'"]),
        (chain(measure.s(unit=2)), ("a",), {"unit": 3}, ["'unit' twice"]),
    ],
    ids=str,
)
def test_arguments_that_the_first_nodes_do_not_take(
    link: Any, args: tuple[Any, ...], kwargs: dict[str, Any], words: list[str]
):
    with declined(InvalidArguments, *words):
        with_first_arguments(link, args, kwargs)
