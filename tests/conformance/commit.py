"""What a store promises about a commit: all jobs and records are written, or none."""

import asyncio

from durio.model.effects import Effects, Put
from durio.model.errors import UsageError, WrongTransaction
from durio.model.ids import id_text
from durio.model.job import DONE, READY
from durio.model.keys import replace, while_active, window
from durio.ports.browse import AuditLine
from durio.ports.commit import Committed
from durio.ports.conflicts import Conflict
from durio.ports.control import AuditNote, QueueChange
from durio.ports.enqueue import Full
from tests.conformance.promises import Chapter
from tests.conformance.records import KIND
from tests.conformance.scene import LANE, OTHER_PAYLOAD, Scene, key, outcome

chapter = Chapter("commit")
OURS = ("has_transactions",)
OTHER_LANE = "shop:other"
WAKE_SECONDS = 20.0
PAUSE_SECONDS = 0.1


async def conflict(
    scene: Scene, effects: Effects, *, all_new: bool = False, enters: bool = False
) -> Conflict:
    """Return the conflict of a commit that changes nothing."""
    before = await scene.everything()
    answer = await scene.store.commit(effects, all_new=all_new, enters=enters)
    assert answer.conflict is not None
    assert answer[:2] == ([], [])
    assert await scene.everything() == before
    return answer.conflict


@chapter.promise()
async def jobs_and_records_are_written_together(scene: Scene) -> None:
    """The jobs can be claimed, and their workers are woken."""
    worker = await scene.worker()
    jobs = [scene.job(), scene.job(delay=60.0), scene.job(key=key(while_active))]
    puts = [Put(KIND, "a", b"1", if_version=0), Put(KIND, "b", None)]
    answer = await (await scene.other()).commit(Effects(jobs, puts), all_new=True)
    assert answer.conflict is None
    assert [(told.id, told.created) for told in answer.enqueued] == [
        (job.id, True) for job in jobs
    ]
    assert answer.versions[1] == 0
    (record,) = await scene.store.list_records(KIND)
    assert (record.body, record.version) == (b"1", answer.versions[0])
    assert LANE in (await scene.store.wait(worker, WAKE_SECONDS)).lanes
    claims = await scene.claim(worker, 9)
    assert [claim.id for claim in claims] == [jobs[0].id, jobs[2].id]


@chapter.promise()
async def an_empty_commit_writes_nothing(scene: Scene) -> None:
    """It returns an empty result."""
    before = await scene.everything()
    assert await scene.store.commit(Effects()) == Committed([], [])
    assert await scene.everything() == before


@chapter.promise()
async def one_condition_that_fails_refuses_all(scene: Scene) -> None:
    """The result is the first condition that fails; records are checked before jobs."""
    await scene.store.commit(Effects(puts=[Put(KIND, "b", b"1"), Put(KIND, "c", b"1")]))
    await scene.store.set_queue(LANE, QueueChange(closed=True), AuditNote(who="ann"))
    puts = [Put(KIND, name, b"2", if_version=0) for name in "abc"]
    told = await conflict(scene, Effects([scene.job()], puts))
    assert told.record is not None
    assert (told.what, told.name, told.record.body) == ("record", "b", b"1")
    told = await conflict(scene, Effects([scene.job()], puts[:1]))
    assert (told.what, told.name) == ("full", LANE)


@chapter.promise()
async def a_full_queue_refuses_a_commit(scene: Scene) -> None:
    """With `enters` it accepts the jobs, and counts them."""
    await scene.store.declare({LANE: 2})
    await scene.add()
    effects = Effects([scene.job(), scene.job()], [Put(KIND, "a", b"1")])
    told = await conflict(scene, effects)
    assert told == Conflict("full", LANE, full=Full(LANE, 1, 2))
    answer = await scene.store.commit(effects, enters=True)
    assert answer.conflict is None
    assert [told.created for told in answer.enqueued] == [True, True]
    assert (await scene.send()).full == Full(LANE, 3, 2)
    one_more = Effects([scene.job(key=key(while_active))])
    assert (await conflict(scene, one_more)).what == "full"
    assert (await scene.store.commit(one_more, enters=True)).conflict is None
    assert (await scene.send()).full == Full(LANE, 4, 2)


