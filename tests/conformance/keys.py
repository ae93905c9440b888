"""What a store promises about idempotency keys: every cell of one table."""

import asyncio
from typing import NamedTuple

from durio.model.job import DONE, READY, SCHEDULED
from durio.model.keys import (
    KeyPolicy,
    debounce,
    replace,
    while_active,
    while_waiting,
    window,
)
from durio.model.outcome import KeepRule, OutcomeKind
from durio.ports.control import CancelJobs
from durio.ports.enqueue import Enqueued
from tests.conformance.promises import Chapter
from tests.conformance.scene import (
    MANY,
    OTHER_PAYLOAD,
    PAYLOAD,
    Scene,
    key,
    outcome,
)

chapter = Chapter("keys")

WINDOW_SECONDS = 3600.0
POLICIES = {
    "while_waiting": while_waiting,
    "while_active": while_active,
    "window": window(WINDOW_SECONDS),
    "replace": replace,
    "debounce": debounce(5.0),
}
# What an enqueue does, by its policy and by the state of the key's holder.
TABLE = """
holder is                   while_waiting  while_active  window    replace   debounce
nobody                      new            new           new       new       new
scheduled                   existing       existing      existing  rewrite   rewrite
ready                       existing       existing      existing  rewrite   rewrite
ready, window over          existing       existing      existing  rewrite   rewrite
running                     new            existing      existing  new       new
running, window over        new            existing      existing  new       new
ready again after a retry   new            existing      existing  rewrite   rewrite
done                        new            new           existing  new       new
done, window over           new            new           new       new       new
dead                        new            new           existing  new       new
dead, window over           new            new           new       new       new
cancelled while it waited   new            new           new       new       new
cancelled while it ran      new            new           new       new       new
done and gone               new            new           new       new       new
"""


class Cell(NamedTuple):
    """One row of the table, one policy, one result."""

    holder: str
    policy: KeyPolicy
    wanted: str


def cells() -> dict[str, Cell]:
    """Return the table above, cell by cell."""
    found: dict[str, Cell] = {}
    for line in TABLE.strip().splitlines()[1:]:
        holder, words = line[:28].strip(), line[28:].split()
        for (name, policy), wanted in zip(POLICIES.items(), words, strict=True):
            found[f"{name}, {holder} -> {wanted}"] = Cell(holder, policy, wanted)
    return found


CELLS = cells()
HELD = {title: cell for title, cell in CELLS.items() if cell.wanted != "new"}


async def hold(scene: Scene, cell: Cell) -> bytes | None:
    """Bring the holder of the key into the state of the cell; return its id."""
    where, _, later = cell.holder.partition(", ")
    if where == "nobody":
        return None
    delay = 60.0 if where == "scheduled" else 0.0
    job_id = await scene.add(key=key(cell.policy), delay=delay)
    if where != "scheduled" and cell.policy.delay_seconds:
        scene.clock.advance(cell.policy.delay_seconds)
        await scene.store.promote(MANY)
    if where == "cancelled while it waited":
        await scene.store.act([job_id], CancelJobs())
    elif where not in {"scheduled", "ready"}:
        await run(scene, where)
    if later:
        scene.clock.advance(WINDOW_SECONDS + 1)
    return job_id


async def run(scene: Scene, where: str) -> None:
    """Claim the holder, and end its attempt as its place in the table says."""
    worker, claim = await scene.claim_one()
    if where == "running":
        await scene.store.renew(worker, WINDOW_SECONDS * 2)
        return
    kind = {
        "ready again after a retry": OutcomeKind.RETRY,
        "done": OutcomeKind.DONE,
        "done and gone": OutcomeKind.DONE,
        "dead": OutcomeKind.DEAD,
        "cancelled while it ran": OutcomeKind.CANCEL,
    }[where]
    keep = KeepRule(0.0) if where == "done and gone" else None
    await scene.finish(
        worker, claim, kind=kind, result=b'"paid"', reason="permanent", keep=keep
    )


def answer_kind(answer: Enqueued) -> str:
    """Return a result in the words of the table."""
    if answer.conflict:
        return "conflict"
    if answer.replaced:
        return "rewrite"
    return "new" if answer.created else "existing"


