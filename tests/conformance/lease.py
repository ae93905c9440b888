"""What a store promises about leases: a lease that has ended never comes back."""

import math

from durio.model.errors import DurioError
from durio.model.job import CANCELLED, READY
from durio.model.outcome import OutcomeKind
from durio.ports.control import CancelJobs
from durio.ports.exchange import Rejected
from durio.ports.upkeep import ExpiredLeases, OneWorker
from durio.ports.worker_protocol import GATES_PROTOCOL
from tests.conformance.promises import Chapter
from tests.conformance.scene import LEASE_SECONDS, MANY, Scene, info, outcome
from tests.job_counts import count_jobs

chapter = Chapter("lease")
NEWER = GATES_PROTOCOL + 1  # than what the workers of this code know

HOUR = 3600.0


@chapter.promise()
async def a_workers_id_is_never_used_again(scene: Scene) -> None:
    """It is not used even after the worker has left."""
    first = await scene.worker()
    await scene.store.leave(first)
    second = await scene.worker()
    await scene.lose(second)
    third = await (await scene.other()).register(info(), LEASE_SECONDS)
    assert len({first, second, third}) == 3


@chapter.promise("M111")
async def renewing_extends_the_lease(scene: Scene) -> None:
    """It counts from the renewal, for as long as the renewal says."""
    worker, claim = await scene.running()
    for _ in range(4):
        scene.clock.advance(LEASE_SECONDS - 0.25)
        renewed = await scene.store.renew(worker, LEASE_SECONDS)
        assert (renewed.alive, renewed.cancels) == (True, [])
    scene.clock.advance(LEASE_SECONDS - 0.25)
    assert (await scene.store.rescue(MANY, ExpiredLeases())).workers == []
    await scene.finish(worker, claim)


@chapter.promise("M110", "M111")
async def a_lease_that_is_not_renewed_ends_in_time(scene: Scene) -> None:
    """It ends not a moment earlier, and then for good."""
    worker, claim = await scene.running()
    scene.clock.advance(LEASE_SECONDS - 0.25)
    assert (await scene.store.rescue(MANY, ExpiredLeases())).workers == []
    scene.clock.advance(0.5)
    rescued = await scene.store.rescue(MANY, ExpiredLeases())
    assert rescued.workers == [worker]
    assert [left.id for left in rescued.left] == [claim.id]
    assert await scene.is_ready(claim.id)


@chapter.promise("M112")
async def a_rescued_worker_never_comes_back(scene: Scene) -> None:
    """Its renewals say so, it claims nothing, and it is no longer listed."""
    worker, claim = await scene.running()
    scene.clock.advance(LEASE_SECONDS + 1)
    await scene.store.rescue(MANY, ExpiredLeases())
    for _ in range(2):
        renewed = await scene.store.renew(worker, LEASE_SECONDS)
        assert (renewed.alive, renewed.cancels) == (False, [])
        assert await scene.claim(worker) == []
    assert await scene.store.workers(None) == []
    assert (await scene.store.exchange(worker, [outcome(claim)], (), 0)).rejected == [
        Rejected(claim.id, 1, False)
    ]


@chapter.promise("M112")
async def a_half_rescued_worker_does_not_come_back_either(scene: Scene) -> None:
    """A limited rescue that has begun is not undone, even if the lease had not ended."""
    worker = await scene.worker()
    await scene.add_many(4)
    await scene.claim(worker, 4)
    assert (await scene.store.rescue(2, OneWorker(worker))).more
    assert await scene.claim(worker) == []
    assert not (await scene.store.renew(worker, LEASE_SECONDS)).alive
    assert (await scene.store.rescue(MANY, ExpiredLeases())).workers == [worker]
    assert (await count_jobs(scene.store, "shop"))["shop:default"] == {READY: 4}


