"""What a store promises about jobs that expire: their records, and the action that ends them."""

from durio.model.codec import encoder
from durio.model.effects import Effects
from durio.model.expiry import expiries_kind, job_of_expiry
from durio.model.job import (
    BLOCKED,
    CANCELLED,
    DEAD,
    DONE,
    READY,
    RUNNING,
    SCHEDULED,
    NewJob,
)
from durio.model.keys import replace, while_active, window
from durio.model.logs import DEAD_END, OnEnd, Wait
from durio.model.options import RowOptions, row_options
from durio.ports.browse import DeathCount
from durio.ports.control import Acted, CancelJobs, KillJobs, RetryJobs
from durio.ports.records import Due
from tests.conformance.keys import answer_kind
from tests.conformance.promises import Chapter
from tests.conformance.scene import (
    LANE,
    MANY,
    OTHER_PAYLOAD,
    SHOP,
    TASK,
    Scene,
    key,
)

chapter = Chapter("expiry")

KIND = expiries_kind(SHOP)
WAITED, ENDED = "w:shop/1", "t:shop/1"
ERROR = b'{"type":"JobExpired","message":"late","attempt":1}'
KILL = KillJobs("expired", ERROR)


def expiring(scene: Scene, after: float, **fields: object) -> NewJob:
    at = scene.clock.now() + after
    opts = encoder.encode(RowOptions(expires=at, meta={"expires": 1}))
    return scene.job(expires_at=at, opts=opts, **fields)


async def due(scene: Scene) -> tuple[list[bytes | None], Due]:
    found = await scene.store.due_records(KIND, limit=2 * MANY)
    return [job_of_expiry(record.name) for record in found.records], found


@chapter.promise()
async def a_job_that_expires_is_written_with_its_record(scene: Scene) -> None:
    """The record is due then; a repeat of the enqueue and a plain job write none."""
    job = expiring(scene, 60.0)
    both = [job, scene.job()]
    await scene.store.enqueue(both)
    await scene.store.enqueue(both, again=True)
    ids, found = await due(scene)
    assert ids == []
    assert found.next_due_seconds == 60.0
    scene.clock.advance(60.0)
    ids, found = await due(scene)
    assert ids == [job.id]
    assert found.next_due_seconds is None


@chapter.promise()
async def every_way_to_store_a_job_writes_the_record(scene: Scene) -> None:
    """A keyed job, a scheduled one, a node, a thousand, and jobs of a commit."""
    jobs = [
        expiring(scene, 10.0, key=key(while_active)),
        expiring(scene, 10.0, delay=5.0),
        expiring(scene, 10.0, wait=Wait(WAITED, 0), on_end=(OnEnd(ENDED),)),
    ]
    for job in jobs:
        await scene.store.enqueue([job])
    many = [expiring(scene, 10.0) for _ in range(1000)]
    await scene.store.enqueue(many)
    committed = [expiring(scene, 10.0) for _ in range(2)]
    answer = await scene.store.commit(Effects(jobs=committed))
    assert answer.conflict is None
    scene.clock.advance(10.0)
    found = await scene.store.due_records(KIND, limit=2000)
    names = {job_of_expiry(record.name) for record in found.records}
    assert names == {job.id for job in (*jobs, *many, *committed)}
    assert len(found.records) == len(names)


@chapter.promise()
async def a_job_that_is_not_stored_writes_no_record(scene: Scene) -> None:
    """Another job has the key; one that takes the place of that job gives it the expiry."""
    holder = await scene.add(key=key(replace), delay=50.0)
    await scene.store.enqueue(
        [expiring(scene, 10.0, key=key(replace, OTHER_PAYLOAD), payload=OTHER_PAYLOAD)]
    )
    scene.clock.advance(10.0)
    ids, _ = await due(scene)
    assert ids == [holder]
    assert row_options((await scene.record(holder)).opts).expires is not None
    await scene.add(key=key(while_active, text="other"))
    await scene.send(key=key(while_active, text="other"))
    job = expiring(scene, 10.0, key=key(while_active, text="other"))
    (answer,) = await scene.store.enqueue([job])
    assert not answer.created
    scene.clock.advance(10.0)
    assert (await due(scene))[0] == [holder]


# --- the action


async def in_every_state(scene: Scene) -> dict[int, bytes]:
    running = (await scene.running())[1].id
    cancelled = await scene.add()
    await scene.store.act([cancelled], CancelJobs())
    worker, claim = await scene.running()
    await scene.finish(worker, claim)
    dead = await scene.dead()
    return {
        BLOCKED: await scene.add(
            wait=Wait(WAITED, 0), on_end=(OnEnd(ENDED, DEAD_END),)
        ),
        SCHEDULED: await scene.add(delay=60.0),
        READY: await scene.add(),
        RUNNING: running,
        DONE: claim.id,
        DEAD: dead,
        CANCELLED: cancelled,
    }