@chapter.promise()
async def a_closed_queue_refuses_in_any_case(scene: Scene) -> None:
    """Jobs in another queue of the same commit are undone."""
    await scene.store.set_queue(LANE, QueueChange(closed=True), AuditNote(who="ann"))
    jobs = [scene.job(lane=OTHER_LANE), scene.job()]
    for enters in (False, True):
        for keyed in (jobs, [job._replace(key=key(while_active)) for job in jobs[1:]]):
            told = await conflict(scene, Effects(keyed), enters=enters)
            assert (told.what, told.name) == ("full", LANE)
            assert told.full is not None
            assert told.full.is_closed


@chapter.promise()
async def a_key_that_is_held_is_no_conflict_unless_asked(scene: Scene) -> None:
    """The holder is returned; with `all_new` its id is the conflict."""
    holder = await scene.add(key=key(while_active))
    job = scene.job(key=key(while_active))
    effects = Effects([scene.job(), job], [Put(KIND, "a", b"1")])
    told = await conflict(scene, effects, all_new=True)
    assert told == Conflict("key", id_text(holder), job=job)
    answer = await scene.store.commit(effects)
    assert [(told.id, told.created) for told in answer.enqueued] == [
        (effects.jobs[0].id, True),
        (holder, False),
    ]
    assert len(await scene.store.list_records(KIND)) == 1


@chapter.promise()
async def a_holder_that_would_be_rewritten_is_not_new(scene: Scene) -> None:
    """With `all_new` it stays unchanged."""
    holder = await scene.add(key=key(replace), delay=60.0)
    job = scene.job(key=key(replace, OTHER_PAYLOAD), payload=OTHER_PAYLOAD)
    told = await conflict(scene, Effects([job]), all_new=True)
    assert told == Conflict("key", id_text(holder), job=job)
    (answer,) = (await scene.store.commit(Effects([job]))).enqueued
    assert (answer.id, answer.replaced) == (holder, True)


@chapter.promise()
async def a_window_with_other_arguments_is_a_conflict(scene: Scene) -> None:
    """The caller decides what to do about it."""
    holder = await scene.add(key=key(window(60.0)))
    other = key(window(60.0), OTHER_PAYLOAD)
    job = scene.job(key=other, payload=OTHER_PAYLOAD)
    effects = Effects([scene.job(), job], [Put(KIND, "a", b"1")])
    told = await conflict(scene, effects)
    assert told == Conflict("key", id_text(holder), job=job)


@chapter.promise()
async def a_repeat_after_a_lost_reply_changes_nothing(scene: Scene) -> None:
    """The conflict contains the caller's own record; jobs are never stored twice."""
    effects = Effects([scene.job()], [Put(KIND, "a", b"mine", if_version=0)])
    first = await scene.store.commit(effects)
    told = await conflict(scene, effects)
    assert told.record is not None
    assert told.record[2:] == (b"mine", None, first.versions[0])
    change = Effects([scene.job()], [Put(KIND, "a", b"2", first.versions[0])])
    assert (await scene.store.commit(change)).conflict is None
    told = await conflict(scene, change)
    assert told.record is not None
    assert told.record.body == b"2"


@chapter.promise()
async def repeated_jobs_are_answered_as_they_stand(scene: Scene) -> None:
    """This holds if they have ended meanwhile, and with `all_new`."""
    jobs = [scene.job(), scene.job(key=key(while_active)), scene.job(delay=60.0)]
    effects = Effects(jobs, [Put(KIND, "a", b"1")])
    assert (await scene.store.commit(effects, all_new=True)).conflict is None
    worker = await scene.worker()
    claims = await scene.claim(worker, 9)
    await scene.exchange(worker, [outcome(claim) for claim in claims], 0)
    for _ in range(2):
        answer = await (await scene.other()).commit(effects, all_new=True)
        assert answer.conflict is None
        assert [told.created for told in answer.enqueued] == [False] * 3
        assert [told.state for told in answer.enqueued] == [DONE, DONE, 0]
    assert len(await scene.records()) == 3
    assert await scene.claim(worker, 9) == []


@chapter.promise()
async def of_many_at_once_one_wins(scene: Scene) -> None:
    """With compare-and-set and a job each, there are as many jobs as versions."""
    stores = [scene.store, await scene.other()]
    (made,) = (await scene.store.commit(Effects(puts=[Put(KIND, "n", b"0")]))).versions
    versions = [made]
    for turn in range(5):
        answers = await asyncio.gather(
            *(
                stores[n % 2].commit(
                    Effects([scene.job()], [Put(KIND, "n", b"%d" % turn, versions[-1])])
                )
                for n in range(6)
            )
        )
        won = [answer for answer in answers if answer.conflict is None]
        assert len(won) == 1
        versions += won[0].versions
        assert len(await scene.records()) == turn + 1
    assert versions == sorted(set(versions))


