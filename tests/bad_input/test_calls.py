"""Mistakes in one call: its arguments, its options, its rows. Nothing is stored."""

import math
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pydantic
import pytest
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from durio import App, Context, Retry
from durio.errors import (
    InvalidArguments,
    InvalidName,
    InvalidOption,
    NotSerializable,
    PayloadTooLarge,
    UnknownTask,
    UsageError,
)
from durio.keys import debounce, window
from durio.model.options import NO_OPTIONS
from tests.bad_input.refusals import asked, declined, refused
from tests.unit.app.app_harness import MEMORY, records, virtual
from tests.unit.app.test_ends import Listener

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - on purpose


def named(value: object) -> str:
    """For the name of a test: the same in every process, so without an address."""
    return re.sub(r" at 0x\w+", "", repr(value))


@dataclass
class Order:
    id: int
    placed_at: datetime | None = None
    note: str = ""
    price: float = 0.0


class Item(pydantic.BaseModel):
    price: float = 0.0
    note: str = ""
    at: datetime | None = None


class Shipment(msgspec.Struct):
    order: Order


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "user"
    id: Mapped[int] = mapped_column(primary_key=True)


class Lost(Enum):
    NOWHERE = math.nan
    NUL = "a\0b"


class NoOffset(tzinfo):
    """A zone that does not know its offset: such a time is naive too."""

    def utcoffset(self, dt: datetime | None) -> None: ...
    def dst(self, dt: datetime | None) -> None: ...
    def tzname(self, dt: datetime | None) -> None: ...


async def anything(value: Any = None, *more: Any, **extra: Any) -> None: ...


async def pay(order_id: int, amount: Decimal = Decimal(1), *, to: str = "") -> None: ...


async def remind(at: datetime, others: list[Order] | None = None) -> None: ...


# --- arguments


@pytest.mark.proves("M19")
@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, ["pay() needs the argument 'order_id'"]),
        (("x",), {}, ["argument 'order_id' must be int"]),
        ((1.5,), {}, ["argument 'order_id' must be int"]),
        ((None,), {}, ["argument 'order_id' must be int"]),
        ((True,), {}, ["order_id"]),
        ((1, 2, 3), {}, ["pay() takes 2 positional arguments, and 3 were given"]),
        ((1,), {"order_id": 1}, ["pay() got the argument 'order_id' twice"]),
        ((1,), {"too": "x"}, ["pay() has no parameter 'too'", "Did you mean 'to'?"]),
        ((1,), {"to": 5}, ["argument 'to' must be str, not int"]),
        ((1, "much"), {}, ["amount"]),
    ],
    ids=str,
)
@virtual(name="shop")
async def test_wrong_and_missing_arguments(
    app: App, args: tuple[Any, ...], kwargs: dict[str, Any], words: list[str]
):
    task = app.task(pay)
    shape = "(order_id: int"
    async with refused(app, InvalidArguments, "pay()", shape, *words):
        await task.enqueue(*args, **kwargs)
    async with refused(app, InvalidArguments, "pay()", *words):
        await task.enqueue_many([(1,), task.s(*args, **kwargs), (2,)])
    async with refused(app, InvalidArguments, "pay()", *words):
        await app.enqueue("pay", *args, **kwargs)


@virtual
async def test_a_context_is_never_an_argument(app: App):
    @app.task(name="task")
    async def task(ctx: Context, number: int) -> None: ...

    async with refused(app, InvalidArguments, "(number: int)"):
        await task.enqueue(5, 6)
    async with refused(app, InvalidArguments, "ctx"):
        await task.enqueue(number=5, ctx=None)


def cycle() -> list[Any]:
    loop: list[Any] = []
    loop.append({"again": loop})
    return loop


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


