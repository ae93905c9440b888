"""Lists of plans: dense times are divided, and a look is bounded."""

import msgspec
import pytest

from durio import App
from durio.client import plan_list
from durio.client.plan_list import PAGE_RECORDS, list_plans, page_of_plans
from durio.model.effects import Effects, Put
from durio.model.ids import id_text, uuid7
from durio.model.plan_record import PlanRecord, PlanState, plan_kind
from durio.ports.store import Store
from tests.unit.app.app_harness import virtual

CANCELLED = PlanState.CANCELLED


async def store_plans(store: Store, app: App, number: int, step_ms: int) -> list[str]:
    """Records of ended plans, the oldest first; the newest is of now."""
    now_ms = int(app.now() * 1000)
    times = [now_ms - (number - 1 - n) * step_ms for n in range(number)]
    names = [id_text(uuid7(at, 0, n)) for n, at in enumerate(times)]
    body = msgspec.json.encode(
        PlanRecord(state=CANCELLED, shape="shop.a", nodes=1, created_at=0.0)
    )
    for at in range(0, number, 500):
        puts = [Put(plan_kind(app.name), name, body) for name in names[at : at + 500]]
        await store.commit(Effects(puts=puts))
    return names


@pytest.mark.parametrize("step_ms", [0, 1, 7, 60_000])
def test_pages_have_every_plan_once(step_ms: int) -> None:
    @virtual(name="shop")
    async def read(app: App) -> None:
        store = await app.store()
        names = await store_plans(store, app, 3 * PAGE_RECORDS + 7, step_ms)
        found: list[str] = []
        page = await page_of_plans(store, app.name, limit=150, now=app.now())
        while page.before is not None:
            found += [plan.id for plan in page.plans]
            page = await page_of_plans(
                store, app.name, limit=150, now=app.now(), before=page.before
            )
        found += [plan.id for plan in page.plans]
        assert found == names[::-1]
        listed = await list_plans(store, app.name, limit=1000, now=app.now())
        assert [plan.id for plan in listed] == found

    read()


@virtual(name="shop")
async def test_the_first_page_of_many_plans_reads_few_records(app: App) -> None:
    """Plans of one busy minute: what is read does not grow with their number."""
    store = await app.store()
    await store_plans(store, app, 5000, step_ms=1)
    reads: list[int] = []
    original = store.list_records

    async def counted(*args: object, **options: object) -> object:
        found = await original(*args, **options)  # type: ignore[arg-type]
        reads.append(len(found))
        return found

    store.list_records = counted  # type: ignore[method-assign]
    page = await page_of_plans(store, app.name, limit=50, now=app.now())
    assert len(page.plans) == 50
    assert sum(reads) <= 5 * PAGE_RECORDS


@virtual(name="shop")
async def test_a_look_for_a_rare_state_ends(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_list, "LOOKED_AT_MAX", 300)
    store = await app.store()
    names = await store_plans(store, app, 1000, step_ms=100)
    page = await page_of_plans(
        store, app.name, states=[PlanState.FAILED], limit=50, now=app.now()
    )
    assert (page.plans, page.is_partial) == ([], True)
    assert page.before in names
    looks = 1
    while page.before is not None:
        page = await page_of_plans(
            store,
            app.name,
            states=[PlanState.FAILED],
            limit=50,
            now=app.now(),
            before=page.before,
        )
        looks += 1
    assert 2 <= looks <= 5