@chapter.promise()
async def a_worker_nobody_knows_is_not_alive(scene: Scene) -> None:
    """Renewing inserts nothing."""
    assert not (await scene.store.renew(4711, LEASE_SECONDS)).alive
    assert await scene.store.workers(None) == []


@chapter.promise("M118")
async def leaving_gives_jobs_back_uncharged(scene: Scene) -> None:
    """Jobs go back at once, without a loss; the worker's later outcomes are refused."""
    worker = await scene.worker()
    await scene.add_many(3)
    kept, *others = await scene.claim(worker, 3)
    await scene.store.act([kept.id], CancelJobs())
    await scene.store.leave(worker)
    assert await scene.state(kept.id) == CANCELLED
    for claim in others:
        record = await scene.record(claim.id)
        assert (record.state, record.worker) == (READY, None)
        assert (record.retried, record.losses, record.lost) == (0, 0, 0)
    assert await scene.store.workers(None) == []
    assert not (await scene.store.renew(worker, LEASE_SECONDS)).alive
    refused = (await scene.store.exchange(worker, [outcome(others[0])], (), 0)).rejected
    assert [r.id for r in refused] == [others[0].id]
    await scene.store.leave(worker)


@chapter.promise("M111")
async def a_step_of_the_wall_clock_ends_no_lease(scene: Scene) -> None:
    """A step of an hour forward or back does not count as elapsed time."""
    worker, claim = await scene.running()
    for step in (HOUR, -2 * HOUR, HOUR):
        scene.clock.step(step)
        assert (await scene.store.rescue(MANY, ExpiredLeases())).workers == []
        assert (await scene.store.renew(worker, LEASE_SECONDS)).alive
        assert await scene.store.lead("upkeep", worker, 10.0) is not None
    await scene.add()
    assert len(await scene.claim(worker)) == 1
    await scene.finish(worker, claim)


@chapter.promise("M111", needs=("leases_end_with_boot",))
async def another_boot_ends_every_lease(scene: Scene) -> None:
    """Earlier monotonic times mean nothing, so every worker with a lease counts as dead."""
    worker, claim = await scene.running()
    leader = await scene.store.lead("upkeep", worker, 10.0)
    await scene.add()
    scene.clock.reboot()
    assert await scene.claim(worker) == []
    assert not (await scene.store.renew(worker, LEASE_SECONDS)).alive
    rescued = await scene.store.rescue(MANY, ExpiredLeases())
    assert (rescued.workers, rescued.left[0].id) == ([worker], claim.id)
    heir = await scene.worker()
    token = await scene.store.lead("upkeep", heir, 10.0)
    assert leader is not None
    assert token is not None
    assert token > leader


@chapter.promise()
async def a_later_renewal_of_another_worker_is_seen(scene: Scene) -> None:
    """That worker may take our jobs once our lease has ended.

    Writes of other processes and workers of another App do not count. A store that cannot
    tell reports infinity.
    """
    worker, other = await scene.worker(), await scene.other()
    later = await other.register(info(), LEASE_SECONDS)
    elsewhere = await other.register(info("blog"), LEASE_SECONDS)
    await scene.store.renew(worker, LEASE_SECONDS)
    scene.clock.advance(0.5)
    await other.renew(elsewhere, LEASE_SECONDS)
    await other.enqueue([scene.job()])
    before = (await scene.store.health(worker)).behind_seconds
    await other.renew(later, LEASE_SECONDS)
    behind = (await scene.store.health(worker)).behind_seconds
    assert before == math.inf or (before <= 0.0 and 0.5 <= behind < math.inf)
    await scene.lose(worker)
    assert (await scene.store.health(worker)).behind_seconds == math.inf


# --- leading


