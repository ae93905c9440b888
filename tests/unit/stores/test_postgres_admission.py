"""Which jobs of an enqueue are stored: judged in memory, from what was read under locks."""

from typing import Any

import pytest

from durio.model.errors import InvariantBroken
from durio.model.job import DONE, READY, RUNNING, SCHEDULED, NewJob
from durio.model.keys import (
    KeyPolicy,
    debounce,
    key_claim,
    replace,
    while_active,
    window,
)
from durio.ports.enqueue import Full
from durio.stores.postgres.admission import (
    Admission,
    AdmissionInput,
    StaleRead,
    StoredState,
)
from durio.stores.postgres.bounds import PostgresGuard
from durio.stores.postgres.keys import new_hold

NOW = 1_000.0
LANE, MAIL = "shop:default", "shop:mail"
TASK = "shop.pay"
OPEN = PostgresGuard(limit=3, depth=0, soft_limit=0, is_closed=False)


def new_job(n: int, policy: KeyPolicy | None = None, **fields: Any) -> NewJob:
    """Job number `n`; with a policy it has the key that all of these have."""
    payload = fields.setdefault("payload", b"[[],{}]")
    key = None if policy is None else key_claim(policy, TASK, "k", payload)
    given = {"lane": LANE, "rank": 4, "task": TASK, "key": key}
    return NewJob(**{"id": bytes([n]) * 16, **given, **fields})


def plan_of(**fields: Any) -> Admission:
    """A plan on nothing but what is given."""
    known: dict[str, Any] = {
        "now": NOW,
        "guards": {},
        "locked_lanes": frozenset({LANE, MAIL}),
        "namespaces_with_workers": frozenset({"shop"}),
        "stored": {},
        "held": {},
    }
    return Admission(AdmissionInput(**{**known, **fields}))


def held_by(n: int, job: NewJob, **stored: Any) -> dict[str, Any]:
    """The key of that job is held by job number `n`."""
    assert job.key is not None
    holder = bytes([n]) * 16
    return {
        "held": {job.key.key: new_hold(holder, job.key, NOW)},
        "stored": {holder: StoredState(**{"state": READY, "lane": LANE, **stored})},
    }


def test_calls_must_be_the_jobs() -> None:
    with pytest.raises(InvariantBroken, match="calls of 3 jobs, but 1 jobs"):
        plan_of().enqueue([new_job(1)], [1, 2])


@pytest.mark.proves("M36", "M37")
def test_nobody_takes_the_room_that_was_too_small_for_one_before() -> None:
    plan = plan_of(guards={LANE: OPEN})
    jobs = [*map(new_job, range(1, 7)), new_job(7, lane=MAIL)]
    answers = plan.enqueue(jobs, [2, 3, 1, 1])
    full = Full(LANE, 2, 3)
    assert [a.full for a in answers] == [None] * 2 + [full] * 4 + [None]
    assert plan.entered == {LANE: 2}
    assert list(plan.drafts) == [jobs[0].id, jobs[1].id, jobs[6].id]


@pytest.mark.proves("M36", "M37")
def test_a_refused_call_leaves_nothing_behind() -> None:
    """Neither jobs nor keys nor places, though its first jobs had room."""
    plan = plan_of(guards={LANE: OPEN})
    jobs = [new_job(1, while_active), *map(new_job, (2, 3, 4)), new_job(5, replace)]
    answers = plan.enqueue(jobs, [4, 1])
    assert [a.full is not None for a in answers] == [True] * 5
    assert (plan.drafts, plan.holds, +plan.entered) == ({}, {}, {})


def test_what_stands_needs_no_room() -> None:
    stored = {new_job(1).id: StoredState(DONE, LANE)}
    full = PostgresGuard(limit=1, depth=1, soft_limit=0, is_closed=False)
    plan = plan_of(guards={LANE: full}, stored=stored)
    (answer,) = plan.enqueue([new_job(1)], [1])
    assert (answer.created, answer.state, answer.full) == (False, DONE, None)