UNSTORABLE: dict[str, tuple[Any, list[str]]] = {
    "an object": (object(), ["builtins.object", "plain data"]),
    "a class": (Order, ["type"]),
    "a function": (pay, ["function"]),
    "an open file": (deque([1]), ["collections.deque"]),
    "an object, nested": ({"a": [Order(1), object()]}, ["builtins.object"]),
    "a text of its own kind": (type("Text", (str,), {})("x"), ["Text"]),
    "complex": (1j, ["complex"]),
    "an exception": (ValueError("x"), ["ValueError"]),
    "a key that is a tuple": ({(1, 2): 3}, ["JSON"]),
    "raw bytes that say they are JSON": (msgspec.Raw(b"nonsense"), ["Raw"]),
    "an ORM object": (User(id=1), ["User", "Use its id, and load it again"]),
    "an ORM object, nested": ([{"user": User(id=1)}], ["Use its id"]),
    "NaN": (math.nan, ["nan", "use None"]),
    "infinity": (-math.inf, ["-inf"]),
    "NaN, nested": (Shipment(Order(1, price=math.nan)), ["value.order.price is nan"]),
    "NaN as a Decimal": (Decimal("sNaN"), ["NaN"]),
    "NaN as an Enum": (Lost.NOWHERE, ["nan"]),
    "NaN in a pydantic model": (Item(price=math.nan), ["nan"]),
    "a naive datetime": (NAIVE, ["naive", "datetime.now(UTC)"]),
    "a naive datetime in a dataclass": (
        Order(1, NAIVE),
        ["value.placed_at is a naive datetime"],
    ),
    "a naive datetime in a Struct in a dict": (
        {"s": [Shipment(Order(1, NAIVE))]},
        ["order.placed_at is a naive datetime"],
    ),
    "a naive datetime in a pydantic model": (Item(at=NAIVE), ["naive"]),
    "a naive datetime with a zone": (
        NAIVE.replace(tzinfo=NoOffset()),
        ["naive datetime"],
    ),
    "NUL": ("a\0b", ["NUL", "use bytes"]),
    "NUL, nested": (Order(1, note="\0"), ["value.note holds a NUL"]),
    "NUL in a key": ({"a\0": 1}, ["NUL"]),
    "NUL in a path": (PurePosixPath("a\0b"), ["NUL"]),
    "NUL in an Enum": (Lost.NUL, ["NUL"]),
    "NUL in a pydantic model": (Item(note="\0"), ["NUL"]),
    "a lone surrogate": ("\ud800", ["lone surrogate"]),
    "a lone surrogate in a key": ({"\udfff": 1}, ["lone surrogate"]),
    "a cycle": (cycle(), ["nested deeper than 64", "cycle"]),
    "depth": (deep(100_000), ["nested deeper than 64"]),
}


@pytest.mark.proves("M30", "M42")
@pytest.mark.parametrize("what", UNSTORABLE)
@virtual
async def test_a_value_that_cannot_be_stored(app: App, what: str):
    value, words = UNSTORABLE[what]
    task = app.task(anything)
    calls: list[Callable[[], Any]] = [
        lambda: task.enqueue(value),
        lambda: task.enqueue(1, 2, value),
        lambda: task.enqueue(extra=value),
        lambda: task.enqueue_many([(1,), (value,)]),
        lambda: task.options(key="k").enqueue(value),
        lambda: app.enqueue("anything", value),
        lambda: app.enqueue("elsewhere.anything", value),  # nothing is known of it
    ]
    for position, call in enumerate(calls):
        told = words if position == 0 else []
        async with refused(app, NotSerializable, *told):
            await call()


@virtual
async def test_names_of_extra_arguments_are_checked_too(app: App):
    task = app.task(anything)
    for name in ("a\0b", "\ud800"):
        async with refused(app, NotSerializable, "app.anything"):
            await task.enqueue(**{name: 1})


@pytest.mark.parametrize(
    "args",
    [
        ("2026-01-01T00:00:00",),
        ("2026-01-01T00:00:00Z", [{"id": 1, "placed_at": "2026-01-01T00:00:00"}]),
    ],
    ids=["an argument", "nested"],
)
@virtual
async def test_a_naive_datetime_that_comes_as_text(app: App, args: tuple[Any, ...]):
    task = app.task(remind)
    async with refused(app, InvalidArguments, "naive"):
        await task.enqueue(*args)


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**64), 10**100])
@virtual
async def test_an_integer_beyond_64_bit_is_not_changed_on_the_way(
    app: App, number: int
):
    await app.task(pay).enqueue(number)
    assert msgspec.json.decode((await records(app))[0].payload)[1]["order_id"] == number


# --- bounds


@pytest.mark.proves("M30")
@virtual
async def test_a_payload_over_the_bound(app: App):
    task = app.task(anything)
    async with refused(
        app, PayloadTooLarge, "app.anything", "over the bound of 1048576", "pass its id"
    ):
        await task.enqueue("x" * 1024 * 1024)
    async with refused(app, PayloadTooLarge):
        await task.enqueue_many([("small",), ("x" * 1024 * 1024,)])
    async with refused(app, PayloadTooLarge):
        await app.enqueue("other.task", "x" * 1024 * 1024)


