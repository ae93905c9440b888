"""Mistakes in how an App, its tasks and its settings are declared."""

import asyncio
import inspect
import math
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from durio import App, Context, Keep, Retry, Settings
from durio.app.worker_builder import make_worker
from durio.errors import (
    DuplicateTask,
    InvalidName,
    InvalidOption,
    InvalidURL,
    UnknownAttribute,
    UsageError,
)
from tests.bad_input.refusals import declined
from tests.unit.app.app_harness import MEMORY

if TYPE_CHECKING:
    from decimal import Decimal


@pytest.fixture
def app() -> App:
    return App(MEMORY, name="shop")


def plain() -> None: ...


def other() -> None: ...


# --- names


@pytest.mark.proves("M17")
def test_a_duplicate_name_tells_both_places(app: App):
    app.task(plain)
    first = f"{__file__}:{plain.__code__.co_firstlineno}"
    second = f"{__file__}:{other.__code__.co_firstlineno}"
    with declined(DuplicateTask, "'shop.plain'", first, second, "Rename one"):
        app.task(name="plain")(other)
    assert app.registry.handlers["shop.plain"].function is plain


@pytest.mark.parametrize(
    "name",
    ["", "Shop", "my shop", "7up", "a.b", "a:b", "x" * 64, "a\0b", "ü", "\ud800", 5],
    ids=repr,
)
def test_a_bad_name_of_an_app(name: Any):
    with declined(InvalidName, "an app cannot be named"):
        App(MEMORY, name=name)


@pytest.mark.parametrize(
    "name", ["", "a b", "a/b", "x" * 129, "a\0b", "größe", "\ud800", 5], ids=repr
)
@pytest.mark.parametrize("kind", ["task", "queue", "call"])
def test_a_bad_name_of_a_task_or_queue(app: App, kind: str, name: Any):
    with declined(InvalidName, "cannot be named"):
        if kind == "task":
            app.task(name=name)(plain)
        elif kind == "queue":
            app.task(queue=name)(plain)
        else:
            app.task(name="fine")(plain).options(queue=name)


def test_a_task_named_for_another_app(app: App):
    with declined(InvalidName, "'bank.pay'", "leave the dot out"):
        app.task(name="bank.pay")(plain)


def test_a_lambda_needs_a_name(app: App):
    with declined(UsageError, "<lambda>", "@app.task(name='...')"):
        app.task(lambda: None)
    assert app.task(name="named")(lambda: None).name == "shop.named"


def test_a_nested_function_needs_a_name(app: App):
    async def nested() -> None: ...

    with declined(UsageError, "nested", "@app.task(name='...')"):
        app.task(nested)
    assert app.task(name="nested")(nested).name == "shop.nested"


# --- functions


def test_something_that_is_no_function(app: App):
    with declined(UsageError, "is not a function"):
        app.task(name="x")(5)


async def stream() -> Any:
    yield 1


def numbers() -> Any:
    yield 1


@pytest.mark.parametrize("function", [stream, numbers])
def test_a_generator_has_no_one_result(app: App, function: Callable[..., Any]):
    with declined(UsageError, "generator", "ctx.progress"):
        app.task(function)


def checks_only(price: "Decimal") -> None: ...


def misspelt(price: "socket.sockett") -> None: ...


def nonsense(price: "not a type") -> None: ...  # noqa: F722


def context_too(ctx: Context, price: "Decimal") -> None: ...


@pytest.mark.parametrize("function", [checks_only, misspelt, nonsense, context_too])
def test_an_annotation_that_cannot_be_resolved(app: App, function: Callable[..., Any]):
    with declined(UsageError, "cannot be resolved", "TYPE_CHECKING"):
        app.task(function)


def takes_socket(connection: socket.socket) -> None: ...


def any_sockets(*connections: socket.socket) -> None: ...


def named_sockets(**connections: socket.socket) -> None: ...


def gives_socket() -> socket.socket: ...


def two_shapes(value: list[int] | set[int]) -> None: ...


@pytest.mark.parametrize(
    "function", [takes_socket, any_sockets, named_sockets, two_shapes]
)
def test_an_annotation_that_json_cannot_carry(app: App, function: Callable[..., Any]):
    with declined(UsageError, f"task shop.{function.__name__}", "JSON"):
        app.task(function)