@chapter.promise()
async def there_is_one_leader_and_its_token_only_grows(scene: Scene) -> None:
    """Others wait until its time is over; a leader that was replaced is notified."""
    stores = (scene.store, await scene.other())
    one, two = await scene.worker(), await scene.worker()
    tokens: list[int] = []
    for n in range(6):
        leader, waiter = (one, two) if n % 2 == 0 else (two, one)
        token = await stores[n % 2].lead("upkeep", leader, 10.0)
        assert token is not None
        assert all(token > before for before in tokens)
        assert await stores[1 - n % 2].lead("upkeep", waiter, 10.0) is None
        scene.clock.advance(9.75)
        stayed = await scene.store.lead("upkeep", leader, 10.0)
        assert stayed is not None
        assert stayed >= token
        tokens.append(stayed)
        scene.clock.advance(9.75)
        assert await scene.store.lead("upkeep", waiter, 10.0) is None
        scene.clock.advance(0.5)


@chapter.promise()
async def the_lead_of_a_worker_that_has_gone_is_free(scene: Scene) -> None:
    """At once after it has left, or was rescued; its token grows all the same."""
    store, token = scene.store, 0
    for gone in (scene.store.leave, scene.lose):
        leader, heir = await scene.worker(), await scene.worker()
        led = await store.lead("upkeep", leader, 10.0)
        assert led is not None
        assert led > token
        assert await store.lead("upkeep", heir, 10.0) is None
        await gone(leader)
        token = await store.lead("upkeep", heir, 10.0) or 0
        assert token > led
        await store.leave(heir)


@chapter.promise()
async def leaders_of_different_things_do_not_meet(scene: Scene) -> None:
    """Each lease of a leader has a name."""
    one, two = await scene.worker(), await scene.worker()
    assert await scene.store.lead("upkeep", one, 10.0) is not None
    assert await scene.store.lead("ticks", two, 10.0) is not None
    assert await scene.store.lead("upkeep", two, 10.0) is None


@chapter.promise("M112")
async def a_cancel_reaches_the_worker_with_its_renewal(scene: Scene) -> None:
    """Each renewal returns it until the attempt ends, with the fence that it is about."""
    worker, claim = await scene.running()
    (_, another) = await scene.running(lane="shop:other")
    await scene.store.act([claim.id, another.id], CancelJobs())
    for _ in range(2):
        renewed = await scene.store.renew(worker, LEASE_SECONDS)
        assert renewed.cancels == [(claim.id, claim.claim_no)]
    await scene.finish(worker, claim, kind=OutcomeKind.CANCEL)
    assert (await scene.store.renew(worker, LEASE_SECONDS)).cancels == []


@chapter.promise()
async def a_store_may_require_newer_workers(scene: Scene) -> None:
    """Not while an older one is alive; then older ones cannot register or renew."""
    first = await scene.worker()
    assert await scene.store.require_protocol("shop", GATES_PROTOCOL) == []
    names = [info().name]
    assert await scene.store.require_protocol("shop", NEWER) == names
    assert (await scene.store.renew(first, LEASE_SECONDS)).alive
    scene.clock.advance(LEASE_SECONDS + 1)
    other = await scene.other()
    assert await other.require_protocol("shop", NEWER) == []
    assert await scene.store.require_protocol("shop", NEWER) == []
    for call in (
        lambda: scene.store.register(info(), LEASE_SECONDS),
        lambda: scene.store.renew(first, LEASE_SECONDS),
    ):
        said = ""
        try:
            await call()
        except DurioError as error:
            said = str(error)
        assert "too old for the plans" in said
    elsewhere = info()._replace(namespace="elsewhere")
    assert await scene.store.register(elsewhere, LEASE_SECONDS) > first


@chapter.promise("M98", needs=("fault",))
async def a_fault_at_any_statement_requires_nothing(scene: Scene) -> None:
    """Older workers may come until a call has succeeded."""
    store = scene.store
    await scene.after_every_fault(lambda: store.require_protocol("shop", NEWER))
    for namespace, is_refused in (("shop", True), ("other", False)):
        try:
            await store.register(info()._replace(namespace=namespace), LEASE_SECONDS)
        except DurioError:
            assert is_refused, namespace
        else:
            assert not is_refused, namespace
