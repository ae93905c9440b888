"""What a store promises about callers' transactions: jobs commit with them or not at all."""

import asyncio

from durio.model.errors import LeaseLost, WrongTransaction
from durio.model.job import DONE, READY, RUNNING
from durio.model.keys import while_active, window
from durio.model.outcome import OutcomeKind
from durio.ports.control import AuditNote, QueueChange
from tests.conformance.promises import Chapter
from tests.conformance.scene import LANE, OTHER_PAYLOAD, Scene, key, outcome

chapter = Chapter("transactions")
OURS = ("has_transactions",)
WAKE_SECONDS = 20.0


@chapter.promise("M95", needs=OURS)
async def the_end_of_a_job_is_in_its_own_transaction(scene: Scene) -> None:
    """Result, progress, state and end time are written; no later outcome is accepted."""
    worker, claim = await scene.running()
    own = await scene.store.transaction(worker)
    await own.commit(outcome(claim, result=b"42", progress=b'{"done":1}'))
    record = await scene.record(claim.id)
    assert (record.state, record.result) == (DONE, b"42")
    assert record.progress == b'{"done":1}'
    answer = await scene.exchange(worker, [outcome(claim, OutcomeKind.RETRY)])
    assert [(r.id, r.already_stored) for r in answer.rejected] == [(claim.id, True)]
    assert await scene.state(claim.id) == DONE


@chapter.promise("M95", needs=OURS)
async def what_is_enqueued_in_it_comes_with_its_commit(scene: Scene) -> None:
    """It is not visible before; then it is claimed once."""
    worker, claim = await scene.running()
    other = await scene.other()
    own = await scene.store.transaction(worker)
    new = [scene.job(), scene.job()]
    answers = await scene.store.enqueue(new, tx=own.connection)
    assert [(a.id, a.created, a.state) for a in answers] == [
        (job.id, True, READY) for job in new
    ]
    assert await other.states([job.id for job in new]) == {}
    await own.commit(outcome(claim))
    claims = await scene.claim(worker, 10)
    assert [c.id for c in claims] == [job.id for job in new]


@chapter.promise("M95", needs=OURS)
async def a_rollback_leaves_nothing(scene: Scene) -> None:
    """The job still runs under the same claim; its next transaction may end it."""
    worker, claim = await scene.running()
    before = await scene.everything()
    own = await scene.store.transaction(worker)
    await scene.store.enqueue([scene.job(key=key(window(60.0)))], tx=own.connection)
    await own.roll_back()
    assert await scene.everything() == before
    assert await scene.state(claim.id) == RUNNING
    await own.roll_back()  # once more does no harm
    again = await scene.store.transaction(worker)
    await again.commit(outcome(claim))
    assert await scene.state(claim.id) == DONE


@chapter.promise("M95", needs=OURS)
async def a_fenced_task_commits_nothing(scene: Scene) -> None:
    """The job has another owner: what it wrote and enqueued is rolled back."""
    worker, claim = await scene.running()
    await scene.lose(worker)
    _, taken = await scene.claim_one()
    assert taken.id == claim.id
    own = await scene.store.transaction(worker)
    follow_up = scene.job()
    await scene.store.enqueue([follow_up], tx=own.connection)
    try:
        await own.commit(outcome(claim, result=b"1"))
    except LeaseLost:
        pass
    else:
        raise AssertionError("a stale claim ended the job")
    assert await scene.state(claim.id) == RUNNING
    assert await scene.store.states([follow_up.id]) == {}


@chapter.promise(needs=OURS)
async def a_transaction_that_is_over_takes_no_job(scene: Scene) -> None:
    """After a commit or a rollback its connection is refused, with a clear error."""
    worker, claim = await scene.running()
    for ends in (False, True):
        own = await scene.store.transaction(worker)
        connection = own.connection
        await (own.commit(outcome(claim)) if ends else own.roll_back())
        try:
            await scene.store.enqueue([scene.job()], tx=connection)
        except WrongTransaction:
            continue
        raise AssertionError("a job was put into a transaction that is over")
    assert len(await scene.records()) == 1


@chapter.promise(needs=OURS)
async def keys_are_judged_in_it(scene: Scene) -> None:
    """They see what is committed and what the transaction wrote; a rollback frees them."""
    held = await scene.add(key=key(while_active))
    worker = await scene.worker()
    own = await scene.store.transaction(worker)
    enqueue, tx = scene.store.enqueue, own.connection
    existing = (await enqueue([scene.job(key=key(while_active))], tx=tx))[0]
    assert (existing.id, existing.created) == (held, False)
    mine = key(window(60.0), text="mine")
    first = (await enqueue([scene.job(key=mine)], tx=tx))[0]
    assert first.created
    same = (await enqueue([scene.job(key=mine)], tx=tx))[0]
    assert (same.id, same.created, same.same_args) == (first.id, False, True)
    other = key(window(60.0), OTHER_PAYLOAD, "mine")
    conflict = (await enqueue([scene.job(key=other, payload=OTHER_PAYLOAD)], tx=tx))[0]
    assert conflict.conflict
    await own.roll_back()
    assert (await scene.send(key=other, payload=OTHER_PAYLOAD)).created


@chapter.promise(needs=OURS)
async def a_full_queue_is_only_named(scene: Scene) -> None:
    """A transaction does not wait for room; a queue that was closed accepts nothing."""
    await scene.store.declare({LANE: 1})
    worker, claim = await scene.running()
    await scene.add()
    own = await scene.store.transaction(worker)
    told = (await scene.store.enqueue([scene.job()], tx=own.connection))[0]
    assert told.created
    assert told.full is not None
    assert (told.full.lane, told.full.limit) == (LANE, 1)
    await own.commit(outcome(claim))
    assert len(await scene.claim(worker, 10)) == 2
    await scene.store.set_queue(LANE, QueueChange(closed=True), AuditNote(who="op"))
    own = await scene.store.transaction(worker)
    told = (await scene.store.enqueue([scene.job()], tx=own.connection))[0]
    assert not told.created
    assert told.full is not None
    assert told.full.is_closed
    await own.roll_back()


@chapter.promise(needs=OURS)
async def whoever_serves_the_lane_is_woken_by_its_commit(scene: Scene) -> None:
    """The wakeup comes after the commit, so that the worker finds the job."""
    worker, claim = await scene.running()
    waiting = await scene.worker()
    while (await scene.store.wait(waiting, 0.05)).woken:
        pass
    own = await scene.store.transaction(worker)
    await scene.store.enqueue([scene.job()], tx=own.connection)
    async with asyncio.TaskGroup() as group:
        heard = group.create_task(scene.store.wait(waiting, WAKE_SECONDS))
        await own.commit(outcome(claim))
    assert heard.result().woken
    assert len(await scene.claim(waiting, 10)) == 1


@chapter.promise(needs=OURS)
async def others_are_not_lost_meanwhile(scene: Scene) -> None:
    """They are written during or after the transaction, whatever becomes of it."""
    worker, claim = await scene.running()
    own = await scene.store.transaction(worker)
    async with asyncio.TaskGroup() as group:
        beside = [group.create_task(scene.send()) for _ in range(5)]
        await scene.store.enqueue([scene.job()], tx=own.connection)
        await own.commit(outcome(claim))
    assert all(sent.result().created for sent in beside)
    assert len(await scene.claim(worker, 10)) == 6
