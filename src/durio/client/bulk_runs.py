"""Preview, start, read and stop bulk actions that outlive their process.

A preview counts the jobs and keeps the mark of its count: jobs that match later are not
changed. A start makes a record of it, which `bulk_runner.py` works off.
"""

import json
from collections import Counter
from typing import NamedTuple

from msgspec import json as msgspec_json
from msgspec.structs import replace

from durio.client.bulk import CountedJobs, jobs_up_to_mark
from durio.client.job_query import query_for
from durio.client.job_search import JobSearch, SearchScope, prepare_search
from durio.model.bulk_run import (
    KEPT_SECONDS,
    PREVIEW_SECONDS,
    BulkRecord,
    BulkVerb,
    BulkWish,
    bulk_kind,
    load_bulk,
    load_wish,
    previews_kind,
)
from durio.model.effects import Effects, Put
from durio.model.errors import BulkNotFound, WrongState
from durio.model.ids import id_text
from durio.model.job import StoredJob
from durio.model.names import known_as, lane, namespace_of, queue_of
from durio.model.query_language import JobSearchText, parse_query
from durio.ports.browse import Query
from durio.ports.clock import Clock
from durio.ports.control import ACTION_OF_VERB, Action, AuditNote, MoveJobs
from durio.ports.store import Store

COUNT_MAX = 10_000
PREVIEW_SECONDS_MAX = 10.0
TAKEN_SECONDS = 30.0  # without a step in this time another process takes a run up
STOP_TRIES_MAX = 100
RUNS_LISTED = 200


class BulkPreview(NamedTuple):
    """What a bulk action would change."""

    id: str
    wish: BulkWish
    by_task: dict[str, int]  # of the counted jobs, the most frequent first


class StoredBulk(NamedTuple):
    """A bulk action as it is stored."""

    id: str
    version: int
    record: BulkRecord


def scope_of_user(
    namespace: str,
    queues: tuple[str, ...] | None,
    tasks: tuple[str, ...] | None,
    states: tuple[int, ...] | None = None,
) -> SearchScope:
    """Return the jobs that a user of these queues and tasks may see; None: of all."""
    only = queues[0] if queues is not None and len(queues) == 1 else None

    def base(now: float) -> Query:
        del now
        return Query(namespace, states, None if only is None else lane(namespace, only))

    def sees(job: StoredJob) -> bool:
        is_ours = namespace_of(job.lane) == namespace
        is_of_queue = queues is None or queue_of(job.lane) in queues
        is_of_task = tasks is None or known_as(job.task, tasks) is not None
        return is_ours and is_of_queue and is_of_task

    name = f"{states} {queues} {tasks}"
    is_covered = tasks is None and (queues is None or only is not None)
    return SearchScope(namespace, base, name, None if is_covered else sees)


def action_of(verb: BulkVerb, namespace: str, to: str | None) -> Action:
    if verb == "move":
        return MoveJobs(lane(namespace, to or ""))
    return ACTION_OF_VERB[verb]


async def search_of(
    store: Store, namespace: str, wish: BulkWish, text: JobSearchText | None = None
) -> JobSearch:
    """Return the search for the jobs of a wish, as of its time."""
    scope = scope_of_user(namespace, wish.queues, wish.tasks)
    parsed = parse_query(wish.q) if text is None else text
    search, _ = await prepare_search(store, parsed, scope, now=wish.now_ms / 1000)
    return search


async def preview_bulk(
    store: Store, clock: Clock, namespace: str, wish: BulkWish
) -> BulkPreview:
    """Count the jobs that the wish means, exactly to 10,000, and keep the preview.

    A count that takes longer than 10 s ends as if there were more.
    """
    action = action_of(wish.verb, namespace, wish.to)
    search = await search_of(store, namespace, wish)
    query = query_for(action, search.query)
    counted = await store.count(query)
    chosen = CountedJobs(query, counted.mark, counted.jobs, search.keeps)
    tasks, until = Counter[str](), clock.monotonic() + PREVIEW_SECONDS_MAX
    is_capped = False
    async for jobs in jobs_up_to_mark(store, action, chosen):
        tasks.update(job.task for job in jobs)
        # A filter in Python that few jobs pass: what is not counted is more, too.
        is_capped = tasks.total() > COUNT_MAX or clock.monotonic() >= until
        if is_capped:
            break
    # Without a filter in Python the count of the store is exact, however large.
    expected = counted.jobs if search.keeps is None else min(tasks.total(), COUNT_MAX)
    known = replace(wish, mark=counted.mark, expected=expected, is_capped=is_capped)
    preview_id = id_text(clock.new_id())
    body, kind = msgspec_json.encode(known), previews_kind(namespace)
    put = Put(kind, preview_id, body, ttl_seconds=PREVIEW_SECONDS)
    await store.commit(Effects(puts=[put]))
    return BulkPreview(preview_id, known, dict(tasks.most_common()))


