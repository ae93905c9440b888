"""What a store promises to operators and workers: commands, pauses, vitals, audit."""

from durio.app.worker_commands import read_answers, send_command
from durio.model.effects import Effects, Put
from durio.model.job import CANCELLED, READY
from durio.ports.browse import AuditLine, LaneRow, Query, WorkerRow
from durio.ports.control import (
    ACTION_OF_VERB,
    AuditNote,
    CancelJobs,
    QueueChange,
    RetryJobs,
    Verb,
)
from durio.ports.lease import Command, Vitals
from durio.ports.store import Store
from durio.ports.upkeep import ExpiredLeases
from durio.worker.worker_commands import answer_puts
from tests.bulk_actions import move_waiting, run_bulk
from tests.conformance.promises import Chapter
from tests.conformance.scene import LANE, LEASE_SECONDS, MANY, Scene, info
from tests.job_counts import count_jobs

chapter = Chapter("commands")

HOUR = 3600.0
ANSWER_BYTES_MAX = 256 * 1024
VITALS = Vitals(1.5, 10**9, 7, 2)


# --- commands


async def command(
    scene: Scene, worker: int, verb: str = "stack", *, store: Store | None = None
) -> str:
    """Send a command to a worker that was registered once; return the command's id."""
    row = WorkerRow(worker, info()._asdict(), 1.0, 0)
    return await send_command(store or scene.store, scene.clock, row, verb, by="ann")


async def answer_to(store: Store, worker: int, sent: str) -> str | None:
    """Return the answer; None if there is none yet; "" if there never will be one."""
    return (await read_answers(store, {worker: sent})).get(worker)


async def answer(scene: Scene, worker: int, asked: Command, body: str) -> bool:
    """Write a worker's answer; return whether the store accepted it."""
    effects = Effects(puts=answer_puts(worker, asked, body))
    return (await scene.store.commit(effects)).conflict is None


async def open_commands(scene: Scene, worker: int) -> dict[str, Command]:
    """Return what the next renewal returns, by verb."""
    renewed = await scene.store.renew(worker, LEASE_SECONDS)
    return {command.verb: command for command in renewed.commands}


@chapter.promise("L35")
async def a_command_reaches_its_worker_and_the_answer_comes_back(scene: Scene) -> None:
    """The next renewal returns it, again until it is answered, and to no other worker."""
    worker, beside = await scene.worker(), await scene.worker()
    other = await scene.other()
    stack = await command(scene, worker, "stack", store=other)
    drain = await command(scene, worker, "drain", store=other)
    for _ in range(2):
        renewed = await scene.store.renew(worker, LEASE_SECONDS)
        assert [each[:2] for each in renewed.commands] == [
            (stack, "stack"),
            (drain, "drain"),
        ]
    asked = await open_commands(scene, worker)
    assert not (await scene.store.renew(beside, LEASE_SECONDS)).commands
    assert await answer_to(other, worker, stack) is None
    assert await answer(scene, worker, asked["stack"], "File \u00fc, line 1")
    assert not await answer(scene, worker, asked["stack"], "too late")
    assert not await answer(scene, beside, asked["drain"], "not mine")
    assert await answer_to(other, worker, stack) == "File \u00fc, line 1"
    assert await answer_to(other, worker, drain) is None
    assert list(await open_commands(scene, worker)) == ["drain"]


@chapter.promise("L35")
async def a_command_wakes_its_worker(scene: Scene) -> None:
    """The wakeup is about control: the worker renews now, not at its next heartbeat."""
    worker = await scene.worker()
    await command(scene, worker, store=await scene.other())
    wake = await scene.store.wait(worker, 50.0)
    assert (wake.woken, wake.control) == (True, True)


@chapter.promise()
async def a_command_to_a_worker_that_is_gone_has_no_answer(scene: Scene) -> None:
    """If the worker left, was rescued or never existed, the caller gets a result at once."""
    left, lost = await scene.worker(), await scene.worker()
    await scene.store.leave(left)
    await scene.lose(lost)
    for worker in (left, lost, 4711):
        assert await answer_to(scene.store, worker, await command(scene, worker)) == ""


@chapter.promise()
async def nobody_waits_for_a_worker_that_is_gone(scene: Scene) -> None:
    """Its open commands have no answer, however it ended; an earlier answer is kept."""
    workers = [await scene.worker() for _ in range(3)]
    sent = {worker: await command(scene, worker) for worker in workers}
    assert await read_answers(scene.store, sent) == {}
    answered = await command(scene, workers[0], "report")
    asked = await open_commands(scene, workers[0])
    assert await answer(scene, workers[0], asked["report"], "{}")
    left, lost, _late = workers
    await scene.store.leave(left)
    await scene.lose(lost)
    scene.clock.advance(LEASE_SECONDS + 1)
    await scene.store.rescue(MANY, ExpiredLeases())
    other = await scene.other()
    assert await read_answers(other, sent) == dict.fromkeys(workers, "")
    assert await answer_to(other, 4711, "none") == ""
    assert await answer_to(other, left, answered) == "{}"


