"""What a store promises about fairness: jobs take their place in a queue when they pass."""

from durio.model.gate import START, GateSpec
from durio.model.outcome import OutcomeKind
from tests.conformance.promises import Chapter
from tests.conformance.scene import Scene, outcome

chapter = Chapter("fairness")


def fair(tenant: str, width: int) -> tuple[GateSpec, ...]:
    """Return the gate of a tenant: so many jobs in the queue, given back by the claim."""
    return (GateSpec(f"3f:{tenant}", cap=width, held_until=START),)


def limited(tenant: str, most: int) -> tuple[GateSpec, ...]:
    """Return the gate of a tenant with so many running at a time."""
    return (GateSpec(f"1k:{tenant}", cap=most),)


async def fill(
    scene: Scene, *tenants: tuple[str, int, tuple[GateSpec, ...]]
) -> dict[bytes, str]:
    """Enqueue so many jobs of each tenant, one tenant after the other."""
    owner: dict[bytes, str] = {}
    for tenant, count, gates in tenants:
        owner |= dict.fromkeys(await scene.add_many(count, gates=gates), tenant)
    return owner


async def order_of(
    scene: Scene, owner: dict[bytes, str], starts: int, slots: int = 1
) -> str:
    """Run jobs in these slots; return the tenants in the order of their starts."""
    worker = await scene.worker()
    order = ""
    claims = (await scene.exchange(worker, want=slots)).claims
    while claims and len(order) < starts:
        order += "".join(owner[claim.id] for claim in claims)
        ends = [outcome(claim) for claim in claims]
        claims = (await scene.exchange(worker, ends, slots)).claims
    return order


@chapter.promise("M74", "L15")
async def small_tenants_run_between_the_jobs_of_a_large_one(scene: Scene) -> None:
    """A has 300 jobs before B and C come with 10."""
    owner = await fill(
        scene,
        ("A", 300, fair("A", 2)),
        ("B", 10, fair("B", 2)),
        ("C", 10, fair("C", 2)),
    )
    order = await order_of(scene, owner, 40)
    assert order[:30].count("B") >= 9
    assert order[:30].count("C") >= 9
    assert order[33:] == "A" * 7


@chapter.promise("M74")
async def the_next_start_of_a_tenant_is_bounded(scene: Scene) -> None:
    """By the width of the others, whatever they have enqueued."""
    width = 16
    owner = await fill(scene, ("A", 500, fair("A", width)))
    assert await order_of(scene, owner, 100, slots=4) == "A" * 100
    owner |= await fill(scene, ("B", 20, fair("B", width)))
    order = await order_of(scene, owner, 200, slots=4)
    starts = [n for n, tenant in enumerate(order, 1) if tenant == "B"]
    assert len(starts) == 20
    assert all(start <= 20 * k for k, start in enumerate(starts, 1))
    assert starts[-1] <= 2 * 20 + width + 4


@chapter.promise("M74")
async def limits_alone_interleave_too(scene: Scene) -> None:
    """A job that gets a free place is queued behind the others."""
    owner = await fill(
        scene,
        ("A", 50, limited("A", 2)),
        ("B", 5, limited("B", 2)),
        ("C", 5, limited("C", 2)),
    )
    order = await order_of(scene, owner, 20)
    for tenant in "BC":
        assert order[:20].count(tenant) == 5


@chapter.promise()
async def urgent_jobs_still_come_first(scene: Scene) -> None:
    """Fairness holds inside one priority."""
    owner = await fill(scene, ("A", 20, fair("A", 4)), ("B", 4, fair("B", 4)))
    urgent = await scene.add_many(3, gates=fair("A", 4), priority=9)
    owner |= dict.fromkeys(urgent, "U")
    order = await order_of(scene, owner, 30)
    assert len(order) == 27
    assert order.index("U") <= 4
    assert order.rindex("U") <= 6


@chapter.promise()
async def a_job_without_gates_waits_its_turn(scene: Scene) -> None:
    """It is neither held up by gates nor put before jobs that passed earlier."""
    owner = await fill(scene, ("A", 10, fair("A", 2)))
    owner |= dict.fromkeys(await scene.add_many(2), "P")
    order = await order_of(scene, owner, 12)
    assert order == "AAPP" + "A" * 8


@chapter.promise()
async def a_released_job_starts_first(scene: Scene) -> None:
    """It has been claimed before and does not pass the gate again."""
    owner = await fill(scene, ("A", 6, fair("A", 2)), ("B", 6, fair("B", 2)))
    worker = await scene.worker()
    (claim,) = await scene.claim(worker)
    release = outcome(claim, OutcomeKind.RELEASE)
    (again,) = (await scene.exchange(worker, [release], 1)).claims
    assert again.id == claim.id
    await scene.finish(worker, again)
    assert (await order_of(scene, owner, 20)).count("A") == 5
