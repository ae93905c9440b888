"""`durio plans`: lists, trees, cancels and retries; and jobs of plans in other commands."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from durio import App
from durio.client.plan_list import list_plans, newest_first
from durio.client.plan_rows import shape_text
from durio.model.effects import Effects, Put
from durio.model.ids import id_bytes, id_text, uuid7
from durio.model.plan_names import node_id
from durio.model.plan_record import PlanRecord, PlanState, dump_record, plan_kind
from durio.model.plan_shape import shape_of
from durio.plans import Signature, chain, group
from durio.ports.records import BEYOND_ALL_NAMES
from tests.unit.app.app_harness import virtual
from tests.unit.cli.terminal import Terminal

pytestmark = pytest.mark.slow  # real processes, servers or seconds

PLACE = ("--app", "plan_shop")
SHOP = """
from pathlib import Path
from durio import App, Context, Permanent, Retry, chain, group

app = App("sqlite:///jobs.db", name="shop")

@app.task
async def add(a: int, b: int = 1) -> int:
    return a + b

@app.task(retry=Retry(0))
async def check(x: int) -> int:
    if not Path("repaired").exists():
        raise Permanent(f"no {x}")
    return x

@app.task
async def put(ctx: Context, x: int) -> int:
    return ctx.replace(check.s(x) | add.s())

@app.task(queue="other")
async def nothing() -> None: ...

@app.task
async def total(values: list[int]) -> int:
    return sum(values)
"""


@pytest.fixture
def shop(terminal: Terminal) -> Terminal:
    terminal.write("plan_shop.py", SHOP)
    return terminal


def in_shop(story: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """Run a story with the names of the shop's module, while its App is open."""
    space: dict[str, Any] = {}
    exec(SHOP, space)  # noqa: S102 - the same code as the file

    async def main() -> Any:
        async with space["app"]:
            return await story(space)

    return asyncio.run(main())


def enqueue(plan: str) -> str:
    """Enqueue a plan of the shop, given as code; return its id."""

    async def story(space: Any) -> str:
        return (await eval(plan, space).enqueue()).id  # noqa: S307

    return in_shop(story)


def work(plan_id: str) -> PlanState:
    """Let a worker run until the plan has ended."""

    async def story(space: Any) -> PlanState:
        app: App = space["app"]
        plan = await app.plan(plan_id)
        async with app.worker():
            while not (await plan.status()).ready:
                await app.clock.sleep(0.02)
        return (await plan.status()).state

    return in_shop(story)


CHAIN = "add.s(1) | check.s() | add.s()"


def node(plan_id: str, number: int) -> str:
    return id_text(node_id(id_bytes(plan_id), number))


def failed(plan: str = CHAIN) -> str:
    plan_id = enqueue(plan)
    assert work(plan_id) is PlanState.FAILED
    return plan_id


def test_plans_are_listed_newest_first(shop: Terminal) -> None:
    first = failed()
    second = enqueue("group(add.map(range(30)) | total.s(), add.s(5))")
    assert [row["id"] for row in listed(shop)] == [second, first]
    assert [row["id"] for row in listed(shop, "--state", "failed")] == [first]
    row = listed(shop, "--state", "failed")[0]
    assert (row["plan"], row["jobs"]) == ("add | check | add", 3)
    assert (row["error_type"], row["error"]) == ("Permanent", "no 2")
    assert row["failed_node"] == node(first, 1)
    row = listed(shop, "--state", "running")[0]
    assert row["plan"] == "group(group(30 x add) | total, add)"
    page = shop.json("plans", "ls", *PLACE, "--limit", "1")
    assert page["cursor"] == second
    page = shop.json("plans", "ls", *PLACE, "--cursor", page["cursor"])
    assert ([row["id"] for row in page["plans"]], page["cursor"]) == ([first], None)
    text = shop.ok("plans", "ls", *PLACE, "--limit", "1")
    assert f"more: --cursor {second}" in text
    assert shop.ok("plans", "ls", *PLACE, "--state", "done") == (
        "no plans with state done\n"
    )
    assert shop.json("plans", "ls", "--store", "sqlite:///jobs.db", "--all-apps")[
        "plans"
    ]


def listed(shop: Terminal, *args: str) -> list[dict[str, Any]]:
    return shop.json("plans", "ls", *PLACE, *args)["plans"]


