"""What a store promises between people and workers: orders, answers, pauses, vitals, audit."""

from durio.model.job import CANCELLED, READY
from durio.ports.browse import AuditLine, LaneRow, Query
from durio.ports.control import QueueChange, Verb
from durio.ports.lease import Command, Vitals
from durio.ports.upkeep import ExpiredLeases
from tests.conformance.promises import Chapter
from tests.conformance.scene import LANE, LEASE_SECONDS, MANY, Scene, info
from tests.job_counts import count_jobs

chapter = Chapter("orders")

HOUR = 3600.0
ANSWER_BYTES_MAX = 256 * 1024
VITALS = Vitals(1.5, 10**9, 7, 2)


# --- orders


@chapter.promise("L35")
async def an_order_reaches_its_worker_and_the_answer_comes_back(scene: Scene) -> None:
    """With the next renewal, again until it is answered, and to nobody else."""
    worker, beside = await scene.worker(), await scene.worker()
    other = await scene.other()
    stack = await other.order(worker, "stack", by="ann")
    drain = await other.order(worker, "drain", by="ann")
    assert stack is not None
    assert drain is not None
    for _ in range(2):
        renewed = await scene.store.renew(worker, LEASE_SECONDS)
        assert list(renewed.commands) == [
            Command(stack, "stack"),
            Command(drain, "drain"),
        ]
    assert not (await scene.store.renew(beside, LEASE_SECONDS)).commands
    assert await other.answer_to(stack) is None
    await scene.store.answer(worker, stack, "File \u00fc, line 1")
    await scene.store.answer(worker, stack, "too late")
    await scene.store.answer(beside, drain, "not mine")
    assert await other.answer_to(stack) == "File \u00fc, line 1"
    assert await other.answer_to(drain) is None
    renewed = await scene.store.renew(worker, LEASE_SECONDS)
    assert list(renewed.commands) == [Command(drain, "drain")]


@chapter.promise("L35")
async def an_order_wakes_its_worker(scene: Scene) -> None:
    """The ring is about control: it renews now and not at its next heartbeat."""
    worker = await scene.worker()
    await (await scene.other()).order(worker, "stack", by="ann")
    wake = await scene.store.wait(worker, 50.0)
    assert (wake.woken, wake.control) == (True, True)


@chapter.promise()
async def a_worker_that_is_gone_gets_no_orders(scene: Scene) -> None:
    """Left, rescued or never there: nothing is written."""
    left, lost = await scene.worker(), await scene.worker()
    await scene.store.leave(left)
    await scene.lose(lost)
    before = await scene.everything()
    for worker in (left, lost, 4711):
        assert await scene.store.order(worker, "stack", by="ann") is None
    assert await scene.everything() == before


@chapter.promise()
async def nobody_waits_for_a_worker_that_is_gone(scene: Scene) -> None:
    """Its open orders are answered with nothing, however it went."""
    left, lost, late = [await scene.worker() for _ in range(3)]
    orders = [await scene.store.order(w, "stack", by="ann") for w in (left, lost, late)]
    answers = [await scene.store.answer_to(order or 0) for order in orders]
    assert answers == [None, None, None]
    await scene.store.leave(left)
    await scene.lose(lost)
    scene.clock.advance(LEASE_SECONDS + 1)
    await scene.store.rescue(MANY, ExpiredLeases())
    other = await scene.other()
    assert [await other.answer_to(order or 0) for order in orders] == ["", "", ""]
    assert await other.answer_to(4711) == ""


@chapter.promise()
async def an_answer_is_bounded(scene: Scene) -> None:
    """What is cut says so; one without words is still an answer."""
    worker = await scene.worker()
    long = await scene.store.order(worker, "stack", by="ann") or 0
    short = await scene.store.order(worker, "drain", by="ann") or 0
    await scene.store.answer(worker, long, "\u00fc" * 10**6)
    await scene.store.answer(worker, short, "")
    told = await scene.store.answer_to(long) or ""
    assert len(told.encode()) <= ANSWER_BYTES_MAX
    assert told.startswith("\u00fc\u00fc")
    assert "2000000 bytes" in told
    assert await scene.store.answer_to(short)


