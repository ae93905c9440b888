"""`task.s`, `si`, `map`, `starmap`, `chunks` and `app.s`: what they make."""

import json
from typing import Any

import pytest

from durio import App, Context
from durio.plans import Plan, Signature, chain, group
from tests.unit.app.app_harness import MEMORY, records, virtual, working

app = App(MEMORY, name="shop")


@app.task(aliases=("scale",))
async def resize(ctx: Context, path: str, width: int = 800) -> str:
    return f"{path}{width}{ctx.attempt}"


@app.task
def add(a: int, b: int) -> int:
    return a + b


@pytest.mark.proves("M151")
def test_a_signature_may_lack_its_first_argument():
    assert resize.s() == Signature("shop.resize", (), {})
    assert resize.s(width=5).kwargs == {"width": 5}
    assert add.s(5) == add.s(b=5)
    assert add.options(queue="low").s(5).options.queue == "low"


@pytest.mark.proves("M147", "L23")
def test_an_immutable_signature_has_all_its_arguments():
    signature: Any = add.si(1, b=2)
    assert signature == Signature("shop.add", (1, 2), {}, is_immutable=True)
    assert signature != add.s(1, 2)


@pytest.mark.proves("L21")
def test_map_and_starmap_are_groups():
    assert resize.map(["a", "b"]) == group(resize.si("a"), resize.si("b"))
    assert resize.starmap([("a", 1), ("b",)]) == group(
        resize.si("a", 1), resize.si("b")
    )
    assert add.options(priority=9).map([]) == group()


@pytest.mark.proves("L21")
def test_a_chunk_is_one_job_for_several_rows():
    plan = add.options(queue="low").chunks([(n, 1) for n in range(5)], 2)
    rows = [member.rows for member in plan.members if isinstance(member, Signature)]
    assert rows == [((0, 1), (1, 1)), ((2, 1), (3, 1)), ((4, 1),)]
    assert {member.is_immutable for member in plan.members} == {True}  # type: ignore[union-attr]
    assert plan.members[0].options.queue == "low"  # type: ignore[operator, union-attr]
    assert (add.s(1, 2) | plan).size == 4


def test_signatures_by_name():
    assert app.s("resize", "a") == resize.s("a")
    assert app.s("scale", "a") == resize.s("a")  # an alias
    assert app.si("shop.resize", "a") == resize.si("a")
    unknown = app.s("elsewhere", 1, 2, 3) | app.s("resize") | resize.s()
    assert unknown == chain(
        Signature("shop.elsewhere", (1, 2, 3), {}),
        Signature("shop.resize", (), {}),
        resize.s(),
    )
    assert app.named("resize").options(queue="low").s("a").options.queue == "low"


def test_plans_belong_to_their_app():
    plan = Plan.from_dict((add.s(1, 2) | add.s(3)).to_dict())
    assert plan.source is None
    source = (add.s(1, 2) | add.s(3)).source
    assert source is not None
    assert source.client is app


@pytest.mark.proves("M151")
@virtual(name="shop")
async def test_a_stored_plan_runs_in_the_app_that_it_is_read_with(app: App):
    task = app.task(name="add")(add.__wrapped__)
    plan = (task.s(2) | task.s(3)).on_error(task.si(1, 2)).options(queue="low")
    stored = json.loads(json.dumps(plan.to_dict()))
    again = Plan[int].from_dict(stored, app)
    assert again == plan
    async with working(app):
        assert await (await again.enqueue(1)).result(timeout=60) == 6
        job = await Signature[..., int].from_dict(task.s(1, 2).to_dict(), app).enqueue()
        assert await job.result(timeout=60) == 3


@pytest.mark.proves("L21")
@virtual(name="shop")
async def test_groups_of_no_items_give_an_empty_list(app: App):
    task = app.task(name="add")(add.__wrapped__)
    for plan in (task.options(queue="q").map([]), task.starmap([]), task.chunks([], 5)):
        handle = await plan.options(meta={"a": 1}).enqueue()
        async with working(app):
            assert await handle.result(timeout=60) == []
    none = [task.map([]) for _ in range(2)]
    async with working(app):
        for plan in (group(none), group(group(none)), group(none, cancel_rest=True)):
            handle = await plan.enqueue()
            assert await handle.result(timeout=60) == []


@virtual(name="shop")
async def test_signatures_by_name_are_rows(app: App):
    task = app.task(name="add")(add.__wrapped__)
    jobs = await app.named("add").enqueue_many([app.s("add", 1, 2)])
    assert (await jobs[0].details()).kwargs == {"a": 1, "b": 2}
    assert (await task.enqueue_many([task.s(1, 2)]))[0].created


@virtual
async def test_each_join_runs_where_the_members_of_its_group_run(app: App) -> None:
    """A worker that serves only the queue of the members must be able to end the group."""

    @app.task(name="high", queue="high")
    async def high() -> int:
        return 1

    @app.task(name="low", queue="low")
    async def low() -> int:
        return 1

    highs, lows = group(high.si(), high.si()), group(low.si(), low.si())
    await group(chain(highs, lows), chain(lows, highs)).enqueue()
    joins = [r.lane for r in await records(app) if r.task == "app.~join"]
    assert {*joins} == {"app:high", "app:low"}