@chapter.promise()
async def of_many_creators_one_wins(scene: Scene) -> None:
    """The others get its record."""
    stores = [scene.store, await scene.other()]
    for turn in range(5):
        name = f"{turn}"
        answers = await asyncio.gather(
            *(
                stores[n % 2].commit(Effects(puts=[Put(KIND, name, b"%d" % n, 0)]))
                for n in range(6)
            )
        )
        (record,) = await scene.store.records(KIND, [name])
        for n, answer in enumerate(answers):
            if answer.conflict is None:
                assert (b"%d" % n, answer.versions) == (record.body, [record.version])
            else:
                assert answer.conflict == Conflict("record", name, record)
        assert sum(answer.conflict is None for answer in answers) == 1


@chapter.promise(needs=OURS)
async def a_record_created_meanwhile_is_not_deleted(scene: Scene) -> None:
    """A deletion with `if_version=0` never removes what another commit has created."""
    store, other = scene.store, await scene.other()
    own = await store.transaction(await scene.worker())
    await store.enqueue([scene.job(key=key(while_active))], tx=own.connection)
    # Waits for the key, after its condition was checked.
    effects = Effects([scene.job(key=key(while_active))], [Put(KIND, "a", None, 0)])
    create = Effects(puts=[Put(KIND, "a", b"1", 0)])
    async with asyncio.TaskGroup() as group:
        deletes = group.create_task(other.commit(effects))
        await asyncio.wait([deletes], timeout=PAUSE_SECONDS)
        creates = group.create_task(store.commit(create))
        await asyncio.wait([creates], timeout=PAUSE_SECONDS)
        await own.roll_back()
    deleted, created = deletes.result(), creates.result()
    assert created.conflict is None
    assert deleted.conflict is None or deleted.conflict.what == "record"
    (record,) = await store.list_records(KIND)
    assert (record.body, record.version) == (b"1", created.versions[0])


@chapter.promise()
async def many_writers_of_several_records_all_end(scene: Scene) -> None:
    """This holds in whatever order each commit names them."""
    stores = [scene.store, await scene.other()]
    names = ["a", "b", "c"]
    calls = [
        stores[n % 2].commit(
            Effects(
                puts=[Put(KIND, name, b"%d" % n) for name in names[:: 1 - n % 2 * 2]]
            )
        )
        for n in range(12)
    ]
    answers = await asyncio.gather(*calls)
    assert all(answer.conflict is None for answer in answers)
    bodies = {record.body for record in await scene.store.list_records(KIND)}
    assert len(bodies) == 1


@chapter.promise()
async def a_commit_is_bounded(scene: Scene) -> None:
    """A commit has at most 1,000 jobs and records in total."""
    jobs = [scene.job() for _ in range(999)]
    puts = [Put(KIND, "a", b""), Put(KIND, "b", b"")]
    try:
        await scene.store.commit(Effects(jobs, puts))
    except UsageError:
        pass
    else:
        raise AssertionError("it was written")
    answer = await scene.store.commit(Effects(jobs, puts[:1]))
    assert len(answer.enqueued) == 999


@chapter.promise("M85")
async def a_note_is_written_with_it(scene: Scene) -> None:
    """It is not written after a conflict."""
    note = AuditNote("shop", "ann", "stack", "worker 7")
    effects = Effects(puts=[Put(KIND, "a", b"1", if_version=0)])
    await scene.store.commit(effects, note=note)
    (line,) = await scene.store.audit("shop", limit=9)
    wanted = AuditLine(scene.clock.now(), "ann", "stack", "worker 7", 0)
    assert line._replace(number=0) == wanted
    assert (await scene.store.commit(effects, note=note)).conflict is not None
    assert await scene.store.audit("shop", limit=9) == [line]


@chapter.promise("M98", needs=("fault",))
async def a_fault_at_any_statement_leaves_nothing(scene: Scene) -> None:
    """Afterwards the same commit succeeds."""
    await scene.store.declare({LANE: 9})
    kept = await scene.store.commit(
        Effects(puts=[Put(KIND, name, b"1") for name in "abc"])
    )
    await scene.add(key=key(replace), delay=60.0)
    keys = (while_active, replace)
    jobs = [scene.job(), scene.job(lane=OTHER_LANE, delay=5.0)]
    jobs += [
        scene.job(key=key(policy, text=f"k{policy is replace}")) for policy in keys
    ]
    puts = [
        Put(KIND, "a", b"2", if_version=kept.versions[0], due_at=5.0),
        Put(KIND, "b", None, if_version=kept.versions[1]),
        Put(KIND, "c", b"2"),
        Put(KIND, "d", b"2", if_version=0, ttl_seconds=60.0),
    ]
    note = AuditNote("shop", "ann", "try", "it")
    answer = await scene.after_every_fault(
        lambda: scene.store.commit(Effects(jobs, puts), note=note)
    )
    assert answer.conflict is None
    assert [told.created for told in answer.enqueued] == [True] * 4
    found = await scene.store.list_records(KIND)
    assert [(record.name, record.body) for record in found] == [
        ("a", b"2"),
        ("c", b"2"),
        ("d", b"2"),
    ]