@chapter.promise()
async def old_orders_are_forgotten(scene: Scene) -> None:
    """After an hour, answered or not."""
    worker = await scene.worker(lease_seconds=HOUR * 9)
    old = await scene.store.order(worker, "stack", by="ann") or 0
    open_ = await scene.store.order(worker, "drain", by="ann") or 0
    await scene.store.answer(worker, old, "x")
    scene.clock.advance(HOUR - 1)
    new = await scene.store.order(worker, "stack", by="ann") or 0
    await scene.store.prune(MANY, dead_count=0)
    assert await scene.store.answer_to(old) == "x"
    scene.clock.advance(2)
    await scene.store.prune(MANY, dead_count=0)
    answers = [await scene.store.answer_to(order) for order in (old, open_, new)]
    assert answers == ["", "", None]
    renewed = await scene.store.renew(worker, HOUR)
    assert [order.id for order in renewed.commands] == [new]


# --- vitals


@chapter.promise("L35")
async def a_worker_tells_how_it_is_with_its_renewal(scene: Scene) -> None:
    """The newest word stays; a renewal without one changes nothing."""
    worker, silent = await scene.worker(), await scene.worker()
    for told in (Vitals(0.5, 1, 0, 0), VITALS, None):
        assert (await scene.store.renew(worker, LEASE_SECONDS, told)).alive
    rows = {row.id: row for row in await (await scene.other()).workers("shop")}
    assert (rows[worker].vitals, rows[silent].vitals) == (VITALS, None)


# --- pauses


@chapter.promise()
async def a_pause_reaches_every_worker_of_its_namespace(scene: Scene) -> None:
    """Both ways, by a ring about control; other namespaces hear nothing."""
    workers = [await scene.worker(), await scene.worker(queues=("default",))]
    stranger = await scene.worker("shop2")
    other = await scene.other()
    await other.change_queue("shop2:default", QueueChange(paused=True), by="ann")
    await scene.store.wait(stranger, 50.0)
    for paused in (True, False):
        change = QueueChange(paused=paused)
        await other.change_queue(LANE, change, by="ann")
        for worker in workers:
            assert (await scene.store.wait(worker, 50.0)).control
            renewed = await scene.store.renew(worker, LEASE_SECONDS)
            assert renewed.paused == (frozenset({LANE}) if paused else frozenset())
        renewed = await scene.store.renew(stranger, LEASE_SECONDS)
        assert renewed.paused == frozenset({"shop2:default"})


@chapter.promise()
async def a_queue_is_changed_field_by_field(scene: Scene) -> None:
    """What is not named stays; another process sees it; a bound by hand beats the code."""
    await scene.add()
    store, other = scene.store, await scene.other()
    await store.declare({LANE: 10})
    for change, wanted in (
        (QueueChange(paused=True), LaneRow(LANE, True, maxsize=10)),
        (QueueChange(closed=True), LaneRow(LANE, True, True, 10)),
        (QueueChange(maxsize=5), LaneRow(LANE, True, True, 5, is_manual=True)),
        (QueueChange(maxsize=-1), LaneRow(LANE, True, True, None, is_manual=True)),
        (QueueChange(), LaneRow(LANE, True, True, None, is_manual=True)),
        (QueueChange(False, False, -2), LaneRow(LANE, False, maxsize=10)),
        (QueueChange(maxsize=0), LaneRow(LANE, False, False, 0, is_manual=True)),
    ):
        await store.change_queue(LANE, change, by="ann")
        assert await other.queues("shop") == [wanted], change
        assert await other.queues("shop", busy=True) == [wanted]


@chapter.promise()
async def a_queue_may_be_changed_before_its_first_job(scene: Scene) -> None:
    """It is known from then on."""
    change = QueueChange(closed=True, maxsize=3)
    await scene.store.change_queue("shop:new", change, by="ann")
    (row,) = await scene.store.queues("shop")
    assert row == LaneRow("shop:new", False, True, 3, is_manual=True)


# --- audit


