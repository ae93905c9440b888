"""Searches: what they find on both stores, page by page, within their bounds."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from durio.client import job_search
from durio.client.job_search import (
    SearchSlots,
    count_jobs,
    look_for_jobs,
    prepare_search,
    whole_app,
)
from durio.client.job_view import details_of
from durio.errors import InvalidCursor, TooManySearches
from durio.model.job import STATE_BY_CODE
from durio.model.query_language import parse_query
from durio.ports.browse import Page
from durio.testing.clock import VirtualClock, run_virtual
from tests.conformance.conftest import subject_at
from tests.conformance.subject import Subject
from tests.unit.client.search_jobs import (
    APP,
    NOW,
    Searched,
    Wanted,
    group_of,
    searched,
    terms,
)

if TYPE_CHECKING:
    from tests.conformance.postgres import ScratchSchema

SEED = 20_261_119


@contextmanager
def running(
    subject: Subject, seed: int = SEED
) -> Iterator[tuple[asyncio.Runner, Searched]]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            yield runner, runner.run(searched(stack, subject, seed))
        finally:
            runner.run(stack.aclose())


async def found(it: Searched, text: str, limit: int) -> list[bytes]:
    """All pages of a search; each has at most `limit` jobs."""
    ids: list[bytes] = []
    cursor: str | None = None
    while True:
        search, inner = await it.search(text, cursor)
        look = await look_for_jobs(it.store, it.clock, search, limit=limit, inner=inner)
        assert len(look.jobs) <= limit
        assert not look.is_partial
        ids += [job.id for job in look.jobs]
        cursor = look.cursor
        if cursor is None:
            return ids
        assert len(look.jobs) == limit


async def check(it: Searched, wanted: list[Wanted], limit: int) -> None:
    text = " ".join(each.text for each in wanted)
    note(f"query {text} (jobs of seed {SEED})")
    expected = it.expected(wanted)
    ids = await found(it, text, limit)
    assert set(ids) == expected
    assert len(ids) == len(expected)
    search, _ = await it.search(text)
    counted = await count_jobs(it.store, it.clock, search)
    assert counted.jobs == len(expected)
    assert sum(counted.by_state.values()) == len(expected)


def compare(subject: Subject, examples: int) -> None:
    with running(subject) as (runner, it):
        ids = [str(job) for job in {j.id.hex() for j in it.jobs[::40]}]
        fingerprints = {group_of(details_of(job, None), job) for job in it.jobs}
        groups = sorted(each for each in fingerprints if each)

        @settings(max_examples=examples)
        @given(
            st.lists(terms(ids, groups), max_size=3), st.sampled_from([1, 7, 50, 200])
        )
        def every_query(wanted: list[Wanted], limit: int) -> None:
            runner.run(check(it, wanted, limit))

        every_query()


def test_queries_find_on_sqlite_what_a_plain_filter_finds() -> None:
    compare(subject_at(None), 250)


def test_queries_find_on_postgresql_what_a_plain_filter_finds(
    grounds: "ScratchSchema",
) -> None:
    compare(grounds.subject(), 100)


# --- cursors


@contextmanager
def jobs_in_memory() -> Iterator[tuple[asyncio.Runner, Searched]]:
    with running(subject_at(None)) as both:
        yield both


def test_a_cursor_belongs_to_its_query() -> None:
    with jobs_in_memory() as (runner, it):
        search, _ = runner.run(it.search("priority:>2"))
        look = runner.run(
            look_for_jobs(it.store, it.clock, search, limit=5, inner=None)
        )
        cursor = look.cursor
        assert cursor is not None
        runner.run(it.search(" priority:>2 ", cursor))  # the same canonical text
        with pytest.raises(InvalidCursor):
            runner.run(it.search("priority:>3", cursor))


def test_a_cursor_changed_by_a_byte_is_refused() -> None:
    with jobs_in_memory() as (runner, it):
        search, _ = runner.run(it.search("priority:>2"))
        cursor = job_search.cursor_of(search, "17") or ""
        changed = [
            cursor[:at] + other + cursor[at + 1 :]
            for at in range(len(cursor))
            for other in "Aq_9"
            if cursor[at] != other
        ]
        for each in [*changed, cursor[:-1], cursor + "A", cursor + "=", "", "ü", "!"]:
            with pytest.raises(InvalidCursor):
                runner.run(it.search("priority:>2", each))
        _, inner = runner.run(it.search("priority:>2", cursor))
        assert inner == "17"


def test_all_pages_compare_with_the_time_of_the_first() -> None:
    with jobs_in_memory() as (runner, it):
        search, _ = runner.run(it.search("age:<2000"))
        look = runner.run(
            look_for_jobs(it.store, it.clock, search, limit=1, inner=None)
        )
        text = parse_query("age:<2000")
        later, _ = runner.run(
            prepare_search(
                it.store, text, whole_app(APP), now=NOW + 500, cursor=look.cursor
            )
        )
        assert later.now_ms == search.now_ms
        assert later.query == search.query


# --- bounds


def test_a_look_ends_after_its_rows_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_search, "LOOK_ROWS", 20)
    monkeypatch.setattr(job_search, "PAGE_JOBS", 10)
    with jobs_in_memory() as (runner, it):
        ids, looks, cursor = list[bytes](), 0, None
        while True:
            search, inner = runner.run(it.search("attempt:>=2", cursor))
            look = runner.run(
                look_for_jobs(it.store, it.clock, search, limit=50, inner=inner)
            )
            ids, looks, cursor = (
                [*ids, *(j.id for j in look.jobs)],
                looks + 1,
                look.cursor,
            )
            assert look.is_partial is (cursor is not None)
            if cursor is None:
                break
        assert looks > 3
        assert set(ids) == it.expected([Wanted("attempt", [(">=", 2)])])
        search, _ = runner.run(it.search("attempt:>=1"))
        counted = runner.run(count_jobs(it.store, it.clock, search))
        assert counted.is_partial
        assert 0 < counted.jobs <= 30


def test_a_look_ends_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_search, "PAGE_JOBS", 10)
    with jobs_in_memory() as (runner, it):
        find, calls = type(it.store).find, list[int]()

        async def slow_find(*args: Any, **options: Any) -> Page:
            calls.append(1)
            it.clock.advance(0.4)
            return await find(*args, **options)

        monkeypatch.setattr(type(it.store), "find", slow_find)
        search, _ = runner.run(it.search("meta.none:1"))
        look = runner.run(
            look_for_jobs(it.store, it.clock, search, limit=50, inner=None)
        )
        assert (look.jobs, look.is_partial, len(calls)) == ([], True, 3)


def test_a_count_is_capped() -> None:
    with jobs_in_memory() as (runner, it):
        for text in ("", "state:dead,done,ready", "priority:>=0"):
            search, _ = runner.run(it.search(text))
            whole = runner.run(count_jobs(it.store, it.clock, search))
            assert not whole.is_capped
            assert sum(whole.by_state.values()) == whole.jobs > 20
            few = runner.run(count_jobs(it.store, it.clock, search, most=20))
            assert (few.jobs, few.is_capped) == (20, True)
            same = runner.run(count_jobs(it.store, it.clock, search, most=whole.jobs))
            assert same == whole


def test_counts_by_state_are_right() -> None:
    with jobs_in_memory() as (runner, it):
        search, _ = runner.run(it.search(""))
        counted = runner.run(count_jobs(it.store, it.clock, search))
        for state, jobs in counted.by_state.items():
            wanted = Wanted("state", [("", STATE_BY_CODE[state].value)])
            assert jobs == len(it.expected([wanted]))


def test_two_looks_run_at_a_time() -> None:
    async def story(clock: VirtualClock) -> None:
        slots, ended = SearchSlots(clock), list[str]()

        async def look(name: str, seconds: float) -> None:
            async with slots:
                await clock.sleep(seconds)
                ended.append(name)

        async with asyncio.TaskGroup() as group:
            group.create_task(look("a", 1.0))
            group.create_task(look("b", 5.0))
            await clock.sleep(0.1)
            await look("c", 4.0)  # begins when a has ended
            assert "a" in ended
            with pytest.raises(ValueError, match="a look that fails"):
                async with slots:
                    raise ValueError("a look that fails")
            group.create_task(look("d", 9.0))
            group.create_task(look("e", 9.0))
            await clock.sleep(0.2)
            with pytest.raises(TooManySearches) as caught:
                await look("f", 1.0)
            assert caught.value.values["retry_after"] == 2.0
        assert sorted(ended) == ["a", "b", "c", "d", "e"]

    run_virtual(story)
