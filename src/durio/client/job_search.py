"""Search jobs with the query language: pages of a bounded look, and counts.

A look goes newest first and ends after a second, or after 100,000 rows. It is then partial,
and its cursor goes on where it ended. A cursor belongs to one query: it has a hash of the
query, and the time that `age` and the like are compared with, so that all pages agree.
"""

import base64
import binascii
import hashlib
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from durio.client.query_matching import DecodedJob, SearchFacts, matches
from durio.client.query_pushdown import push_down
from durio.model.errors import InvalidCursor, TooManySearches
from durio.model.job import (
    BLOCKED,
    DEAD,
    READY,
    RUNNING,
    SCHEDULED,
    STATE_BY_CODE,
    StoredJob,
)
from durio.model.query_language import JobSearchText
from durio.ports.browse import Query, WorkerRow
from durio.ports.clock import Clock
from durio.ports.store import Store

LOOK_SECONDS = 1.0
LOOK_ROWS = 100_000
SCAN_ROWS = 20_000  # that a store reads for a page with few matching jobs
PAGE_JOBS = 200
COUNT_MAX = 10_000
LOOKS_AT_ONCE = 2
SLOT_WAIT_SECONDS = 2.0
SLOT_POLL_SECONDS = 0.02
CHECK_BYTES = 8
TIME_BYTES = 6
EVERY_STATE = range(len(STATE_BY_CODE))
# States whose jobs stores count without reading their rows.
COUNTED_STATES = (BLOCKED, SCHEDULED, READY, RUNNING, DEAD)

Keeps = Callable[[StoredJob], bool]


class JobSearch(NamedTuple):
    """A query, ready to be asked of a store."""

    text: JobSearchText
    query: Query  # what the store filters
    keeps: Keeps | None  # what is filtered in Python; None: nothing
    now_ms: int  # that times are compared with
    identity: str  # of the query, for its cursors


class Look(NamedTuple):
    """What one look has found, newest first."""

    jobs: list[StoredJob]
    cursor: str | None = None  # None: there are no more
    is_partial: bool = False  # it ended early; the cursor goes on


class SearchCount(NamedTuple):
    """How many jobs match."""

    jobs: int
    by_state: dict[int, int]  # of each state at most one more than the bound
    is_capped: bool = False  # there are more than it counted
    is_partial: bool = False  # it ended early: there may be more


class SearchScope(NamedTuple):
    """The jobs that a search may find at all."""

    app: str | None  # names without an App belong to it; None: to any
    # Makes the query that jobs must match too, from the time of the search.
    base: Callable[[float], Query]
    name: str = ""  # stands for the conditions here in cursors
    also: Keeps | None = None  # a further condition


def whole_app(app: str | None) -> SearchScope:
    """Return the scope of all jobs of an App; of every App for None."""

    def base(now: float) -> Query:
        del now
        return Query(app)

    return SearchScope(app, base)


async def prepare_search(
    store: Store,
    text: JobSearchText,
    scope: SearchScope,
    *,
    now: float,
    cursor: str | None = None,
) -> tuple[JobSearch, str | None]:
    """Return a search, and where its cursor goes on; raises InvalidCursor."""
    identity = f"{text}\n{scope.app}\n{scope.name}"
    inner, now_ms = None, int(now * 1000)
    if cursor is not None:
        inner, now_ms = read_cursor(cursor, identity)
    within = scope.base(now_ms / 1000)
    workers: dict[str, WorkerRow] = {}
    if text.uses("worker", "version"):
        for row in await store.workers(within.namespace):
            workers |= {str(row.id): row, row.info["name"]: row}
    facts = SearchFacts(scope.app, now_ms / 1000, workers)
    query, rest = push_down(text, within, facts)
    conditions = [scope.also] if scope.also else []

    def keeps(stored: StoredJob) -> bool:
        job = DecodedJob(stored)
        return all(matches(term, job, facts) for term in rest) and all(
            condition(stored) for condition in conditions
        )

    kept = keeps if rest or conditions else None
    return JobSearch(text, query, kept, now_ms, identity), inner


def plain_search(query: Query) -> JobSearch:
    """Return a search for what a store filters alone; it has no cursor."""
    return JobSearch(JobSearchText(), query, None, 0, "")


# --- cursors


def cursor_of(search: JobSearch, inner: str | None) -> str | None:
    if inner is None:
        return None
    body = search.now_ms.to_bytes(TIME_BYTES) + inner.encode()
    raw = check_of(search.identity, body) + body
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def read_cursor(cursor: str, identity: str) -> tuple[str, int]:
    """Return the store's cursor and the time; raise for one of another query."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
        check, body = raw[:CHECK_BYTES], raw[CHECK_BYTES:]
        inner = body[TIME_BYTES:].decode()
    except (ValueError, binascii.Error):
        raise wrong_cursor(cursor) from None
    exact = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    if check != check_of(identity, body) or exact != cursor:
        raise wrong_cursor(cursor)
    return inner, int.from_bytes(body[:TIME_BYTES])


def check_of(identity: str, body: bytes) -> bytes:
    text = f"{identity}\n".encode() + body
    return hashlib.blake2b(text, digest_size=CHECK_BYTES).digest()


def wrong_cursor(cursor: str) -> InvalidCursor:
    return InvalidCursor(
        f"{cursor[:40]!r} is not a cursor of this query",
        cure="Pass the cursor of the previous page with the same query, or none.",
    )


# --- looking


class LookBounds:
    """How far one look may still go."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadline = clock.monotonic() + LOOK_SECONDS
        self._rows = 0

    def add(self, jobs: int, asked: int, *, is_last: bool) -> None:
        """Add a page; a short one that is not the last has read many other rows."""
        is_short = jobs < asked and not is_last
        self._rows += SCAN_ROWS if is_short else jobs

    def is_over(self) -> bool:
        return self._rows >= LOOK_ROWS or self._clock.monotonic() >= self._deadline