@chapter.promise("M85")
async def what_people_do_is_written_down(scene: Scene) -> None:
    """Who, what, to what and to how many jobs, the newest first, by namespace."""
    worker, store = await scene.worker(), scene.store
    ids = await scene.add_many(7)
    await store.act(ids[:1], "cancel", by="ann")
    scene.clock.advance(1.0)
    await store.act([*ids[:1], ids[6]], "retry", by="bob")
    await store.retry_edited(ids[1], b"[]", by="bob")
    await store.change_queue(LANE, QueueChange(paused=True, maxsize=5), by="ann")
    await store.order(worker, "stack", by="ann")
    await store.act([await scene.add(lane="bank:x")], "cancel", by="eve")
    lines = await (await scene.other()).audit("shop", limit=MANY)
    assert [(line.who, line.verb, line.jobs) for line in lines] == [
        ("ann", "stack", 0),
        ("ann", "limit", 0),
        ("ann", "pause", 0),
        ("bob", "retry_edited", 0),
        ("bob", "retry", 1),
        ("ann", "cancel", 1),
    ]
    assert [line.at for line in lines][-2:] == [scene.clock.now(), lines[-1].at]
    assert lines[-1].at == scene.clock.now() - 1.0
    assert [LANE in line.target for line in lines[1:3]] == [True, True]
    assert str(worker) in lines[0].target
    assert ids[0].hex() == lines[-1].target.replace("-", "")
    everywhere = await store.audit(None, limit=2)
    assert [line.who for line in everywhere] == ["eve", "ann"]


@chapter.promise("M85")
async def code_that_acts_on_its_own_jobs_is_not_written_down(scene: Scene) -> None:
    """Audits are of people."""
    job_id = await scene.add()
    await scene.store.act([job_id], "cancel")
    await scene.store.act([job_id], "retry")
    await scene.store.retry_edited(job_id, b"[]")
    assert await scene.store.audit(None, limit=MANY) == []


@chapter.promise("M85")
async def a_bulk_act_is_one_line_with_its_query_in_words(scene: Scene) -> None:
    """However many steps it took."""
    await scene.add_many(9)
    query = Query(lane=LANE, task="shop.pay")
    verbs: dict[Verb, int] = {"cancel": READY, "retry": CANCELLED}
    for verb, state in verbs.items():
        asked = query._replace(states=(state,))
        counted = await scene.store.count(asked)
        assert counted.jobs == 9
        more = True
        while more:
            more = (
                await scene.store.act_on(asked, verb, counted.mark, 2, by="ann")
            ).more
        (line, *_) = await scene.store.audit("shop", limit=MANY)
        assert (line.who, line.verb, line.jobs) == ("ann", verb, 9)
        for word in (LANE, "shop.pay"):
            assert word in line.target
    assert len(await scene.store.audit("shop", limit=MANY)) == 2
    assert (await count_jobs(scene.store, "shop"))[LANE] == {READY: 9}


@chapter.promise("M85")
async def a_move_is_one_line(scene: Scene) -> None:
    """Its steps are added up; the next move is another."""
    for _ in range(2):
        await scene.add_many(5)
        while (await scene.store.move(LANE, "shop:b", 2, by="ann")).more:
            pass
    lines = await scene.store.audit("shop", limit=MANY)
    assert (
        lines
        == [AuditLine(scene.clock.now(), "ann", "move", f"{LANE} to shop:b", 5)] * 2
    )


@chapter.promise(needs=("fault",))
async def a_change_and_its_line_are_one(scene: Scene) -> None:
    """Both or neither, at whichever statement a fault comes."""
    worker = await scene.worker()
    await scene.add_many(2)
    store, change = scene.store, QueueChange(paused=True, closed=True, maxsize=7)
    await scene.after_every_fault(lambda: store.change_queue(LANE, change, by="ann"))
    assert await scene.after_every_fault(lambda: store.order(worker, "stack", by="ann"))
    await scene.after_every_fault(lambda: renewed_in_full(scene, worker))
    ids = [record.id for record in await scene.records()]
    acted = await scene.after_every_fault(lambda: store.act(ids, "cancel", by="ann"))
    assert {one.after for one in acted} == {CANCELLED}
    assert len(await store.audit(None, limit=MANY)) == 5


async def renewed_in_full(scene: Scene, worker: int) -> None:
    """A renewal with everything that it may bring."""
    renewed = await scene.store.renew(worker, LEASE_SECONDS, VITALS)
    assert len(renewed.commands) == len(renewed.paused) == 1


@chapter.promise()
async def an_order_is_closed_with_the_leave(scene: Scene) -> None:
    """By whichever process lets the worker go."""
    worker = await (await scene.other()).register(info(), LEASE_SECONDS)
    order = await scene.store.order(worker, "drain", by="ann") or 0
    await (await scene.other()).leave(worker)
    assert await scene.store.answer_to(order) == ""
