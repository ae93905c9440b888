"""What a store promises about jobs that get another task, and about their keys."""

from durio.client.bulk import BulkStep
from durio.model.codec import encoder
from durio.model.job import DEAD, READY, RUNNING, SCHEDULED, KeyClaim
from durio.model.keys import KeyPolicy, key_claim, while_active, window
from durio.model.options import RowOptions
from durio.ports.browse import Query
from durio.ports.control import Acted, AuditNote, RenameJobs, RetryJobs
from tests.bulk_actions import run_bulk
from tests.conformance.bulk import die
from tests.conformance.keys import answer_kind
from tests.conformance.promises import Chapter
from tests.conformance.scene import MANY, PAYLOAD, TASK, Scene, key

chapter = Chapter("renames")

NEW_TASK = "shop.pay_order"
OLD_JOBS = Query(namespace="shop", task=TASK)
WITH_KEY = encoder.encode(RowOptions(key="k"))


def new_key(policy: KeyPolicy) -> KeyClaim:
    """The same key under the new name."""
    return key_claim(policy, NEW_TASK, "k", PAYLOAD)


@chapter.promise()
async def waiting_and_dead_jobs_get_another_task(scene: Scene) -> None:
    """Only their task changes; running and done jobs, and those of others, stay."""
    dead = await die(scene, b'{"type":"E"}')
    worker, done = await scene.running()
    await scene.finish(worker, done)
    _, running = await scene.running()
    waiting = [await scene.add(), await scene.add(delay=60.0), await scene.add()]
    other = await scene.add(task="shop.mail")
    before = {record.id: record for record in await scene.records()}
    assert await run_bulk(
        scene.store, OLD_JOBS, RenameJobs(NEW_TASK), step_jobs=2
    ) == BulkStep(4, 0)
    for job_id in (dead, *waiting):
        assert await scene.record(job_id) == before[job_id]._replace(task=NEW_TASK)
    for job_id in (done.id, running.id, other):
        assert await scene.record(job_id) == before[job_id]
    claims = await scene.claim(worker, MANY)
    assert [(c.id, c.task) for c in claims] == [
        (waiting[0], NEW_TASK),
        (waiting[2], NEW_TASK),
        (other, "shop.mail"),
    ]
    line = (await scene.store.audit("shop", limit=MANY))[0]
    assert (line.who, line.verb) == ("ann", "rename")
    assert (line.target, line.jobs) == (f"{TASK} to {NEW_TASK}", 4)


@chapter.promise()
async def a_job_is_renamed_by_its_id(scene: Scene) -> None:
    """One that runs, or that is not there, is left as it is."""
    ready, unknown = await scene.add(), scene.clock.new_id()
    _, running = await scene.running(lane="shop:mail")
    note = AuditNote(who="ann")
    ids = [ready, running.id, unknown]
    assert await scene.store.act(ids, RenameJobs(NEW_TASK), note=note) == [
        Acted(ready, READY, READY),
        Acted(running.id, RUNNING, RUNNING),
        Acted(unknown, None, None),
    ]
    assert (await scene.record(ready)).task == NEW_TASK
    assert (await scene.record(running.id)).task == TASK


@chapter.promise("M33")
async def a_key_goes_along(scene: Scene) -> None:
    """The job answers for it under the new name, and no longer under the old one."""
    held = await scene.add(key=key(while_active), opts=WITH_KEY)
    await scene.store.act([held], RenameJobs(NEW_TASK))
    answer = await scene.send(task=NEW_TASK, key=new_key(while_active))
    assert (answer_kind(answer), answer.id, answer.same_args) == (
        "existing",
        held,
        True,
    )
    assert answer_kind(await scene.send(key=key(while_active))) == "new"
    # At its end the job frees the key of the new name.
    worker = await scene.worker()
    (claim,) = await scene.claim(worker, 1)
    assert claim.id == held
    await scene.finish(worker, claim)
    again = await scene.send(task=NEW_TASK, key=new_key(while_active))
    assert answer_kind(again) == "new"