@pytest.mark.proves("M30", "M16")
@virtual(settings={"payload": {"bytes_max": 30, "warn_bytes": 20}})
async def test_the_bounds_of_a_payload_can_be_set(app: App):
    task, listener = app.task(anything), Listener(app)
    async with refused(app, PayloadTooLarge, "over the bound of 30"):
        await task.enqueue("x" * 20)
    await task.enqueue("x" * 8)
    await task.enqueue("x")
    warned = [fields for name, fields in listener.heard if name == "payload.large"]
    assert [fields["task"] for fields in warned] == ["app.anything"]


@pytest.mark.proves("M30")
@virtual
async def test_a_payload_over_64_kib_is_stored_with_a_warning(app: App):
    task, listener = app.task(anything), Listener(app)
    await task.enqueue("x" * 60 * 1024)
    assert listener.names() == []
    await task.enqueue("x" * 64 * 1024)
    assert listener.names() == ["payload.large"]
    assert listener.heard[0][1]["bytes"] > 64 * 1024
    assert len(await records(app)) == 2


@pytest.mark.proves("M31")
@virtual
async def test_huge_meta(app: App):
    task = app.task(anything)
    async with refused(app, InvalidOption, "meta is", "over the bound of 16384"):
        await task.options(meta={"a": "x" * 17_000}).enqueue()
    half = {"a": "x" * 9_000}
    async with refused(app, InvalidOption, "meta is"):
        await task.options(meta=half).options(meta={"b": "x" * 9_000}).enqueue()


@pytest.mark.parametrize(
    "meta",
    [
        {"a": "x\0"},
        {"a\0": 1},
        {"a": "\ud800"},
        {"a": math.nan},
        {"a": NAIVE},
        {"a": object()},
        {"a": User(id=1)},
        {"a": cycle()},
    ],
    ids=lambda meta: named(meta)[:40],
)
@virtual
async def test_meta_that_cannot_be_stored(app: App, meta: dict[str, Any]):
    async with refused(app, NotSerializable, "meta"):
        await app.task(anything).options(meta=meta).enqueue()


@pytest.mark.parametrize("meta", [5, "text", [1], {1: 2}, {("a",): 1}], ids=repr)
@virtual
async def test_meta_that_is_no_dict(app: App, meta: Any):
    async with refused(app, InvalidOption, "meta must be a dict"):
        app.task(anything).options(meta=meta)


# --- options


@pytest.mark.proves("M52")
@pytest.mark.parametrize("priority", [10, -1, True, "5", 5.0, None], ids=repr)
@virtual
async def test_a_priority_that_is_none(app: App, priority: Any):
    async with refused(app, InvalidOption, f"{priority!r}", "9 is most urgent"):
        await app.task(anything).options(priority=priority).enqueue()


@pytest.mark.proves("M104")
@pytest.mark.parametrize("timeout", [(300, 270), (5, 5), 0, -1, "x"], ids=repr)
@virtual
async def test_a_soft_limit_that_is_not_below_the_hard_one(app: App, timeout: Any):
    async with refused(app, InvalidOption, "timeout cannot be"):
        await app.task(anything).options(timeout=timeout).enqueue()


@pytest.mark.proves("M28")
@pytest.mark.parametrize(
    "delay",
    [
        *(-1, -0.001, timedelta(seconds=-1), "-5s", "5x", "", "soon", True, None),
        *(math.nan, math.inf, 10**400, 4e9, "9999999999d"),
    ],
    ids=lambda delay: repr(delay)[:20],
)
@virtual
async def test_a_delay_that_is_none(app: App, delay: Any):
    async with refused(app, InvalidOption, "delay cannot be", "'5m'"):
        await app.task(anything).options(delay=delay).enqueue()


@pytest.mark.proves("M28")
@pytest.mark.parametrize(
    "at",
    [
        NAIVE,
        NAIVE.replace(tzinfo=NoOffset()),
        date(2026, 1, 1),
        "2026-01-01T00:00:00Z",
        1_800_000_000.0,
        None,
        datetime.max.replace(tzinfo=UTC),
    ],
    ids=named,
)
@virtual
async def test_a_moment_that_is_none(app: App, at: Any):
    async with refused(app, InvalidOption, "at cannot be", "aware datetime"):
        await app.task(anything).options(at=at).enqueue()


