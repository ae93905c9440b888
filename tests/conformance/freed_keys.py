"""What a store promises about the end of a key: freed on every way out, once."""

from collections.abc import Awaitable, Callable

from durio.model.job import CANCELLED, DEAD, READY, RUNNING
from durio.model.keys import replace, while_active, while_waiting, window
from durio.model.outcome import OutcomeKind
from durio.ports.control import Acted, CancelJobs, RetryJobs
from durio.ports.exchange import Lane
from tests.conformance.keys import answer_kind
from tests.conformance.promises import Chapter
from tests.conformance.scene import LANE, Scene, key, outcome

chapter = Chapter("freed_keys")

Way = Callable[[Scene, bytes], Awaitable[None]]


def ended(kind: OutcomeKind) -> Way:
    """Return a way out by an outcome of the worker."""

    async def end(scene: Scene, job_id: bytes) -> None:
        worker, claim = await scene.claim_one()
        assert claim.id == job_id
        await scene.finish(worker, claim, kind=kind, reason="permanent")

    return end


async def cancelled_waiting(scene: Scene, job_id: bytes) -> None:
    """Cancel it as an operator, before it runs."""
    await scene.store.act([job_id], CancelJobs())


def cancelled_running(*, rescued: bool) -> Way:
    """Return a way out by an operator's cancel of a running job, at its next way out."""

    async def end(scene: Scene, job_id: bytes) -> None:
        worker, claim = await scene.claim_one()
        await scene.store.act([job_id], CancelJobs())
        if rescued:
            await scene.lose(worker)
        else:
            await scene.exchange(worker, [outcome(claim, OutcomeKind.RELEASE)], want=0)

    return end


async def left(scene: Scene, job_id: bytes) -> None:
    """Let a worker leave after a cancel was requested."""
    worker, _ = await scene.claim_one()
    await scene.store.act([job_id], CancelJobs())
    await scene.store.leave(worker)


def lost(*, named: bool) -> Way:
    """Return a way out by the third loss in a row, alone or as the known cause."""

    async def end(scene: Scene, job_id: bytes) -> None:
        for _ in range(2):
            worker, claim = await scene.claim_one()
            await scene.lose(worker)
        worker, claim = await scene.claim_one()
        if named:
            await scene.crash_child(worker, claim)
        else:
            await scene.finish(worker, claim, kind=OutcomeKind.ALONE)
            await scene.lose(worker)
        assert await scene.state(job_id) == DEAD

    return end


WAYS: dict[str, Way] = {
    "done": ended(OutcomeKind.DONE),
    "dead": ended(OutcomeKind.DEAD),
    "cancelled by the task": ended(OutcomeKind.CANCEL),
    "cancelled while waiting": cancelled_waiting,
    "cancelled, then released": cancelled_running(rescued=False),
    "cancelled, then rescued": cancelled_running(rescued=True),
    "cancelled, then the worker left": left,
    "third loss, alone": lost(named=False),
    "third loss, guilty": lost(named=True),
}


@chapter.table(WAYS, "M93")
async def key_freed_on_every_way_out(scene: Scene, way: Way) -> None:
    """`while_active` and `replace` free it at the final state, a cancel in every mode."""
    for policy in (while_active, replace, window()):
        job_id = await scene.add(key=key(policy))
        await way(scene, job_id)
        if policy.name == "window" and await scene.state(job_id) != CANCELLED:
            return
        answer = await scene.send(key=key(policy))
        assert answer_kind(answer) == "new", policy.name
        await scene.store.act([job_id, answer.id], CancelJobs())


@chapter.promise("M93")
async def a_job_that_is_sent_back_has_its_key_again(scene: Scene) -> None:
    """The same submission finds it, as if it had never ended."""
    for policy, found in ((while_active, "existing"), (replace, "rewrite")):
        job_id = await scene.dead(key=key(policy))
        acted = await scene.store.act([job_id], RetryJobs())
        assert acted == [Acted(job_id, DEAD, READY)]
        answer = await scene.send(key=key(policy))
        assert (answer_kind(answer), answer.id) == (found, job_id), policy.name
        worker, claim = await scene.claim_one()
        await scene.finish(worker, claim)
        assert answer_kind(await scene.send(key=key(policy))) == "new"
        await scene.finish(*await scene.claim_one())


@chapter.promise("M93")
async def a_job_whose_key_another_one_has_is_not_sent_back(scene: Scene) -> None:
    """Two jobs with one key would run; when the other has ended, the retry succeeds."""
    for policy in (while_active, replace, while_waiting):
        job_id = await scene.dead(key=key(policy))
        heir = await scene.add(key=key(policy))
        before = await scene.everything()
        acted = await scene.store.act([job_id], RetryJobs())
        assert acted == [Acted(job_id, DEAD, DEAD)]
        assert await scene.everything() == before
        await scene.store.act([heir], CancelJobs())
        acted = await scene.store.act([job_id], RetryJobs())
        assert acted == [Acted(job_id, DEAD, READY)]
        await scene.finish(*await scene.claim_one())


@chapter.promise("M93")
async def a_window_that_is_over_is_not_taken_again(scene: Scene) -> None:
    """Within the window a dead job still holds its key, even if it is retried."""
    job_id = await scene.dead(key=key(window(100.0)))
    await scene.store.act([job_id], RetryJobs())
    answer = await scene.send(key=key(window(100.0)))
    assert (answer_kind(answer), answer.id) == ("existing", job_id)
    await scene.store.act([job_id], CancelJobs())
    await scene.store.act([job_id], RetryJobs())
    assert answer_kind(await scene.send(key=key(window(100.0)))) == "new"


@chapter.promise("M93")
async def a_key_is_freed_by_whichever_process_finishes(scene: Scene) -> None:
    """No process needs what another one remembers of a claim."""
    other = await scene.other()
    for claimer, finisher in ((scene.store, other), (other, scene.store)):
        job_id = await scene.add(key=key(while_active))
        worker = await scene.worker()
        exchanged = await claimer.exchange(worker, [], [Lane(LANE, 1)], 1)
        words = [outcome(claim) for claim in exchanged.claims]
        assert [word.id for word in words] == [job_id]
        assert (await finisher.exchange(worker, words, [], 0)).rejected == []
    assert answer_kind(await scene.send(key=key(while_active))) == "new"


@chapter.promise()
async def a_key_is_held_until_the_last_attempt_is_over(scene: Scene) -> None:
    """Retries, snoozes, releases and losses do not free it."""
    job_id = await scene.add(key=key(while_active))
    for kind in (
        OutcomeKind.RETRY,
        OutcomeKind.SNOOZE,
        OutcomeKind.RELEASE,
        OutcomeKind.LOST,
    ):
        worker, claim = await scene.claim_one()
        assert await scene.state(job_id) == RUNNING
        if kind is OutcomeKind.LOST:
            await scene.lose(worker)
        else:
            await scene.finish(worker, claim, kind=kind)
        answer = await scene.send(key=key(while_active))
        assert (answer_kind(answer), answer.id) == ("existing", job_id), kind.name