@chapter.promise()
async def an_answer_is_bounded(scene: Scene) -> None:
    """A shortened answer says so; an answer without text is still an answer."""
    worker = await scene.worker()
    long = await command(scene, worker, "stack")
    short = await command(scene, worker, "drain")
    asked = await open_commands(scene, worker)
    assert await answer(scene, worker, asked["stack"], "\u00fc" * 10**6)
    assert await answer(scene, worker, asked["drain"], "")
    told = await answer_to(scene.store, worker, long) or ""
    assert ANSWER_BYTES_MAX - 9 < len(told.encode()) <= ANSWER_BYTES_MAX
    assert told.startswith("\u00fc\u00fc")
    assert "2000000 bytes" in told
    assert await answer_to(scene.store, worker, short)


@chapter.promise()
async def old_commands_are_forgotten(scene: Scene) -> None:
    """They are deleted after an hour, answered or not."""
    worker = await scene.worker(lease_seconds=HOUR * 9)
    old = await command(scene, worker, "stack")
    unanswered = await command(scene, worker, "drain")
    asked = (await scene.store.renew(worker, HOUR * 9)).commands
    assert await answer(scene, worker, asked[0], "x")
    scene.clock.advance(HOUR - 1)
    new = await command(scene, worker, "stack")
    await scene.store.prune(MANY, dead_count=0)
    assert await answer_to(scene.store, worker, old) == "x"
    scene.clock.advance(2)
    await scene.store.prune(MANY, dead_count=0)
    sent = (old, unanswered, new)
    answers = [await answer_to(scene.store, worker, each) for each in sent]
    assert answers == ["", "", None]
    renewed = await scene.store.renew(worker, HOUR)
    assert [each.id for each in renewed.commands] == [new]


# --- vitals


@chapter.promise("L35")
async def a_worker_tells_how_it_is_with_its_renewal(scene: Scene) -> None:
    """The newest vitals are kept; a renewal without them changes nothing."""
    worker, silent = await scene.worker(), await scene.worker()
    for told in (Vitals(0.5, 1, 0, 0, draining=True), VITALS, None):
        assert (await scene.store.renew(worker, LEASE_SECONDS, told)).alive
    rows = {row.id: row for row in await (await scene.other()).workers("shop")}
    assert (rows[worker].vitals, rows[silent].vitals) == (VITALS, None)
    draining = VITALS._replace(draining=True)
    assert (await scene.store.renew(worker, LEASE_SECONDS, draining)).alive
    (row, _) = await scene.store.workers("shop")
    assert (row.vitals, row.info["lease_seconds"]) == (draining, LEASE_SECONDS)


# --- pauses


@chapter.promise()
async def a_pause_reaches_every_worker_of_its_namespace(scene: Scene) -> None:
    """Pause and resume send a wakeup about control; other namespaces get none."""
    workers = [await scene.worker(), await scene.worker(queues=("default",))]
    stranger = await scene.worker("shop2")
    other = await scene.other()
    await other.set_queue(
        "shop2:default", QueueChange(paused=True), AuditNote(who="ann")
    )
    await scene.store.wait(stranger, 50.0)
    for paused in (True, False):
        change = QueueChange(paused=paused)
        await other.set_queue(LANE, change, AuditNote(who="ann"))
        for worker in workers:
            assert (await scene.store.wait(worker, 50.0)).control
            renewed = await scene.store.renew(worker, LEASE_SECONDS)
            assert renewed.paused == (frozenset({LANE}) if paused else frozenset())
        renewed = await scene.store.renew(stranger, LEASE_SECONDS)
        assert renewed.paused == frozenset({"shop2:default"})


@chapter.promise()
async def a_queue_is_changed_field_by_field(scene: Scene) -> None:
    """Other fields are kept.

    Another process sees it; an operator's bound overrides the code.
    """
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
        await store.set_queue(LANE, change, AuditNote(who="ann"))
        assert await other.queues("shop") == [wanted], change
        assert await other.queues("shop", busy=True) == [wanted]


@chapter.promise()
async def a_queue_may_be_changed_before_its_first_job(scene: Scene) -> None:
    """It is known from then on."""
    change = QueueChange(closed=True, maxsize=3)
    await scene.store.set_queue("shop:new", change, AuditNote(who="ann"))
    (row,) = await scene.store.queues("shop")
    assert row == LaneRow("shop:new", False, True, 3, is_manual=True)


# --- audit