def test_a_closed_queue_says_so_whatever_its_room() -> None:
    closed = PostgresGuard(limit=None, depth=0, soft_limit=0, is_closed=True)
    (answer,) = plan_of(guards={LANE: closed}).enqueue([new_job(1)], [1])
    assert answer.full == Full(LANE, 0, 0, is_closed=True)


@pytest.mark.proves("M35")
def test_a_mark_is_obeyed_while_somebody_may_take_it() -> None:
    marked = PostgresGuard(limit=None, depth=9, soft_limit=5, is_closed=False)
    plan = plan_of(guards={LANE: marked})
    (answer,) = plan.enqueue([new_job(1)], [1])
    assert answer.full == Full(LANE, 9, 5, is_soft=True)
    assert plan.stale_soft_marks == set()
    plan = plan_of(guards={LANE: marked}, namespaces_with_workers=frozenset())
    (answer,) = plan.enqueue([new_job(1)], [1])
    assert (answer.created, plan.stale_soft_marks) == (True, {LANE})
    assert +plan.entered == {}, "only a bound of its own counts"


# --- keys


def test_a_key_twice_in_one_call_is_one_job() -> None:
    plan = plan_of()
    answers = plan.enqueue([new_job(1, while_active), new_job(2, while_active)], [2])
    assert [(a.id, a.created) for a in answers] == [
        (new_job(1).id, True),
        (new_job(1).id, False),
    ]
    assert list(plan.drafts) == [new_job(1).id]


def test_a_job_of_the_same_call_is_rewritten_before_it_is_stored() -> None:
    """It stays a new job, with the last arguments and in the last queue."""
    plan = plan_of(guards={LANE: OPEN, MAIL: OPEN})
    last = new_job(2, replace, payload=b"2", lane=MAIL, delay_seconds=5.0)
    first, second = plan.enqueue([new_job(1, replace), last], [1, 1])
    assert (first.created, second.replaced) == (True, True)
    assert (second.id, second.state, second.same_args) == (first.id, SCHEDULED, False)
    (draft,) = plan.drafts.values()
    assert (draft.is_new, draft.id, draft.payload) == (True, first.id, b"2")
    assert (draft.lane, draft.run_at) == (MAIL, NOW + 5.0)
    assert plan.entered == {LANE: 0, MAIL: 1}
    assert last.key is not None
    assert plan.holds == {last.key.key: new_hold(first.id, last.key, NOW)}


def test_a_rewritten_holder_waits_no_longer_than_it_may() -> None:
    job = new_job(1, debounce(60.0, max_wait=100.0))
    plan = plan_of(**held_by(9, job, state=SCHEDULED, created_at=NOW - 90.0))
    (answer,) = plan.enqueue([job], [1])
    assert (answer.replaced, answer.id) == (True, bytes([9]) * 16)
    (draft,) = plan.drafts.values()
    assert (draft.is_new, draft.run_at) == (False, NOW + 10.0)
    assert draft.created_at == NOW - 90.0


def test_a_holder_that_was_elsewhere_when_guards_were_locked() -> None:
    """Its place there would not be counted: all is read anew."""
    job = new_job(1, replace)
    plan = plan_of(**held_by(9, job, lane="shop:other"))
    with pytest.raises(StaleRead):
        plan.enqueue([job], [1])


def test_a_holder_without_a_record_holds_nothing() -> None:
    job = new_job(1, window())
    plan = plan_of(held=held_by(9, job)["held"])
    (answer,) = plan.enqueue([job], [1])
    assert (answer.created, answer.id) == (True, job.id)
    assert job.key is not None
    assert plan.holds[job.key.key].id == job.id


@pytest.mark.parametrize(
    ("policy", "state"), [(replace, READY), (while_active, RUNNING)]
)
def test_a_running_holder(policy: KeyPolicy, state: int) -> None:
    """A successor takes the key, or there is none."""
    job = new_job(1, policy)
    plan = plan_of(**held_by(9, job, state=RUNNING))
    (answer,) = plan.enqueue([job], [1])
    assert (answer.created, answer.state) == (state == READY, state)
    assert bool(plan.holds) is answer.created