# --- in a caller's transaction


@chapter.promise("M95", needs=OURS)
async def a_commit_in_a_transaction_comes_with_it(scene: Scene) -> None:
    """It is not visible before, and nothing of it is left after a rollback."""
    worker, claim = await scene.running()
    other = await scene.other()
    before = await scene.everything()
    for commits in (False, True):
        own = await scene.store.transaction(worker)
        effects = Effects([scene.job()], [Put(KIND, "a", b"1", if_version=0)])
        answer = await scene.store.commit(effects, tx=own.connection)
        assert answer.conflict is None
        assert answer.enqueued[0].created
        assert await other.list_records(KIND) == []
        if not commits:
            await own.roll_back()
            assert await scene.everything() == before
            continue
        await own.commit(outcome(claim))
        (record,) = await other.list_records(KIND)
        assert (record.body, record.version) == (b"1", answer.versions[0])
        assert await scene.state(effects.jobs[0].id) == READY


@chapter.promise("M95", needs=OURS)
async def a_conflict_leaves_a_transaction_open(scene: Scene) -> None:
    """The caller can continue; an expired record is replaced."""
    worker, claim = await scene.running()
    await scene.store.commit(
        Effects(puts=[Put(KIND, "a", b"1"), Put(KIND, "b", b"1", ttl_seconds=5.0)])
    )
    await scene.store.set_queue(
        OTHER_LANE, QueueChange(closed=True), AuditNote(who="ann")
    )
    scene.clock.advance(6.0)
    own = await scene.store.transaction(worker)
    puts = [Put(KIND, name, b"2", if_version=0) for name in "ba"]
    job = scene.job()
    answer = await scene.store.commit(Effects([job], puts), tx=own.connection)
    assert answer.conflict is not None
    assert (answer.conflict.what, answer.conflict.name) == ("record", "a")
    closed = Effects([scene.job(lane=OTHER_LANE)], puts[:1])
    answer = await scene.store.commit(closed, tx=own.connection)
    assert answer.conflict is not None
    assert (answer.conflict.what, answer.conflict.name) == ("full", OTHER_LANE)
    answer = await scene.store.commit(Effects([job], puts[:1]), tx=own.connection)
    assert answer.conflict is None
    await own.commit(outcome(claim))
    found = await scene.store.list_records(KIND)
    assert [(record.name, record.body) for record in found] == [
        ("a", b"1"),
        ("b", b"2"),
    ]
    assert await scene.state(job.id) == READY


@chapter.promise("M95", needs=OURS)
async def a_full_queue_takes_jobs_of_a_transaction(scene: Scene) -> None:
    """The result says so, as for `enqueue(tx=...)`."""
    await scene.store.declare({LANE: 1})
    worker, claim = await scene.running()
    await scene.add()
    own = await scene.store.transaction(worker)
    answer = await scene.store.commit(Effects([scene.job()]), tx=own.connection)
    assert answer.conflict is None
    assert answer.enqueued[0].created
    assert answer.enqueued[0].full is not None
    await own.commit(outcome(claim))


@chapter.promise("M95", needs=OURS)
async def a_transaction_of_others_changes_no_record(scene: Scene) -> None:
    """The transaction may last long, and others would wait for it."""
    worker, _ = await scene.running()
    (version,) = (
        await scene.store.commit(Effects(puts=[Put(KIND, "a", b"")]))
    ).versions
    own = await scene.store.transaction(worker)
    for put in (
        Put(KIND, "a", b"2"),
        Put(KIND, "a", b"2", if_version=version),
        Put(KIND, "a", None, if_version=0),
        Put(KIND, "b", None),
    ):
        try:
            await scene.store.commit(Effects(puts=[put]), tx=own.connection)
        except WrongTransaction:
            continue
        raise AssertionError("it was changed")
    await own.roll_back()