@chapter.promise("M85")
async def what_people_do_is_written_down(scene: Scene) -> None:
    """Who, what, to what and to how many jobs, the newest first, by namespace."""
    worker, store = await scene.worker(), scene.store
    ids = await scene.add_many(7)
    await store.act(ids[:1], CancelJobs(), note=AuditNote(who="ann"))
    scene.clock.advance(1.0)
    await store.act([*ids[:1], ids[6]], RetryJobs(), note=AuditNote(who="bob"))
    await store.act([ids[1]], RetryJobs(b"[]"), note=AuditNote(who="bob"))
    await store.set_queue(
        LANE, QueueChange(paused=True, maxsize=5), AuditNote(who="ann")
    )
    await command(scene, worker)
    await store.act(
        [await scene.add(lane="bank:x")], CancelJobs(), note=AuditNote(who="eve")
    )
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
    """Only people's actions are audited."""
    job_id = await scene.add()
    await scene.store.act([job_id], CancelJobs())
    await scene.store.act([job_id], RetryJobs())
    await scene.store.act([job_id], RetryJobs(b"[]"))
    assert await scene.store.audit(None, limit=MANY) == []


@chapter.promise("M85")
async def a_bulk_act_is_one_line_with_its_query_in_words(scene: Scene) -> None:
    """This holds however many steps it took."""
    await scene.add_many(9)
    query = Query(lane=LANE, task="shop.pay")
    verbs: dict[Verb, int] = {"cancel": READY, "retry": CANCELLED}
    for verb, state in verbs.items():
        asked = query._replace(states=(state,))
        done = await run_bulk(scene.store, asked, ACTION_OF_VERB[verb], step_jobs=2)
        assert done.jobs == 9
        (line, *_) = await scene.store.audit("shop", limit=MANY)
        assert (line.who, line.verb, line.jobs) == ("ann", verb, 9)
        for word in (LANE, "shop.pay"):
            assert word in line.target
    assert len(await scene.store.audit("shop", limit=MANY)) == 2
    assert (await count_jobs(scene.store, "shop"))[LANE] == {READY: 9}


@chapter.promise()
async def a_note_keeps_its_details(scene: Scene) -> None:
    """And lines are read in pages."""
    for n in range(3):
        note = AuditNote("shop", "ann", "stack", f"worker {n}", details=f'{{"n":{n}}}')
        await scene.store.commit(
            Effects(puts=[Put("details", str(n), b"1")]), note=note
        )
    newest = await scene.store.audit("shop", limit=2)
    assert [line.details for line in newest] == ['{"n":2}', '{"n":1}']
    (last,) = await scene.store.audit("shop", limit=2, before=newest[-1].number)
    assert (last.target, last.details) == ("worker 0", '{"n":0}')
    assert not await scene.store.audit("shop", limit=2, before=last.number)


@chapter.promise("M85")
async def a_move_is_one_line(scene: Scene) -> None:
    """Its steps are added up; the next move is another line."""
    for _ in range(2):
        await scene.add_many(5)
        await move_waiting(scene.store, LANE, "shop:b", step_jobs=2)
    lines = await scene.store.audit("shop", limit=MANY)
    wanted = AuditLine(scene.clock.now(), "ann", "move", f"{LANE} to shop:b", 5)
    assert [line._replace(number=0) for line in lines] == [wanted] * 2


@chapter.promise(needs=("fault",))
async def a_change_and_its_line_are_one(scene: Scene) -> None:
    """Both are written or neither, at whichever statement a fault occurs."""
    worker = await scene.worker()
    await scene.add_many(2)
    store, change = scene.store, QueueChange(paused=True, closed=True, maxsize=7)
    await scene.after_every_fault(
        lambda: store.set_queue(LANE, change, AuditNote(who="ann"))
    )
    assert await scene.after_every_fault(lambda: command(scene, worker))
    await scene.after_every_fault(lambda: renewed_in_full(scene, worker))
    ids = [record.id for record in await scene.records()]
    acted = await scene.after_every_fault(
        lambda: store.act(ids, CancelJobs(), note=AuditNote(who="ann"))
    )
    assert {one.after for one in acted} == {CANCELLED}
    assert len(await store.audit(None, limit=MANY)) == 5


async def renewed_in_full(scene: Scene, worker: int) -> None:
    """Renew with everything that a renewal may contain."""
    renewed = await scene.store.renew(worker, LEASE_SECONDS, VITALS)
    assert len(renewed.commands) == len(renewed.paused) == 1


@chapter.promise()
async def a_command_ends_with_the_leave(scene: Scene) -> None:
    """This holds whichever process ends the worker's lease."""
    worker = await (await scene.other()).register(info(), LEASE_SECONDS)
    drain = await command(scene, worker, "drain")
    assert await answer_to(scene.store, worker, drain) is None
    await (await scene.other()).leave(worker)
    assert await answer_to(scene.store, worker, drain) == ""