async def find_preview(
    store: Store, namespace: str, preview_id: str, user: str
) -> tuple[BulkWish, int]:
    """Return a preview of this user, and the version of its record."""
    for record in await store.records(previews_kind(namespace), [preview_id]):
        wish = load_wish(record.body)
        if wish.user == user:
            return wish, record.version
    raise BulkNotFound(
        f"there is no preview {preview_id!r:.60}",
        cure="A preview is good for 15 minutes and for one start. Preview again.",
    )


async def start_bulk(
    store: Store,
    clock: Clock,
    namespace: str,
    preview_id: str,
    found: tuple[BulkWish, int],
    details: str,
) -> str:
    """Start what was previewed, once; return the id of the bulk action."""
    wish, version = found
    run_id = id_text(clock.new_id())
    known = json.loads(details or "{}") | {"bulk": run_id}
    if wish.reason:
        known["reason"] = wish.reason
    record = BulkRecord(wish=wish, started_at=clock.now(), details=json.dumps(known))
    # Due at once: if this process dies now, another one begins.
    start = Put(
        bulk_kind(namespace), run_id, msgspec_json.encode(record), 0, due_at=0.0
    )
    used = Put(previews_kind(namespace), preview_id, None, if_version=version)
    answer = await store.commit(Effects(puts=[used, start]))
    if answer.conflict is not None:
        raise WrongState(
            "this preview was started already",
            cure="Look at the running actions, or preview again.",
        )
    return run_id


async def list_bulk(store: Store, namespace: str) -> list[StoredBulk]:
    """Return the newest bulk actions; they are kept for 7 days after their end."""
    kind, found, after = bulk_kind(namespace), list[StoredBulk](), ""
    while True:
        records = await store.list_records(kind, after=after, limit=RUNS_LISTED)
        found += [StoredBulk(r.name, r.version, load_bulk(r.body)) for r in records]
        if len(records) < RUNS_LISTED:
            return found[::-1][:RUNS_LISTED]
        after = records[-1].name


async def find_bulk(store: Store, namespace: str, run_id: str) -> StoredBulk:
    """Return a bulk action; raises BulkNotFound."""
    for record in await store.records(bulk_kind(namespace), [run_id]):
        return StoredBulk(record.name, record.version, load_bulk(record.body))
    raise BulkNotFound(
        f"there is no bulk action {run_id!r:.60}",
        cure="See the list. Bulk actions that have ended are kept for 7 days.",
    )


async def stop_bulk(
    store: Store, namespace: str, run_id: str, note: AuditNote
) -> StoredBulk:
    """Ask a bulk action to stop: its next step is not done."""
    for _ in range(STOP_TRIES_MAX):
        found = await find_bulk(store, namespace, run_id)
        if found.record.state != "running":
            raise WrongState(
                f"bulk action {run_id} is {found.record.state} and cannot be stopped",
                cure="Only one that runs can be stopped.",
                state=found.record.state,
            )
        # Due at once: the process that runs it, or another one, writes the end.
        asked = replace(found.record, state="stopping")
        answer = await store.commit(
            Effects(puts=[put_of(namespace, found, asked, due_at=0.0)]), note=note
        )
        if answer.conflict is None:
            return await find_bulk(store, namespace, run_id)
    raise WrongState(f"bulk action {run_id} could not be stopped", cure="Try again.")


def put_of(
    namespace: str, found: StoredBulk, record: BulkRecord, due_at: float | None
) -> Put:
    """Return the write of a changed record, if nobody else has changed it."""
    return Put(
        bulk_kind(namespace),
        found.id,
        msgspec_json.encode(record),
        if_version=found.version,
        due_at=None if record.is_over else due_at,
        ttl_seconds=KEPT_SECONDS if record.is_over else None,
    )