@pytest.mark.proves("M28")
@virtual
async def test_a_delay_together_with_a_moment(app: App):
    calls = app.task(anything).options(delay=5)
    async with refused(app, InvalidOption, "delay and at are both given"):
        calls.options(at=datetime(2030, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("prioritty", "priority"),
        ("dealy", "delay"),
        ("ques", "queue"),
        ("metta", "meta"),
    ],
)
@virtual
async def test_an_unknown_option(app: App, option: str, meant: str):
    async with refused(app, InvalidOption, repr(option), f"Did you mean {meant!r}?"):
        await app.task(anything).options(**{option: 5}).enqueue()


@pytest.mark.proves("M33")
@pytest.mark.parametrize(
    "key", ["", "x" * 256, "ü" * 128, "a\0b", "\ud800", 5, b"k"], ids=repr
)
@virtual
async def test_a_key_that_is_none(app: App, key: Any):
    async with refused(app, InvalidName, "key"):
        await app.task(anything).options(key=key).enqueue()


@virtual
async def test_a_policy_without_a_key(app: App):
    task = app.task(anything)
    async with refused(app, InvalidOption, "unique=window needs a key", "key=..."):
        task.options(unique=window("1h"))
    async with refused(app, InvalidOption, "needs a key"):
        task.options(key="k", unique=debounce(5)).options(key=None)


@pytest.mark.parametrize("policy", ["window", window, 5, None, timedelta(1)], ids=named)
@virtual
async def test_a_policy_that_is_none(app: App, policy: Any):
    async with refused(app, InvalidOption, "unique cannot be", "durio.keys"):
        app.task(anything).options(key="k", unique=policy)


@pytest.mark.parametrize("seconds", [-1, "soon", math.inf], ids=repr)
def test_a_window_that_is_none(seconds: Any):
    with declined(InvalidOption, "window cannot be"):
        window(seconds)
    with declined(InvalidOption, "debounce cannot be"):
        debounce(seconds)


@pytest.mark.proves("M60")
@pytest.mark.parametrize(
    "retry", [Retry(on=(OSError,)), Retry(never=(OSError,))], ids=["on", "never"]
)
@virtual
async def test_classes_of_errors_are_not_for_a_call(app: App, retry: Retry):
    words = ("cannot be given at call time", "@app.task(retry=...)")
    async with refused(app, InvalidOption, *words):
        app.task(anything).options(retry=retry)


@pytest.mark.parametrize("retry", [-1, True, "5", None], ids=repr)
@virtual
async def test_a_retry_that_is_none(app: App, retry: Any):
    async with refused(app, InvalidOption, "retry"):
        app.task(anything).options(retry=retry)


# --- many rows


@virtual
async def test_many_rows_under_one_key(app: App):
    async with refused(app, InvalidOption, "would make one job of all rows"):
        await app.task(anything).options(key="k").enqueue_many([(1,), (2,)])


@pytest.mark.parametrize("row", ["ab", 5, None, b"ab", [1], {1}], ids=repr)
@virtual
async def test_rows_of_other_types(app: App, row: Any):
    words = ("row 2: ", f"a {type(row).__name__}, not a signature", "anything.s(42)")
    async with refused(app, InvalidArguments, *words):
        await app.task(anything).enqueue_many([(1,), row])


@pytest.mark.parametrize("key", [1, None, b"value"], ids=repr)
@virtual
async def test_a_mapping_row_with_keys_that_are_not_text(app: App, key: Any):
    async with refused(app, InvalidArguments, "row 2: ", repr(key), "parameters"):
        await app.task(anything).enqueue_many([{"value": 1}, {key: 1}])


@virtual(name="shop")
async def test_a_row_of_another_task(app: App):
    task, other = app.task(pay), app.task(anything)
    words = ("row 2: a signature of shop.anything", "shop.pay.enqueue_many", "its own")
    async with refused(app, UsageError, *words):
        await task.enqueue_many([task.s(1), other.s(1)])