@pytest.mark.parametrize("hint", [socket.socket, list[socket.socket], Iterator[int]])
def test_a_result_that_cannot_be_checked(app: App, hint: Any):
    def give() -> None: ...

    give.__annotations__["return"] = hint
    with declined(UsageError, "task shop.give", "results cannot be checked", "object"):
        app.task(name="give")(give)


# --- the context


def untyped(ctx, to: str) -> None: ...


def second(to: str, ctx: Context) -> None: ...


def keyword(*, ctx: Context) -> None: ...


def maybe(ctx: Context | None, to: str) -> None: ...


def contexts(*args: Context) -> None: ...


def named_contexts(**kwargs: "Context[int]") -> None: ...


def listed(ctx: list[Context]) -> None: ...


def method(self, to: str) -> None: ...


def class_method(cls, to: str) -> None: ...


MISPLACED = {
    untyped: "its parameter ctx has no annotation",
    second: "ctx is a Context, but not the first parameter",
    keyword: "ctx is a Context, but not the first parameter",
    maybe: "the annotation of ctx contains Context among other types",
    contexts: "*args is a Context, but not the first parameter",
    named_contexts: "**kwargs is a Context, but not the first parameter",
    listed: "the annotation of ctx contains Context among other types",
}


@pytest.mark.parametrize("function", MISPLACED, ids=lambda f: f.__name__)
def test_a_context_in_another_place(app: App, function: Callable[..., Any]):
    what = MISPLACED[function]
    cure = "Write `ctx: Context` as the first parameter (from durio import Context)"
    with declined(UsageError, f"task shop.{function.__name__}", what, cure):
        app.task(function)
    assert not app.registry.handlers


@pytest.mark.parametrize("function", [method, class_method], ids=lambda f: f.__name__)
def test_a_method_is_no_task(app: App, function: Callable[..., Any]):
    first = next(iter(inspect.signature(function).parameters))
    what = f"its first parameter is {first}, and a task cannot be a method"
    with declined(UsageError, what, "outside of the class"):
        app.task(function)


def test_contexts_that_are_right(app: App):
    def plain_one(ctx: Context, to: str) -> None: ...
    def with_deps(c: "Context[int]", /, to: str) -> None: ...
    def annotated(ctx: Annotated[Context, "x"], to: str) -> None: ...
    def typed_argument(a: int, ctx: str) -> None: ...

    takes = [
        app.registry.handlers[app.task(name=f.__name__)(f).name].takes_context
        for f in (plain_one, with_deps, annotated, typed_argument)
    ]
    assert takes == [True, True, True, False]


# --- options of tasks


@pytest.mark.parametrize("priority", [10, -1, True, "5", 5.0, None], ids=repr)
@pytest.mark.proves("M52")
def test_a_priority_that_is_none(app: App, priority: Any):
    with declined(InvalidOption, f"priority cannot be {priority!r}", "0 to 9"):
        app.task(priority=priority)(plain)


@pytest.mark.proves("M104")
@pytest.mark.parametrize(
    "timeout",
    [
        (300, 270),
        (300, 300),
        (0, 10),
        0,
        -1,
        (1,),
        (1, 2, 3),
        "soon",
        math.nan,
        math.inf,
        True,
        (None, 5),
        timedelta(seconds=-1),
    ],
    ids=repr,
)
def test_limits_that_are_none(app: App, timeout: Any):
    with declined(InvalidOption, "timeout cannot be"):
        app.task(timeout=timeout)(plain)
    with declined(InvalidOption, "timeout cannot be"):
        App(MEMORY, timeout=timeout)


def test_an_option_that_a_task_does_not_have(app: App):
    with declined(InvalidOption, "'prioritty'", "Did you mean 'priority'?"):
        app.task(prioritty=9)
    with declined(InvalidOption, "'delay'"):  # that of a call
        app.task(delay=5)


BAD_RETRIES: dict[str, Callable[[], Any]] = {
    "-1": lambda: Retry(-1),
    "True": lambda: Retry(True),
    "1.5": lambda: Retry(1.5),
    "text": lambda: Retry("5"),
    "more than the bound": lambda: Retry(10_001),
    "base of x": lambda: Retry(5, base="x"),
    "base below zero": lambda: Retry(5, base=-1),
    "factor below one": lambda: Retry(5, factor=0.5),
    "factor of NaN": lambda: Retry(5, factor=math.nan),
    "max_delay of NaN": lambda: Retry(5, max_delay=math.nan),
    "delays that are one": lambda: Retry(5, delays=5),
    "delays of text": lambda: Retry(5, delays="55"),
    "delays below zero": lambda: Retry(5, delays=(1, -1)),
    "jitter of text": lambda: Retry(5, jitter="no"),
    "on, a class of another kind": lambda: Retry(5, on=int),
    "on, a name": lambda: Retry(5, on=("ConnectionError",)),
    "never, an instance": lambda: Retry(5, never=(ValueError("x"),)),
    "after, below zero": lambda: Retry.after(-1),
}