async def look_for_jobs(
    store: Store, clock: Clock, search: JobSearch, *, limit: int, inner: str | None
) -> Look:
    """Return at most `limit` jobs from a position on."""
    bounds, found = LookBounds(clock), list[StoredJob]()
    while True:
        jobs, inner = await next_jobs(store, search, inner, limit - len(found), bounds)
        found += jobs
        if inner is None:
            return Look(found)
        if len(found) >= limit:
            return Look(found, cursor_of(search, inner))
        if bounds.is_over():
            return Look(found, cursor_of(search, inner), is_partial=True)


async def next_jobs(
    store: Store, search: JobSearch, inner: str | None, room: int, bounds: LookBounds
) -> tuple[list[StoredJob], str | None]:
    """Return the matching jobs of one page, at most `room`, and where the next begins."""
    keeps = search.keeps
    asked = min(room, PAGE_JOBS) if keeps is None else PAGE_JOBS
    page = await store.find(search.query, limit=asked, cursor=inner)
    bounds.add(len(page.jobs), asked, is_last=page.cursor is None)
    if keeps is None:
        return page.jobs, page.cursor
    places = [place for place, job in enumerate(page.jobs) if keeps(job)]
    if len(places) > room or (len(places) == room and places[-1] + 1 < len(page.jobs)):
        # Read the same rows again, up to the last one shown: the next page begins there.
        end = places[room - 1] + 1
        page = await store.find(search.query, limit=end, cursor=inner)
        return [job for job in page.jobs if keeps(job)], page.cursor
    return [page.jobs[place] for place in places], page.cursor


async def count_jobs(
    store: Store, clock: Clock, search: JobSearch, *, most: int = COUNT_MAX
) -> SearchCount:
    """Count the jobs by state, each up to a bound, within the bounds of a look."""
    counts, bounds, query = Counter[int](), LookBounds(clock), search.query
    is_partial = False
    if search.keeps is not None or not is_countable(query):
        is_partial = await count_by_looking(store, search, counts, bounds, most)
        return counted(counts, most, is_partial=is_partial)
    for state in EVERY_STATE if query.states is None else query.states:
        one = query._replace(states=(state,))
        if state in COUNTED_STATES:
            counts[state] = (await store.count(one, most=most + 1)).jobs
            continue
        found = Counter[int]()
        looked = search._replace(query=one)
        is_partial |= await count_by_looking(store, looked, found, bounds, most)
        counts += found
    return counted(counts, most, is_partial=is_partial)


async def count_by_looking(
    store: Store,
    search: JobSearch,
    counts: Counter[int],
    bounds: LookBounds,
    most: int,
) -> bool:
    """Add the matching jobs, to one more than `most`; return whether the look ended early."""
    inner: str | None = None
    while counts.total() <= most:
        room = most + 1 - counts.total()
        jobs, inner = await next_jobs(store, search, inner, room, bounds)
        counts.update(job.state for job in jobs)
        if inner is None:
            return False
        if bounds.is_over():
            return counts.total() <= most
    return False


def counted(counts: Counter[int], most: int, *, is_partial: bool) -> SearchCount:
    total = counts.total()
    by_state = {state: jobs for state, jobs in sorted(counts.items()) if jobs}
    return SearchCount(min(total, most), by_state, total > most, is_partial)


def is_countable(query: Query) -> bool:
    """Whether the query asks only for an App, a queue and states."""
    return query == Query(query.namespace, query.states, query.lane)


class SearchSlots:
    """Lets two looks run at a time in a process; others wait, and give up after 2 s."""

    def __init__(self, clock: Clock, size: int = LOOKS_AT_ONCE) -> None:
        self._clock = clock
        self._free = size

    async def __aenter__(self) -> None:
        deadline = self._clock.monotonic() + SLOT_WAIT_SECONDS
        while self._free < 1:
            if self._clock.monotonic() >= deadline:
                raise TooManySearches(
                    f"no search could begin for {SLOT_WAIT_SECONDS:g} s: others run",
                    cure="Try again, or narrow the queries by state, queue or age.",
                    retry_after=SLOT_WAIT_SECONDS,
                )
            await self._clock.sleep(SLOT_POLL_SECONDS)
        self._free -= 1

    async def __aexit__(self, *error: object) -> None:
        self._free += 1