@pytest.mark.parametrize("row", [(1, {"to": "a"}), ({"order_id": 1},)], ids=str)
@virtual(name="shop")
async def test_a_dict_at_the_end_of_a_tuple_is_no_keywords(app: App, row: Any):
    words = ("row 2: pay()", "no longer keywords", "task.s(1, to='a')")
    async with refused(app, InvalidArguments, *words):
        await app.task(pay).enqueue_many([(1,), row])


@virtual(name="shop")
async def test_rows_whose_generator_raises_half_way(app: App):
    task = app.task(anything)

    def rows() -> Iterator[tuple[int]]:
        yield (1,)
        yield (2,)
        raise ConnectionError("the file ends here")

    for call in (task.enqueue_many, app.named("anything").enqueue_many):
        with pytest.raises(ConnectionError, match="the file ends here"):
            await call(rows())
    assert await records(app) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": "k"}, ["cannot have a key", "task.options(key=...).enqueue("]),
        ({"queue": "high"}, ["its own queue", "options(queue=...).enqueue_many(rows)"]),
    ],
    ids=str,
)
@virtual
async def test_a_row_with_an_option_of_the_whole_call(
    app: App, options: dict[str, Any], words: list[str]
):
    task = app.task(anything)
    async with refused(app, InvalidOption, "row 2: ", *words):
        await task.enqueue_many([task.s(1), task.options(**options).s(2)])


@virtual
async def test_a_signature_lacks_an_argument(app: App):
    task = app.task(pay)
    # Without its first argument it is a part of a plan, but no row.
    async with refused(app, InvalidArguments, "pay()", "order_id"):
        await task.enqueue_many([task.s()])
    async with refused(app, InvalidArguments, "pay()", "Did you mean 'to'?"):
        task.s(1, too="a")


@pytest.mark.parametrize("rows", [5, None, "ab", {"value": 1}], ids=repr)
@virtual
async def test_no_rows_at_all(app: App, rows: Any):
    async with refused(app, InvalidArguments, "enqueue_many takes rows"):
        await app.task(anything).enqueue_many(rows)


@virtual
async def test_a_bad_row_beyond_the_first_thousand_leaves_nothing(app: App):
    rows: list[tuple[object, ...]] = [(n,) for n in range(2500)]
    async with refused(app, NotSerializable):
        await app.task(anything).enqueue_many([*rows, (object(),)])


# --- by name


@pytest.mark.proves("M3", "M27")
@virtual(name="shop")
async def test_an_unknown_task_of_a_known_namespace(app: App):
    app.task(pay)
    words = ("'shop.pya'", "Did you mean 'shop.pay'?")
    async with refused(app, UnknownTask, *words):
        await app.enqueue("pya", 42)
    async with refused(app, UnknownTask, *words):
        await app.enqueue("shop.pya", 42)


@pytest.mark.parametrize("name", ["", "a b", "a\0b", "\ud800", 5, None], ids=repr)
@virtual
async def test_a_name_that_is_none(app: App, name: Any):
    async with refused(app, InvalidName, "a task cannot be named"):
        await app.enqueue(name, 1)
    async with refused(app, InvalidName):
        await app.enqueue_named(name, (), {}, NO_OPTIONS)


# --- sync calls


@virtual
async def test_a_sync_call_inside_a_running_loop(app: App):
    task = app.task(anything)
    job = await task.enqueue()
    calls: list[Callable[[], Any]] = [
        lambda: task.enqueue_sync(1),
        lambda: task.enqueue_many_sync([(1,)]),
        lambda: app.enqueue_sync("anything", 1),
        job.result_sync,
        job.status_sync,
        job.cancel_sync,
        job.retry_sync,
        lambda: app.run_sync(app.job(job.id)),
    ]
    for call in calls:
        async with refused(app, UsageError, "running event loop", "await", stored=1):
            call()
    assert (await job.status()).state == "ready"


def test_a_sync_call_is_refused_the_same_way():
    app = App(MEMORY)
    task = app.task(pay)
    with declined(InvalidArguments, "order_id"):
        task.enqueue_sync("x")
    with declined(InvalidArguments, "row 1: ", "a int, not a signature"):
        task.enqueue_many_sync([5])
    with declined(UnknownTask, "Did you mean"):
        app.enqueue_sync("payy", 1)
    assert app.run_sync(asked(app, "select count(*) from job")) == [(0,)]


def test_the_current_context_outside_of_a_task():
    with declined(UsageError, "there is no job here", "code that a task calls"):
        Context.current()
