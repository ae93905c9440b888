"""`task.s`, `si`, `map`, `starmap`, `chunks` and `app.s`: what they make."""

from typing import Any

import pytest

from durio import App, Context
from durio.plans import Plan, Signature, chain, group
from tests.unit.app.app_harness import MEMORY, virtual

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


@virtual(name="shop")
async def test_signatures_by_name_are_rows(app: App):
    task = app.task(name="add")(add.__wrapped__)
    jobs = await app.named("add").enqueue_many([app.s("add", 1, 2)])
    assert (await jobs[0].details()).kwargs == {"a": 1, "b": 2}
    assert (await task.enqueue_many([task.s(1, 2)]))[0].created