@pytest.mark.parametrize("what", BAD_RETRIES)
def test_a_retry_policy_that_is_none(what: str):
    with declined(InvalidOption, "retry", "cannot be"):
        BAD_RETRIES[what]()


@pytest.mark.parametrize(
    ("errors", "cure"),
    [
        (404, "Give a dict"),
        ({404: "die"}, "'dead', 'retry', Retry"),
        ({"transiend": "dead"}, "Did you mean 'transient'?"),
        ({200: "dead"}, "300 to 599"),
        ({404: Retry(3, on=OSError)}, "without `on`"),
    ],
    ids=repr,
)
def test_a_rule_about_errors_that_is_none(app: App, errors: Any, cure: str):
    with declined(InvalidOption, "errors: cannot take", cure):
        app.task(errors=errors)(plain)
    assert not app.registry.handlers
    with declined(InvalidOption, "errors: cannot take", cure):
        App(MEMORY, errors=errors)
    with declined(InvalidOption, "no option 'errors'"):
        app.task(plain).options(errors={})  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("retry", [-1, True, "5", None, 1.5], ids=repr)
def test_a_number_of_retries_that_is_none(app: App, retry: Any):
    with declined(InvalidOption, "retry"):
        app.task(retry=retry)(plain)
    with declined(InvalidOption, "retry"):
        App(MEMORY, retry=retry)


@pytest.mark.parametrize("retention", [-1, True, 1.5, "soon", None], ids=repr)
def test_a_retention_that_is_none(app: App, retention: Any):
    with declined(InvalidOption, "retention cannot be"):
        app.task(retention=retention)(plain)
    with declined(InvalidOption, "retention cannot be"):
        app.queue("mail", retention=retention)


@pytest.mark.parametrize("count", [-1, True, 1.5, "5"], ids=repr)
def test_a_count_that_is_none(count: Any):
    with declined(InvalidOption, f"Keep cannot take {count!r}", "Keep(100)"):
        Keep(count)


def test_a_retention_that_is_a_bare_number(app: App):
    count: Any = 100
    words = ("retention cannot be the number 100", "Keep(100)", '"100s"')
    with declined(InvalidOption, *words):
        app.task(retention=count)
    with declined(InvalidOption, *words):
        app.queue("mail", retention=count)


@pytest.mark.parametrize("url", [5, b"sqlite:///x.db", Path("jobs.db")], ids=repr)
def test_an_app_on_what_is_no_text(url: Any):
    with declined(InvalidURL, "cannot be the URL of a store", "sqlite:///jobs.db"):
        App(url)


# --- Celery's names


@pytest.mark.parametrize("name", ["delay", "apply_async"])
def test_methods_of_celery(app: App, name: str):
    task = app.task(plain)
    line = "Write await plain.enqueue(...), or plain.enqueue_sync(...)"
    for each in (task, task.options(delay=5)):
        with declined(UnknownAttribute, f"a task has no {name}()", line):
            getattr(each, name)
        assert not hasattr(each, name)


def test_other_attributes_are_missing_as_usual(app: App):
    with pytest.raises(AttributeError, match="'delat'") as caught:
        getattr(app.task(plain), "delat")  # noqa: B009
    assert type(caught.value) is AttributeError


@pytest.mark.parametrize("ttl", [-1, "soon", math.nan, None], ids=repr)
def test_a_time_to_live_that_is_none(app: App, ttl: Any):
    with declined(InvalidOption, "result_ttl cannot be"):
        app.task(result_ttl=ttl)(plain)


# --- settings


@pytest.mark.proves("M16")
def test_a_setting_that_does_not_exist():
    with declined(InvalidOption, "wroker", "Did you mean 'worker'?"):
        App(MEMORY, settings={"wroker": {}})
    with declined(InvalidOption, "worker.concurency", "Did you mean 'concurrency'?"):
        App(MEMORY, settings={"worker": {"concurency": 5}})