@pytest.mark.proves("M78")
def test_a_plan_is_shown_as_a_tree(shop: Terminal) -> None:
    plan_id = failed("add.s(1) | group(check.s(), add.s() | add.s()) | total.s()")
    text = shop.ok("plans", "show", plan_id[:13], *PLACE)
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0] == f"plan {plan_id}  failed"
    assert "  jobs        5 jobs: 3 done, 1 dead, 1 cancelled" in lines
    tree = lines[lines.index("") + 1 :]
    assert tree[:7] == [
        "chain of 3 members",
        f"├─ done       shop.add  {node(plan_id, 0)}",
        "├─ group of 2 members",
        f"│  ├─ dead       shop.check  {node(plan_id, 1)}",
        "│  └─ chain of 2 members",
        f"│     ├─ done       shop.add  {node(plan_id, 2)}",
        f"│     └─ done       shop.add  {node(plan_id, 3)}",
    ]
    assert f"failed: job {node(plan_id, 1)}" in lines
    assert lines[-1] == f"Then resume it: durio plans retry {plan_id} {' '.join(PLACE)}"
    fields = shop.json("plans", "show", plan_id, *PLACE)
    assert fields["tree"]["members"][0]["id"] == node(plan_id, 0)
    assert (fields["namespace"], fields["nodes"]) == ("shop", 5)


def test_a_large_group_is_shown_by_its_counts(shop: Terminal) -> None:
    plan_id = enqueue("add.map(range(30)) | total.s()")
    text = shop.ok("plans", "show", plan_id, *PLACE)
    assert "├─ group of 30 members: 30 jobs: 30 ready\n" in text
    alone = shop.ok("plans", "show", enqueue("add.map(range(30))"), *PLACE)
    head = "group of 30 members: 31 jobs (one joins the results): 1 blocked, 30 ready"
    assert f"{head}\n" in alone
    assert shop.ok("plans", "cancel", plan_id, *PLACE) == (
        f"{plan_id}  running -> cancelled\n"
    )
    text = shop.ok("plans", "show", plan_id, *PLACE)
    assert f"Resume it: durio plans retry {plan_id}" in text
    rows = shop.json("plans", "cancel", plan_id, *PLACE, code=1)["plans"]
    assert rows[0]["error"]["code"] == "wrong_state"


@pytest.mark.proves("M78")
def test_plans_are_cancelled_and_retried(shop: Terminal) -> None:
    plan_id = failed()
    rows = shop.json("plans", "cancel", plan_id, *PLACE, code=1)["plans"]
    assert (rows[0]["ok"], rows[0]["error"]["code"]) == (False, "wrong_state")
    (shop.folder / "repaired").touch()
    assert shop.ok("plans", "retry", plan_id, *PLACE, "--by", "ann") == (
        f"{plan_id}  failed -> running  (2 jobs run again)\n"
    )
    assert work(plan_id) is PlanState.DONE
    assert shop.json("plans", "show", plan_id, *PLACE)["state"] == "done"
    answer = shop.run("plans", "retry", plan_id, *PLACE)
    assert (answer.exit_code, "is done and cannot be retried" in answer.stdout) == (
        1,
        True,
    )
    line = shop.json("audit", "ls", *PLACE)["audit"][0]
    assert (line["who"], line["target"]) == ("ann via cli", f"plan {plan_id}")


def test_a_cancel_ends_the_members_of_a_failed_plan(shop: Terminal) -> None:
    plan_id = failed("group(check.s(1), add.options(delay='1h').s(2))")
    text = shop.ok("plans", "cancel", plan_id, *PLACE)
    assert text == f"{plan_id}  failed -> failed\n"
    assert shop.json("jobs", "show", node(plan_id, 1), *PLACE)["state"] == "cancelled"
    answer = shop.json("plans", "cancel", plan_id, *PLACE, code=1)["plans"][0]
    assert answer["error"]["code"] == "wrong_state"  # nothing is left to cancel


def test_all_ids_are_read_before_the_first_plan_is_changed(shop: Terminal) -> None:
    plan_id, other = enqueue(CHAIN), enqueue(CHAIN)
    wrong = {"nope": "invalid_plan_id", plan_id[:8]: "ambiguous_plan_id"}
    for text, code in wrong.items():
        error = shop.error("plans", "cancel", plan_id, text, *PLACE, code=2)
        assert error["code"] == code
    assert {row["state"] for row in listed(shop)} == {"running"}
    given = (plan_id, "ffffffff", other, other.upper())
    rows = shop.json("plans", "cancel", *given, *PLACE, code=1)["plans"]
    assert [row["id"] for row in rows] == [plan_id, "ffffffff", other]
    assert [row["state"] for row in rows] == ["cancelled", None, "cancelled"]
    assert rows[1]["error"]["code"] == "plan_not_found"


