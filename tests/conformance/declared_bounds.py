"""What a store promises about bounds from code, operators and defaults."""

from durio.model.job import READY, NewJob
from durio.model.keys import debounce
from durio.model.outcome import OutcomeKind
from durio.ports.browse import Query
from durio.ports.control import AuditNote, CancelJobs, QueueChange
from durio.ports.enqueue import Full
from tests.bulk_actions import move_waiting, run_bulk
from tests.conformance.bounds import BOUND, MAIL, bounded, check_depth
from tests.conformance.promises import Chapter
from tests.conformance.scene import LANE, SHOP, Scene, key
from tests.job_counts import count_jobs

chapter = Chapter("declared bounds")


@chapter.promise("M35")
async def a_bound_counts_what_is_there_already(scene: Scene) -> None:
    """If it is declared later, or below the depth, no job is dropped and none enters."""
    await scene.add_many(4)
    await scene.add(delay=60.0)
    await bounded(scene)
    assert (await scene.send()).full == Full(LANE, 5, BOUND)
    await bounded(scene, bound=6)
    assert [(await scene.send()).created for _ in range(2)] == [True, False]
    assert await check_depth(scene) == 6


@chapter.promise("M35")
async def a_declaration_is_idempotent_and_can_be_taken_back(scene: Scene) -> None:
    """Declaring it again writes nothing; None removes it, and a new bound counts again."""
    await bounded(scene, BOUND)
    before = await scene.everything()
    await (await scene.other()).declare({LANE: BOUND})
    assert await scene.everything() == before
    await scene.store.declare({LANE: None, MAIL: None})
    await scene.add_many(BOUND)
    await bounded(scene)
    assert (await scene.send()).full == Full(LANE, 2 * BOUND, BOUND)


@chapter.promise("M35")
async def a_bound_by_hand_beats_the_code(scene: Scene) -> None:
    """It holds until it is removed; an operator can also set "no bound"."""
    await bounded(scene, BOUND)
    for by_hand, limit in ((BOUND - 1, BOUND - 1), (-1, None), (-2, BOUND)):
        await scene.store.set_queue(
            LANE, QueueChange(maxsize=by_hand), AuditNote(who="ann")
        )
        await scene.store.declare({LANE: BOUND})
        waiting = (await count_jobs(scene.store, SHOP))[LANE][READY]
        full = (await scene.send()).full
        assert full == (limit and Full(LANE, waiting, limit))
    assert await check_depth(scene) == BOUND + 1


@chapter.promise("M35")
async def a_default_yields_to_a_choice(scene: Scene) -> None:
    """It is set where no bound was chosen, and removed only where it was a default."""
    await scene.store.declare({LANE: 1, MAIL: 1}, is_default=True)
    await scene.store.declare({LANE: BOUND})
    await scene.store.declare({LANE: 2, MAIL: 2}, is_default=True)
    await scene.add_many(BOUND)
    assert (await scene.send()).full == Full(LANE, BOUND, BOUND)
    await scene.add_many(2, lane=MAIL)
    assert (await scene.send(lane=MAIL)).full == Full(MAIL, 2, 2)
    await scene.store.declare({LANE: None, MAIL: None}, is_default=True)
    assert (await scene.send()).full
    assert (await scene.send(lane=MAIL)).created


@chapter.promise("M35")
async def a_closed_queue_takes_nothing_new(scene: Scene) -> None:
    """This holds whatever room it has; jobs inside run on, and may come back."""
    (job_id,) = await bounded(scene, 1)
    await scene.add(lane=MAIL)
    for lane in (LANE, MAIL):
        await scene.store.set_queue(
            lane, QueueChange(closed=True), AuditNote(who="ann")
        )
        full = (await scene.send(lane=lane)).full
        assert full is not None
        assert (full.lane, full.is_closed) == (lane, True)
        assert (await scene.send(lane=lane, key=key(debounce(5.0)))).full
    worker = await scene.worker()
    (claimed,) = await scene.claim(worker)
    assert claimed.id == job_id
    await scene.finish(worker, claimed, kind=OutcomeKind.RETRY)
    assert await scene.is_ready(job_id)
    await scene.store.set_queue(LANE, QueueChange(closed=False), AuditNote(who="ann"))
    assert (await scene.send()).created
    assert await check_depth(scene) == 2