@pytest.mark.proves("M16")
@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("worker", "concurrency", 0),
        ("worker", "concurrency", 10_001),
        ("worker", "concurrency", "many"),
        ("worker", "concurrency", 1.5),
        ("worker", "prefetch", -1),
        ("worker", "heartbeat_seconds", 20),  # over a third of the lease
        ("worker", "heartbeat_seconds", 0),
        ("worker", "grace_seconds", -1),
        ("worker", "poll_seconds", math.nan),
        ("worker", "poll_seconds", math.inf),
        ("payload", "bytes_max", -1),
        ("retention", "result_seconds", "an hour"),
        ("log", "level", "LOUD"),
        ("log", "format", "xml"),
    ],
)
def test_a_setting_out_of_range(group: str, name: str, value: Any):
    with declined(InvalidOption, f"{name}"):
        App(MEMORY, settings={group: {name: value}})


@pytest.mark.parametrize(
    "settings", [[1], 5, {"worker": 5}, {"worker": None}], ids=repr
)
def test_settings_of_another_shape(settings: Any):
    with declined(InvalidOption, "setting"):
        App(MEMORY, settings=settings)


@pytest.mark.proves("M16")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, ["cannot be read"]),
        (b"[worker", ["cannot be read"]),
        (b"\xff\xfe", ["cannot be read"]),
        (b"[wroker]", ["Did you mean 'worker'?"]),
        (b"[worker]\nconcurency = 5", ["Did you mean 'concurrency'?"]),
        (
            b"[worker]\nconcurrency = 'many'",
            ["setting worker.concurrency: it must be int, not str"],
        ),
        (b"worker = 5", ["setting worker"]),
    ],
    ids=repr,
)
def test_a_bad_settings_file(tmp_path: Path, text: bytes | None, words: list[str]):
    path = tmp_path / "durio.toml"
    if text is not None:
        path.write_bytes(text)
    with declined(InvalidOption, *words):
        App(MEMORY, settings=path)
    with declined(InvalidOption, *words):
        App(MEMORY, settings=str(path))


@pytest.mark.proves("M15", "M16")
@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("DURIO_WORKER__CONCURRENCY", "many", ["worker.concurrency"]),
        ("DURIO_WORKER__CONCURRENCY", "0", ["worker.concurrency"]),
        ("DURIO_WORKER__GRACE_SECONDS", "", ["worker.grace_seconds"]),
        ("DURIO_WORKER__POLL_SECONDS", "nan", ["poll_seconds"]),
        ("DURIO_WORKER__CONCURENCY", "5", ["Did you mean 'concurrency'?"]),
        ("DURIO_WROKER__CONCURRENCY", "5", ["Did you mean 'worker'?"]),
        ("DURIO_LOG__FORMAT", "xml", ["log.format", "DURIO_LOG__FORMAT"]),
    ],
)
def test_a_bad_environment_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: list[str]
):
    monkeypatch.setenv(variable, value)
    with declined(InvalidOption, *words):
        App(MEMORY)


def test_settings_in_code_do_not_read_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DURIO_WORKER__CONCURRENCY", "many")
    assert App(MEMORY, settings=Settings()).settings.worker.concurrency == 10


# --- child processes


@pytest.mark.parametrize("process", ["yes", 1, None, 0.5], ids=repr)
def test_a_process_that_is_neither_true_nor_false(app: App, process: Any):
    with declined(InvalidOption, f"process cannot be {process!r}", "Give True"):
        app.task(process=process)(plain)


@pytest.mark.parametrize("kind", ["nested", "lambda"])
def test_a_function_that_no_child_process_can_find(app: App, kind: str):
    """Certain only when a worker starts: a command line may name the App."""

    def nested() -> None: ...

    app.task(name="work", process=True)(nested if kind == "nested" else lambda: None)
    with declined(UsageError, "shop.work has process=True", "durio worker module:app"):
        asyncio.run(made(app))
    app.origin = "shop:app"
    asyncio.run(made(app))


async def made(app: App) -> None:
    async with app:
        await make_worker(app)


@pytest.mark.parametrize("file", [None, "<stdin>"])
def test_a_task_that_was_typed_in(
    app: App, monkeypatch: pytest.MonkeyPatch, file: str | None
):
    monkeypatch.setattr(plain, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", file, raising=False)
    app.task(process=True)(plain)
    with declined(UsageError, "defined interactively", "Write the App to a file"):
        asyncio.run(made(app))