def test_an_id_that_is_no_plan(shop: Terminal) -> None:
    plan_id = enqueue(CHAIN)
    other = enqueue(CHAIN)
    error = shop.error("plans", "show", node(plan_id, 1), *PLACE, code=1)
    assert (error["code"], plan_id in error["cure"]) == ("plan_not_found", True)
    job = shop.json("enqueue", "add", "[1]", *PLACE)["id"]
    assert (
        "it is of no plan" in shop.error("plans", "show", job, *PLACE, code=1)["cure"]
    )
    error = shop.error("plans", "show", "ffffffff", *PLACE, code=1)
    assert "durio plans ls" in error["cure"]
    error = shop.error("plans", "show", plan_id[:8], *PLACE, code=2)
    assert error["code"] == "ambiguous_plan_id"
    assert other in error["cure"]
    error = shop.error("plans", "show", "xyz", *PLACE, code=2)
    assert (error["code"], error["what"]) == (
        "invalid_plan_id",
        "'xyz' is not a plan id",
    )
    for text in ("0198c2f4", "xyz"):
        error = shop.error("plans", "ls", "--cursor", text, *PLACE, code=2)
        assert error["what"] == f"{text!r} is not a cursor"
    error = shop.error(
        "plans", "show", plan_id, "--store", "sqlite:///jobs.db", "--name", "b", code=1
    )
    assert error["what"] == f"there is no plan {plan_id} in App b"


def test_a_plan_in_the_place_of_a_job_is_retried_with_its_plan(shop: Terminal) -> None:
    plan_id = failed("put.s(1) | add.s()")
    assert [row["id"] for row in listed(shop, "--state", "failed")] == [plan_id]
    inner, _ = listed(shop, "--state", "failed", "--all")
    assert inner["replaces"] == {"job": node(plan_id, 0), "plan": plan_id}
    place = f"in the place of job {node(plan_id, 0)} of plan {plan_id}\n"
    assert place in shop.ok("plans", "show", inner["id"], *PLACE)
    (shop.folder / "repaired").touch()
    failures = [row["id"] for row in listed(shop, "--state", "failed")]
    shop.ok("plans", "retry", *failures, *PLACE)
    assert work(plan_id) is PlanState.DONE


# --- jobs of plans in other commands


def test_jobs_show_knows_plans(shop: Terminal) -> None:
    plan_id = enqueue(CHAIN)
    error = shop.error("jobs", "show", plan_id, *PLACE, code=1)
    assert error["code"] == "job_not_found"
    assert f"durio plans show {plan_id} --" in error["cure"]
    fields = shop.json("jobs", "show", node(plan_id, 1), *PLACE)
    assert (fields["plan"], fields["options"]) == (plan_id, {})
    text = shop.ok("jobs", "show", node(plan_id, 1), *PLACE)
    assert f"  plan        {plan_id}\n" in text


@pytest.mark.proves("M78")
@pytest.mark.parametrize("chosen", ["id", "filter", "args"])
def test_a_retried_job_resumes_its_plan(shop: Terminal, chosen: str) -> None:
    plan_id = failed("check.s(7) | add.s()")
    (shop.folder / "repaired").touch()
    if chosen == "filter":
        answer = shop.json("dead", "retry", "--task", "check", *PLACE, "--yes")
        assert (answer["done"], answer["alone"]) == (1, 0)
    else:
        command = ["jobs", "retry"] if chosen == "id" else ["dead", "retry", "--args"]
        given = [] if chosen == "id" else ['{"x": 7}']
        text = shop.ok(*command, *given, node(plan_id, 0), *PLACE)
        assert text == f"{node(plan_id, 0)}  dead -> ready  (plan {plan_id} goes on)\n"
    assert work(plan_id) is PlanState.DONE
    assert shop.json("plans", "show", plan_id, *PLACE)["state"] == "done"
    assert shop.json("jobs", "show", node(plan_id, 1), *PLACE)["result"] == 8


def test_a_job_whose_plan_is_gone_runs_alone(shop: Terminal) -> None:
    plan_id = failed("check.s(7) | add.s()")

    async def delete(space: Any) -> None:
        gone = Put(plan_kind("shop"), plan_id, None)
        await (await space["app"].store()).commit(Effects(puts=[gone]))

    in_shop(delete)
    answer = shop.json("jobs", "retry", node(plan_id, 0), *PLACE)["jobs"][0]
    assert answer["plan"] == {
        "id": plan_id,
        "state": None,
        "alone": True,
        "text": f"runs alone: plan {plan_id} is gone",
    }
    shop.ok("worker", "plan_shop:app", "--burst", "--log-level", "ERROR")
    text = shop.ok("dead", "retry", "--all", "--yes", *PLACE)
    assert text == "1 dead letter run again; 1 alone: no plan goes on with it\n"