# --- the soft bound


@chapter.promise("M35", "M37")
async def a_queue_beyond_the_soft_bound_is_full_until_it_is_below(scene: Scene) -> None:
    """Only `measure` decides; queues with a bound of their own are not affected."""
    store = scene.store
    await scene.worker()
    await store.declare({MAIL: 10})
    await scene.add_many(5, lane=MAIL)
    await store.measure(4, namespace="shop")
    await scene.add_many(3)
    await scene.add(delay=60.0)
    await store.measure(5, namespace="shop")
    assert (await scene.send()).created
    await store.measure(5, namespace="shop")
    assert (await scene.send()).full == Full(LANE, 5, 5, is_soft=True)
    assert (await scene.send(lane=MAIL)).created
    await scene.claim(await scene.worker())
    assert (await scene.send()).full, "until somebody looks"
    await store.measure(5, namespace="shop")
    assert (await scene.send()).created


@chapter.promise("M35")
async def the_soft_bound_of_an_app_is_its_own(scene: Scene) -> None:
    """Another App in the store may have another soft bound, or none."""
    await scene.worker("other")
    await scene.add_many(3)
    await scene.add_many(3, lane="other:default")
    await scene.store.measure(2, namespace="other")
    assert (await scene.send()).created
    assert (await scene.send(lane="other:default")).full
    await scene.store.measure(0, namespace="shop")
    assert (await scene.send(lane="other:default")).full
    await scene.store.measure(0, namespace="other")
    assert (await scene.send(lane="other:default")).created


@chapter.promise("M35")
async def a_hand_takes_the_soft_mark(scene: Scene) -> None:
    """Without a leader, a queue that an operator emptied must not stay full forever."""
    store = scene.store
    await scene.worker()

    async def fill() -> None:
        await scene.add_many(3)
        await store.measure(2, namespace="shop")
        assert (await scene.send()).full

    await fill()
    query = Query(lane=LANE, states=(READY,))
    await run_bulk(store, query, CancelJobs())
    await fill()
    await move_waiting(store, LANE, "shop:other")
    await fill()
    await store.set_queue(LANE, QueueChange(maxsize=-1), AuditNote(who="kim"))
    assert (await scene.send()).created
    await store.measure(2, namespace="shop")
    assert (await scene.send()).created, "no bound means none"


@chapter.promise("M35")
async def a_soft_mark_ends_with_the_workers(scene: Scene) -> None:
    """No leader is left to check again, so the mark must not keep producers out forever."""
    worker = await scene.worker()
    await scene.add_many(3)
    await scene.store.measure(2, namespace="shop")
    assert (await scene.send()).full
    await scene.store.leave(worker)
    assert (await scene.send()).created


@chapter.promise("M35")
async def a_soft_mark_never_keeps_an_accepted_job_out(scene: Scene) -> None:
    """The mark is cleared when there is no soft bound any more."""
    await scene.add_many(3)
    worker = await scene.worker()
    (claimed,) = await scene.claim(worker)
    await scene.store.measure(2, namespace="shop")
    await scene.finish(worker, claimed, kind=OutcomeKind.RETRY)
    assert await scene.is_ready(claimed.id)
    job: NewJob = scene.job()
    assert (await scene.store.enqueue([job]))[0].full
    before = await scene.everything()
    await scene.store.measure(2, namespace="shop")
    assert await scene.everything() == before
    await scene.store.measure(0, namespace="shop")
    assert (await scene.store.enqueue([job]))[0].created
