"""What a worker publishes when it registers."""

from typing import Any

import msgspec

from durio import App
from durio.client.task_by_name import published_tasks
from durio.ports.commit import ROWS_MAX
from durio.ports.records import RECORD_BYTES_MAX
from durio.stores.commit_rules import check_puts
from durio.worker.register import task_puts
from durio.worker.unrunnable import published_digests
from tests.unit.app.app_harness import virtual, working
from tests.unit.app.test_ends import Listener

DESCRIBED: dict[str, Any] = {"queue": "default", "priority": 5, "parameters": []}


def test_batches_fit_a_transaction() -> None:
    tasks = {f"shop.t{n}": DESCRIBED for n in range(1200)}
    batches = task_puts("shop", tasks)
    assert [len(batch) for batch in batches] == [ROWS_MAX, ROWS_MAX, 400]
    puts = [put for batch in batches for put in batch]
    assert puts == sorted(puts)
    assert {put.name for put in puts if put.kind == "task:shop"} == set(tasks)
    assert len({put.name for put in puts if put.kind == "signature:shop"}) == 1200


def test_without_tasks_there_is_one_empty_batch() -> None:
    assert task_puts("shop", {}) == [[]]


@virtual
async def test_many_tasks_are_published(app: App) -> None:
    """More than one transaction takes."""
    for n in range(1100):

        @app.task(name=f"t{n}")
        async def task() -> None: ...

    async with working(app) as worker:
        await worker.started.wait()
        store = await app.store()
        published = await published_tasks(store, app.name)
        assert published == app.registry.published()
        assert len(published) == 1100
        assert len(await published_digests(store, f"{app.name}.t1")) == 1
        worker.stop()


def test_a_description_over_the_bound_of_a_record_names_types_only() -> None:
    schema = {"type": "string", "enum": [f"choice {n}" for n in range(8000)]}
    parameter = {"name": "a", "kind": "positional", "required": True, "schema": schema}
    described = {**DESCRIBED, "parameters": [parameter]}
    ((body,),) = [
        [put.body for put in batch if put.kind == "task:shop"]
        for batch in task_puts("shop", {"shop.t": described})
    ]
    assert body is not None
    assert len(body) <= RECORD_BYTES_MAX
    published = msgspec.json.decode(body)
    assert published["parameters"] == [{**parameter, "schema": {"type": "string"}}]


@virtual
async def test_a_task_whose_name_is_too_long_runs_unpublished(app: App) -> None:
    """A function may have any name; the worker starts, and warns."""

    async def task() -> int:
        return 7

    task.__name__ = task.__qualname__ = "\u00e4" * 300
    long = app.task()(task)
    app.task(name="short")(never)
    listener = Listener(app)
    async with working(app) as worker:
        await worker.started.wait()
        store = await app.store()
        assert (await published_tasks(store, app.name) or {}).keys() == {"app.short"}
        assert len(await store.list_records(f"signature:{app.name}")) == 1
        assert await (await long.enqueue()).result(60) == 7
        worker.stop()
    warned = [fields for name, fields in listener.heard if name == "task.unpublished"]
    assert warned == [{"task": f"app.{task.__name__}"}]


async def never() -> None: ...


def test_a_task_is_published_with_its_signature_or_not_at_all() -> None:
    """The name of a signature is longer than that of its task."""
    for size in range(480, 520):
        (batch,) = task_puts("shop", {"t" * size: DESCRIBED})
        assert len(batch) in (0, 2)
        check_puts(batch)


@virtual
async def test_the_second_worker_of_a_day_writes_no_record(app: App) -> None:
    @app.task(name="t")
    async def task() -> None: ...

    async def versions() -> list[int]:
        store = await app.store()
        kinds = (f"task:{app.name}", f"signature:{app.name}")
        return [r.version for kind in kinds for r in await store.list_records(kind)]

    async with working(app) as worker:
        await worker.started.wait()
        first = await versions()
        worker.stop()
    async with working(app) as worker:
        await worker.started.wait()
        assert await versions() == first
        assert len(first) == 2
        worker.stop()