def test_a_queue_is_moved_with_the_waiting_jobs_of_plans(shop: Terminal) -> None:
    (shop.folder / "repaired").touch()
    plan_id = enqueue("check.s(7) | add.s() | add.s()")
    answer = shop.json("queues", "move", "default", "other", "--yes", *PLACE)
    assert (answer["counted"], answer["done"]) == (3, 3)
    queues = {
        shop.json("jobs", "show", node(plan_id, n), *PLACE)["queue"] for n in range(3)
    }
    assert queues == {"other"}
    shop.ok("worker", *PLACE, "-q", "other", "--burst", "--log-level", "ERROR")
    assert shop.json("jobs", "show", node(plan_id, 2), *PLACE)["result"] == 9
    assert shop.json("plans", "show", plan_id, *PLACE)["state"] == "done"


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_an_imported_job_is_of_no_plan(shop: Terminal, place: str) -> None:
    """Its plan does not wait for it, and its own end changes nothing there."""
    plan_id = failed("add.s(6) | check.s() | add.s()")
    job = node(plan_id, 1)
    shop.ok("dead", "export", "-o", "dead.jsonl", *PLACE)
    store = PLACE
    if place == "here":
        shop.ok("dead", "discard", "--all", "--yes", *PLACE)
    else:
        store = ("--app", "plan_shop", "--store", "sqlite:///other.db")
        shop.ok("migrate", *store)
    assert shop.json("dead", "import", "dead.jsonl", *store)["imported"] == 1
    assert shop.json("jobs", "show", job, *store)["options"] == {}
    if place == "here":
        answer = shop.run("plans", "retry", plan_id, *PLACE)
        assert "which failed, was deleted" in answer.stdout
    (shop.folder / "repaired").touch()
    answer = shop.json("dead", "retry", job, "--args", '{"x": 7}', *store)["jobs"][0]
    assert (answer["state"], answer["plan"]) == ("ready", None)
    shop.ok("worker", *store, "--burst", "--log-level", "ERROR")
    assert shop.json("jobs", "show", job, *store)["result"] == 7
    if place == "here":
        assert shop.json("plans", "show", plan_id, *PLACE)["state"] == "failed"
        following = shop.json("jobs", "show", node(plan_id, 2), *PLACE)
        assert following["state"] == "cancelled"


def test_a_dead_chunk_is_imported(shop: Terminal) -> None:
    plan_id = failed("check.chunks([(1,), (2,)], 2)")
    shop.ok("dead", "export", "-o", "dead.jsonl", *PLACE)
    shop.ok("dead", "discard", "--all", "--yes", *PLACE)
    assert shop.json("dead", "import", "dead.jsonl", *PLACE)["imported"] == 1
    (shop.folder / "repaired").touch()
    shop.ok("dead", "retry", node(plan_id, 0), *PLACE)
    shop.ok("worker", *PLACE, "--burst", "--log-level", "ERROR")
    assert shop.json("jobs", "show", node(plan_id, 0), *PLACE)["result"] == [1, 2]


# --- lists of many plans


@virtual()
async def test_many_plans_are_read_in_spans_of_time(app: App) -> None:
    store, now = await app.store(), app.now()
    ages = [0.0, 1.0, 9.0, 11.0, 39.0, 41.0, 5000.0, 86400.0, 30 * 86400.0]
    ids = [
        id_text(uuid7(int((now - age) * 1000), n, 0))
        for age in ages
        for n in range(60, 0, -1)
    ]
    states = [PlanState.CANCELLED, PlanState.FAILED]
    puts = [
        Put(
            plan_kind("app"),
            plan_id,
            dump_record(PlanRecord(state=states[n % 2], nodes=1, created_at=0.0)),
        )
        for n, plan_id in enumerate(ids)
    ]
    for at in range(0, len(puts), 500):
        await store.commit(Effects(puts=puts[at : at + 500]))
    damaged = id_text(
        uuid7(int((now + 60) * 1000), 0, 0)
    )  # of a host with another clock
    await store.commit(Effects(puts=[Put(plan_kind("app"), damaged, b"{")]))

    async def found(limit: int, before: str = BEYOND_ALL_NAMES, **which: Any) -> Any:
        plans = await list_plans(
            store, "app", limit=limit, now=now, before=before, **which
        )
        return [plan.id for plan in plans]

    assert await found(1000) == [damaged, *ids]
    assert await found(7) == [damaged, *ids[:6]]
    assert await found(1000, before=ids[99]) == ids[100:]
    assert await found(50, states=[PlanState.FAILED]) == ids[1:100:2]
    spans = [
        s async for s in newest_first(store, plan_kind("b"), BEYOND_ALL_NAMES, now)
    ]
    assert len(spans) < 20
    assert json.dumps(spans) == json.dumps([[]] * len(spans))


def test_a_deep_plan_is_listed_by_its_outer_levels() -> None:
    task = Signature[..., Any]("shop.add", (1,), {})
    deep: Any = chain(group(task, task), task)
    assert shape_text(shape_of(deep)) == "group(2 x add) | add"
    for _ in range(90):
        deep = chain(group(deep, task), task)
    text = shape_text(shape_of(deep))
    assert text == "group(group(..., add) | add, add) | add"
