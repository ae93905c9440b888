"""Bulk actions: how many jobs a step takes, when they end, what is met a second time."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from durio.client.bulk import BulkStep, CountedJobs, act_in_bulk
from durio.host.clock import HostClock
from durio.model.job import BLOCKED, CANCELLED, DEAD, READY, RUNNING, SCHEDULED
from durio.ports.browse import Page, Query
from durio.ports.control import (
    Acted,
    Action,
    AuditNote,
    CancelJobs,
    DiscardJobs,
    MoveJobs,
    RenameJobs,
    RetryJobs,
)

MARK = "up to here"
ALL = Query()


class FakeStore:
    """Jobs by state; `locked` are locked for the first few attempts."""

    def __init__(self, jobs: dict[int, int], locked: dict[bytes, int] | None = None):
        self.jobs = {
            b"%d-%d" % (state, n): state
            for state, many in jobs.items()
            for n in range(many)
        }
        self.locked = locked or {}
        self.pages: list[tuple[int, int]] = []  # state, limit
        self.notes: list[AuditNote] = []

    async def find(
        self, query: Query, *, limit: int, cursor: str | None, mark: str
    ) -> Page:
        assert mark == MARK
        (state,) = query.states or ()
        self.pages.append((state, limit))
        after = b"" if cursor is None else cursor.encode()
        left = sorted(i for i, s in self.jobs.items() if s == state and i > after)
        ids = left[:limit]
        more = len(ids) == limit
        return Page([], ids[-1].decode() if more else None, ids)

    async def act(
        self, ids: Sequence[bytes], action: Action, *, only: Any, note: AuditNote
    ) -> list[Acted]:
        assert only[1] == MARK
        self.notes.append(note)
        acted: list[Acted] = []
        for job_id in ids:
            state = self.jobs[job_id]
            is_held = self.locked.get(job_id, 0) > 0
            if is_held:
                self.locked[job_id] -= 1
            else:
                self.jobs[job_id] = -1
            after = state if is_held or not isinstance(action, RetryJobs) else READY
            acted.append(Acted(job_id, state, after, is_held))
        return acted


def run(
    store: FakeStore, action: Action, limit: int, query: Query = ALL, **options: int
) -> list[BulkStep]:
    async def steps() -> list[BulkStep]:
        counted = CountedJobs(query, MARK, limit)
        acting = act_in_bulk(
            store, action, counted, clock=HostClock(), by="ann", **options
        )
        return [step async for step in acting]

    return asyncio.run(steps())


@pytest.mark.parametrize(
    ("there", "counted", "sizes"),
    [
        (1201, 1201, [500, 500, 201]),
        (700, 1201, [500, 200]),  # some are gone by now
        (5000, 600, [500, 100]),  # others have come: they were not counted
        (0, 600, []),
    ],
)
def test_steps_end_with_what_was_counted(
    there: int, counted: int, sizes: list[int]
) -> None:
    done = run(FakeStore({DEAD: there}), DiscardJobs(), counted)
    assert [step.jobs for step in done] == sizes


@pytest.mark.parametrize(
    ("action", "query", "states"),
    [
        (CancelJobs(), Query(), [BLOCKED, SCHEDULED, READY, RUNNING]),
        (CancelJobs(), Query(states=(READY, SCHEDULED)), [SCHEDULED, READY]),
        (RetryJobs(), Query(), [DEAD, CANCELLED]),
        (DiscardJobs(), Query(states=(DEAD, READY)), [DEAD]),
        (MoveJobs("shop:b"), Query(lane="shop:a"), [BLOCKED, SCHEDULED, READY]),
        (RenameJobs("shop.b"), Query(task="shop.a"), [BLOCKED, SCHEDULED, READY, DEAD]),
    ],
)
def test_states_are_visited_as_jobs_travel(
    action: Action, query: Query, states: list[int]
) -> None:
    store = FakeStore({})
    assert run(store, action, 9, query) == []
    assert [state for state, _ in store.pages] == states * 2


def test_what_is_locked_is_met_twice_and_then_counted() -> None:
    store = FakeStore({DEAD: 5}, {b"5-1": 1, b"5-3": 2})
    done = run(store, RetryJobs(), 5, step_jobs=2)
    assert [step.jobs for step in done] == [1, 1, 1, 1]
    assert sum(step.held for step in done) == 1


def test_all_steps_have_one_note() -> None:
    store = FakeStore({READY: 3, SCHEDULED: 3})
    query = Query(lane="shop:a", states=(READY, SCHEDULED))
    run(store, MoveJobs("shop:b"), 6, query, step_jobs=2)
    assert len({id(note) for note in store.notes}) == 1
    note = store.notes[0]
    assert (note.namespace, note.who, note.target) == (
        "shop",
        "ann",
        "shop:a to shop:b",
    )