@chapter.table(CELLS, "M33", "M93")
async def cell_of_the_table(scene: Scene, cell: Cell) -> None:
    """The same arguments are enqueued again."""
    held_by = await hold(scene, cell)
    state = (
        None if held_by is None else (await scene.store.states([held_by])).get(held_by)
    )
    answer = await scene.send(key=key(cell.policy))
    assert answer_kind(answer) == cell.wanted
    assert answer.same_args
    if cell.wanted == "new":
        assert answer.id != held_by
        due = SCHEDULED if cell.policy.delay_seconds else READY
        assert (answer.state, await scene.state(answer.id)) == (due, due)
    elif cell.wanted == "existing":
        assert (answer.id, answer.state) == (held_by, state)
        assert len(await scene.records()) == 1
    else:
        assert answer.id == held_by
        assert answer.state == await scene.state(answer.id)
        assert len(await scene.records()) == 1


@chapter.table(HELD, "M33")
async def cell_with_other_arguments(scene: Scene, cell: Cell) -> None:
    """A window refuses them, `while_*` reports that they differ, `replace` accepts them."""
    held_by = await hold(scene, cell)
    before = await scene.everything()
    claim = key(cell.policy, OTHER_PAYLOAD)
    answer = await scene.send(key=claim, payload=OTHER_PAYLOAD)
    assert held_by is not None
    assert (answer.id, answer.created) == (held_by, False)
    if cell.wanted == "rewrite":
        assert answer_kind(answer) == "rewrite"
        assert (await scene.record(held_by)).payload == OTHER_PAYLOAD
        return
    refused = cell.policy.name == "window"
    assert answer_kind(answer) == ("conflict" if refused else "existing")
    assert not answer.same_args
    assert await scene.everything() == before


KEPT: dict[str, KeepRule | None] = {"as usual": None, "for a minute": KeepRule(60.0)}


@chapter.table(KEPT, "M34", "M165")
async def a_done_job_answers_with_its_result_for_the_whole_window(
    scene: Scene, keep: KeepRule | None
) -> None:
    """This holds if records or results are kept for less, and whichever process ends it."""
    policy = window(WINDOW_SECONDS)
    worker, claim = await scene.running(key=key(policy))
    ends = scene.clock.now() + WINDOW_SECONDS
    word = outcome(claim, result=b'"paid"', result_seconds=60.0, keep=keep)
    assert (await (await scene.other()).exchange(worker, [word], (), 0)).rejected == []
    scene.clock.advance(WINDOW_SECONDS - 1)
    await scene.store.prune(MANY, dead_count=0)
    answer = await scene.send(key=key(policy))
    assert (answer_kind(answer), answer.id, answer.state) == (
        "existing",
        claim.id,
        DONE,
    )
    record = await scene.record(claim.id)
    assert record.result == b'"paid"'
    assert record.result_until is not None
    assert record.result_until >= ends


@chapter.promise("M33")
async def concurrent_enqueues_of_one_key_give_one_id(scene: Scene) -> None:
    """Of 20 at once from two processes, one is created, and all get its id."""
    stores = (scene.store, await scene.other())
    jobs = [scene.job(key=key(window())) for _ in range(20)]
    calls = (stores[n % 2].enqueue([job]) for n, job in enumerate(jobs))
    answers = [answer for (answer,) in await asyncio.gather(*calls)]
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.id for answer in answers}) == 1
    assert len(await scene.records()) == 1


@chapter.promise("M33")
async def a_key_twice_in_one_call_is_one_job(scene: Scene) -> None:
    """The first of them holds the key for the others of the same call."""
    jobs = [scene.job(key=key(while_active)) for _ in range(3)]
    answers = await scene.store.enqueue([*jobs, scene.job()])
    assert [answer.created for answer in answers] == [True, False, False, True]
    assert [answer.id for answer in answers[:3]] == [jobs[0].id] * 3


