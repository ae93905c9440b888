"""What a store promises about keeping final jobs: by age, by count, never live ones."""

from durio.model.job import DEAD, DONE, READY, RUNNING, SCHEDULED
from durio.model.outcome import KeepRule, OutcomeKind
from durio.ports.control import CancelJobs, RetryJobs
from tests.conformance.promises import Chapter
from tests.conformance.scene import MANY, Scene
from tests.job_counts import count_jobs

chapter = Chapter("retention")

DAY = 86400.0


async def ended(
    scene: Scene, keep: KeepRule | None, kind: OutcomeKind = OutcomeKind.DONE
) -> bytes:
    """Make one more job that ended, a second after the one before."""
    worker, claim = await scene.running()
    await scene.finish(worker, claim, kind=kind, keep=keep, reason="permanent")
    await scene.store.leave(worker)
    scene.clock.advance(1.0)
    return claim.id


async def kept(scene: Scene) -> set[bytes]:
    """Return the jobs that are left after the pruner has finished."""
    while await scene.store.prune(100, dead_count=0):
        pass
    return {record.id for record in await scene.records()}


@chapter.promise("M39", "M41")
async def a_job_is_kept_for_its_age(scene: Scene) -> None:
    """Record and result are kept for 48 hours after its end, then they may be deleted."""
    job_id = await ended(scene, KeepRule(2 * DAY))
    scene.clock.advance(2 * DAY - 2)
    assert await kept(scene) == {job_id}
    scene.clock.advance(2.0)
    assert await kept(scene) == set()


@chapter.promise("M39")
async def a_done_job_gets_another_retention(scene: Scene) -> None:
    """It counts from then on; a dead job keeps its own."""
    long = KeepRule(100 * DAY)
    short, common = await ended(scene, long), await ended(scene, long)
    counted = [await ended(scene, long) for _ in range(2)]
    dead = await ended(scene, None, OutcomeKind.DEAD)
    scene.clock.advance(2 * DAY)
    await scene.store.keep_done([short, dead], KeepRule(60.0))
    await scene.store.keep_done([common], None)
    await scene.store.keep_done(counted, KeepRule(100 * DAY, 1, "b"))
    scene.clock.advance(61.0)
    assert await kept(scene) == {common, counted[1], dead}
    scene.clock.advance(7 * DAY)
    assert await kept(scene) == {counted[1], dead}


@chapter.promise("M39", "M98", needs=("fault",))
async def a_fault_at_any_statement_leaves_retentions(scene: Scene) -> None:
    """Afterwards the same call changes all of them."""
    ids = [await ended(scene, KeepRule(100 * DAY)) for _ in range(2)]
    await scene.after_every_fault(lambda: scene.store.keep_done(ids, KeepRule(60.0)))
    scene.clock.advance(61.0)
    assert await kept(scene) == set()


@chapter.promise("M39")
async def a_cancelled_job_may_be_kept_like_dead_ones(scene: Scene) -> None:
    """A node of a failed plan is retried together with the dead one."""
    plain, like_dead = await scene.add(), await scene.add()
    await scene.store.act([plain], CancelJobs())
    await scene.store.act([like_dead], CancelJobs(is_kept_as_dead=True))
    scene.clock.advance(8 * DAY)
    assert await kept(scene) == {like_dead}
    scene.clock.advance(23 * DAY)
    assert await kept(scene) == set()


DEFAULTS = {
    "done, seven days": (OutcomeKind.DONE, 7 * DAY),
    "cancelled, seven days": (OutcomeKind.CANCEL, 7 * DAY),
    "dead, thirty days": (OutcomeKind.DEAD, 30 * DAY),
}


@chapter.table(DEFAULTS, "M39", "M40")
async def without_a_word_the_default_age_counts(
    scene: Scene, default: tuple[OutcomeKind, float]
) -> None:
    """Dead jobs are kept longer than done ones."""
    kind, age = default
    job_id = await ended(scene, None, kind)
    scene.clock.advance(age - 60)
    assert await kept(scene) == {job_id}
    scene.clock.advance(120.0)
    assert await kept(scene) == set()