@chapter.promise("M33")
async def a_window_goes_along_with_a_dead_job(scene: Scene) -> None:
    """It ends when it would have ended."""
    dead = await scene.dead(key=key(window(100.0)), opts=WITH_KEY)
    await scene.store.act([dead], RenameJobs(NEW_TASK))
    answer = await scene.send(task=NEW_TASK, key=new_key(window(100.0)))
    assert (answer_kind(answer), answer.id) == ("existing", dead)
    scene.clock.advance(101.0)
    answer = await scene.send(task=NEW_TASK, key=new_key(window(100.0)))
    assert answer_kind(answer) == "new"


@chapter.promise("M33")
async def a_dead_job_takes_its_key_again_under_the_new_name(scene: Scene) -> None:
    """It did not hold the key while it was dead."""
    dead = await scene.dead(key=key(while_active), opts=WITH_KEY)
    await scene.store.act([dead], RenameJobs(NEW_TASK))
    assert await scene.store.act([dead], RetryJobs()) == [Acted(dead, DEAD, READY)]
    answer = await scene.send(task=NEW_TASK, key=new_key(while_active))
    assert (answer_kind(answer), answer.id) == ("existing", dead)
    assert answer_kind(await scene.send(key=key(while_active))) == "new"


@chapter.promise("M33")
async def a_job_stays_when_another_one_has_its_key(scene: Scene) -> None:
    """Two jobs that must be one keep their names, until the other one has ended."""
    old = await scene.add(key=key(while_active), opts=WITH_KEY, delay=60.0)
    other = await scene.add(
        task=NEW_TASK, key=new_key(while_active), opts=WITH_KEY, lane="shop:mail"
    )
    held = Acted(old, SCHEDULED, SCHEDULED, is_held=True)
    assert await scene.store.act([old], RenameJobs(NEW_TASK)) == [held]
    assert await run_bulk(scene.store, OLD_JOBS, RenameJobs(NEW_TASK)) == BulkStep(0, 1)
    assert (await scene.record(old)).task == TASK
    answer = await scene.send(key=key(while_active))
    assert (answer_kind(answer), answer.id) == ("existing", old)
    worker, claim = await scene.claim_one("shop:mail")
    assert claim.id == other
    await scene.finish(worker, claim)
    assert await run_bulk(scene.store, OLD_JOBS, RenameJobs(NEW_TASK)) == BulkStep(1, 0)
    answer = await scene.send(task=NEW_TASK, key=new_key(while_active))
    assert (answer_kind(answer), answer.id) == ("existing", old)


@chapter.promise("M33")
async def a_job_without_the_text_of_its_key_stays(scene: Scene) -> None:
    """Its key cannot be hashed with another name."""
    ids = [
        await scene.add(key=key(while_active, text=text), opts=opts)
        for text, opts in (("a", None), ("b", b"damaged"))
    ]
    acted = await scene.store.act(ids, RenameJobs(NEW_TASK))
    assert acted == [Acted(job_id, READY, READY, is_held=True) for job_id in ids]
    assert {(await scene.record(job_id)).task for job_id in ids} == {TASK}


@chapter.promise(needs=("fault",))
async def a_rename_does_all_or_nothing(scene: Scene) -> None:
    """A fault at whichever statement leaves no job, key or line behind."""
    await die(scene, key=key(while_active), opts=WITH_KEY)
    await scene.add(key=key(while_active), opts=WITH_KEY)
    await scene.add(delay=9.0)
    mark = (await scene.store.count(OLD_JOBS)).mark
    ids = [record.id for record in await scene.records(OLD_JOBS)]

    async def rename() -> list[Acted]:
        note = AuditNote("shop", "ann", target="a rename")
        only = (OLD_JOBS, mark)
        return await scene.store.act(ids, RenameJobs(NEW_TASK), only=only, note=note)

    assert len(await scene.after_every_fault(rename)) == len(ids)
    assert len(await scene.store.audit(None, limit=MANY)) == 1