@chapter.promise()
async def a_repeat_is_not_judged_by_its_key(scene: Scene) -> None:
    """The same id is the same job, even if another job holds its key by now."""
    job = scene.job(key=key(while_active))
    await scene.store.enqueue([job])
    worker, claim = await scene.claim_one()
    await scene.finish(worker, claim)
    successor = await scene.add(key=key(while_active))
    (answer,) = await scene.store.enqueue([job], again=True)
    assert (answer.id, answer_kind(answer), answer.state) == (job.id, "existing", DONE)
    assert await scene.is_ready(successor)


@chapter.promise()
async def replace_rewrites_all_but_the_id_and_the_fence(scene: Scene) -> None:
    """Arguments, options, priority and due time are the new ones."""
    worker, claim = await scene.running(key=key(replace), opts=b"{}")
    await scene.finish(worker, claim, kind=OutcomeKind.RETRY, delay_seconds=60.0)
    answer = await scene.send(
        key=key(replace, OTHER_PAYLOAD),
        payload=OTHER_PAYLOAD,
        priority=9,
        opts=b'{"key":"k"}',
        delay=10.0,
    )
    assert (answer_kind(answer), answer.id, answer.state) == (
        "rewrite",
        claim.id,
        SCHEDULED,
    )
    record = await scene.record(claim.id)
    assert (record.payload, record.opts) == (OTHER_PAYLOAD, b'{"key":"k"}')
    assert (record.rank, record.claim_no) == (0, 1)
    assert record.run_at == scene.clock.now() + 10
    again = await scene.send(key=key(replace))
    assert (answer_kind(again), again.state) == ("rewrite", READY)
    (claimed,) = await scene.claim(worker)
    assert (claimed.claim_no, claimed.payload) == (2, PAYLOAD)


@chapter.promise()
async def a_successor_takes_the_key_and_keeps_it(scene: Scene) -> None:
    """The end of its predecessor does not free a key that is no longer its own."""
    worker, claim = await scene.running(key=key(replace))
    successor = await scene.send(key=key(replace))
    assert answer_kind(successor) == "new"
    await scene.finish(worker, claim)
    third = await scene.send(key=key(replace, OTHER_PAYLOAD), payload=OTHER_PAYLOAD)
    assert (answer_kind(third), third.id) == ("rewrite", successor.id)
    assert (await scene.record(successor.id)).payload == OTHER_PAYLOAD


@chapter.promise()
async def debounce_waits_for_the_last_one(scene: Scene) -> None:
    """Each submission moves the due time to five seconds from then; the job runs once."""
    worker = await scene.worker()
    policy = debounce(5.0)
    first = await scene.send(key=key(policy))
    assert (answer_kind(first), first.state) == ("new", SCHEDULED)
    for _ in range(3):
        scene.clock.advance(4.0)
        assert await scene.claim(worker) == []
        pushed = await scene.send(key=key(policy))
        assert (answer_kind(pushed), pushed.id) == ("rewrite", first.id)
    assert (await scene.record(first.id)).run_at == scene.clock.now() + 5
    scene.clock.advance(4.75)
    assert await scene.claim(worker) == []
    scene.clock.advance(0.25)
    assert [claim.id for claim in await scene.claim(worker)] == [first.id]


@chapter.promise()
async def debounce_waits_no_longer_than_max_wait(scene: Scene) -> None:
    """However often it is moved, the job is due at most this long after the first."""
    policy = debounce(5.0, max_wait=12.0)
    began = scene.clock.now()
    first = await scene.send(key=key(policy))
    for wanted in (9.0, 12.0, 12.0):
        scene.clock.advance(4.0)
        assert answer_kind(await scene.send(key=key(policy))) == "rewrite"
        assert (await scene.record(first.id)).run_at == began + wanted


@chapter.promise()
async def a_debounced_successor_waits_too(scene: Scene) -> None:
    """While the first one runs, the next has its own due time."""
    policy = debounce(5.0)
    first = await scene.add(key=key(policy))
    scene.clock.advance(5.0)
    _, claim = await scene.claim_one()
    assert claim.id == first
    successor = await scene.send(key=key(policy))
    assert (answer_kind(successor), successor.state) == ("new", SCHEDULED)
    assert (await scene.record(successor.id)).run_at == scene.clock.now() + 5