@chapter.promise("M39")
async def the_newest_of_a_bucket_are_kept(scene: Scene) -> None:
    """A count applies to its own task or queue, and affects no other."""
    keep = KeepRule(365 * DAY, 3, "shop.pay")
    one = [await ended(scene, keep) for _ in range(6)]
    two = [await ended(scene, KeepRule(365 * DAY, 1, "shop.ship")) for _ in range(3)]
    plain = [await ended(scene, None) for _ in range(2)]
    assert await kept(scene) == {*one[3:], *two[2:], *plain}


@chapter.promise("M40", "M91")
async def the_newest_dead_stay_whatever_their_age(scene: Scene) -> None:
    """Only those past their age and beyond the count are deleted, the oldest first."""
    dead = [await ended(scene, None, OutcomeKind.DEAD) for _ in range(6)]
    assert await scene.store.prune(MANY, dead_count=2) == 0
    scene.clock.advance(31 * DAY)
    assert await scene.store.prune(MANY, dead_count=4) == 2
    assert {record.id for record in await scene.records()} == set(dead[2:])
    assert await scene.store.prune(MANY, dead_count=4) == 0


@chapter.promise("M39")
async def retention_zero_leaves_no_trace(scene: Scene) -> None:
    """It is deleted when it finishes, without a pruner; a dead letter is never deleted so."""
    for kind in (OutcomeKind.DONE, OutcomeKind.CANCEL):
        await ended(scene, KeepRule(0.0), kind)
    assert await scene.records() == []
    assert await count_jobs(scene.store, "shop") in (
        {},
        {"shop:default": {}},
    )


@chapter.promise("M80")
async def a_failure_is_never_deleted_at_once(scene: Scene) -> None:
    """This holds whatever its task says about done jobs."""
    dead = await ended(scene, KeepRule(0.0), OutcomeKind.DEAD)
    assert await scene.state(dead) == DEAD


@chapter.promise("M39")
async def pruning_is_bounded(scene: Scene) -> None:
    """Each call deletes a limited number, the oldest first, until none is left."""
    ids = [await ended(scene, KeepRule(60.0)) for _ in range(7)]
    scene.clock.advance(120.0)
    assert await scene.store.prune(3, dead_count=0) == 3
    assert {record.id for record in await scene.records()} == set(ids[3:])
    assert await scene.store.prune(3, dead_count=0) == 3
    assert await scene.store.prune(3, dead_count=0) == 1
    assert await scene.store.prune(3, dead_count=0) == 0


@chapter.promise("M39")
async def pruning_never_touches_live_jobs(scene: Scene) -> None:
    """This holds however old they are, and for a dead job that was retried."""
    retried = await ended(scene, None, OutcomeKind.DEAD)
    cancelled = await ended(scene, KeepRule(60.0, 1, "shop.pay"), OutcomeKind.CANCEL)
    await scene.store.act([retried, cancelled], RetryJobs())
    worker = await scene.worker(lease_seconds=1000 * DAY)
    (running, _) = await scene.claim(worker, 2)
    scheduled = await scene.add(delay=999 * DAY)
    ready = await scene.add()
    gone = await ended_in_other_lanes(scene)
    scene.clock.advance(365 * DAY)
    assert gone not in await kept(scene)
    states = await scene.store.states([running.id, scheduled, ready])
    assert list(states.values()) == [RUNNING, SCHEDULED, READY]
    assert await scene.state(cancelled) == RUNNING


async def ended_in_other_lanes(scene: Scene) -> bytes:
    """Make a done job in a lane of its own, while others wait."""
    worker, claim = await scene.running(lane="shop:beside")
    await scene.finish(worker, claim, keep=KeepRule(60.0))
    assert await scene.state(claim.id) == DONE
    return claim.id