@chapter.promise()
async def jobs_that_wait_can_be_made_dead(scene: Scene) -> None:
    """They have a reason and an error; jobs in other states stay unchanged."""
    jobs = await in_every_state(scene)
    unknown = scene.clock.new_id()
    others = [jobs[state] for state in (RUNNING, DONE, DEAD, CANCELLED)]
    before = [await scene.record(job_id) for job_id in others]
    assert await scene.store.act([*jobs.values(), unknown], KILL) == [
        *(Acted(jobs[state], state, DEAD) for state in KILL.states),
        *(Acted(jobs[state], state, state) for state in (RUNNING, DONE)),
        Acted(jobs[DEAD], DEAD, DEAD),
        Acted(jobs[CANCELLED], CANCELLED, CANCELLED),
        Acted(unknown, None, None),
    ]
    assert [await scene.record(job_id) for job_id in others] == before
    for state in KILL.states:
        job = await scene.record(jobs[state])
        assert (job.state, job.reason) == (DEAD, "expired")
        assert job.errors == b"[" + ERROR + b"]"
        assert job.finished_at == scene.clock.now()
    assert await scene.claim(await scene.worker()) == []
    assert [entry.state for entry in await scene.log(ENDED)] == [DEAD]
    counts = await scene.store.tallies(SHOP)
    assert DeathCount(LANE, TASK, "JobExpired", 3) in counts


@chapter.promise()
async def an_error_is_added_to_those_of_earlier_attempts(scene: Scene) -> None:
    """Of more than 50 the oldest is forgotten."""
    job_id = await scene.add()
    for _ in range(52):
        assert (await scene.store.act([job_id], KILL))[0].after == DEAD
        assert (await scene.store.act([job_id], RetryJobs()))[0].after == READY
    await scene.store.act([job_id], KillJobs("expired", b'{"type":"Last"}'))
    errors = (await scene.record(job_id)).errors or b""
    assert errors.count(b"JobExpired") == 49
    assert errors.endswith(b'{"type":"Last"}]')


@chapter.promise()
async def a_dead_job_leaves_its_place_in_a_full_queue(scene: Scene) -> None:
    await scene.store.declare({LANE: 1})
    first = await scene.add()
    assert (await scene.send()).full is not None
    await scene.store.act([first], KILL)
    await scene.add()


@chapter.promise()
async def a_key_is_freed_but_for_a_window(scene: Scene) -> None:
    for policy, kind in ((while_active, "new"), (window("1h"), "existing")):
        text = policy.name
        job_id = await scene.add(key=key(policy, text=text), delay=5.0)
        await scene.store.act([job_id], KILL)
        answer = await scene.send(key=key(policy, text=text))
        assert answer_kind(answer) == kind, policy.name


@chapter.promise()
async def a_retry_by_hand_ends_the_expiry(scene: Scene) -> None:
    """Other options stay; a job that waited for a log waits again."""
    job = expiring(scene, 5.0)
    node = expiring(scene, 5.0, wait=Wait(WAITED, 0))
    await scene.store.enqueue([job, node])
    await scene.store.act([job.id, node.id], KILL)
    await scene.store.act([job.id, node.id], RetryJobs())
    for job_id, state in ((job.id, READY), (node.id, BLOCKED)):
        found = await scene.record(job_id)
        assert found.state == state
        assert row_options(found.opts) == RowOptions(meta={"expires": 1})


@chapter.promise(needs=("fault",))
async def a_failed_kill_changes_nothing(scene: Scene) -> None:
    ended = (OnEnd(ENDED, DEAD_END),)
    ids = [
        await scene.add(key=key(while_active), on_end=ended),
        await scene.add(wait=Wait(WAITED, 0), on_end=ended),
    ]
    acted = await scene.after_every_fault(lambda: scene.store.act(ids, KILL))
    assert [one.after for one in acted] == [DEAD, DEAD]
    assert len(await scene.log(ENDED)) == 2


@chapter.promise(needs=("fault",))
async def a_failed_enqueue_writes_no_record(scene: Scene) -> None:
    job = expiring(scene, 5.0)
    await scene.after_every_fault(lambda: scene.store.enqueue([job]))
    scene.clock.advance(5.0)
    assert (await due(scene))[0] == [job.id]
