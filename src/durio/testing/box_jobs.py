"""The jobs in a testing box, read from its store."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any

from durio.client.job_view import details_of, options_of
from durio.model.codec import decode, encode
from durio.model.errors import InvalidArguments
from durio.model.job import SCHEDULED, JobDetails, StoredJob
from durio.ports.browse import Query
from durio.ports.handler import Handler
from durio.ports.plan_reader import SETTLED_MAX
from durio.ports.store import Store

PAGE_JOBS = 200
GATE_SECONDS = 0.001  # the clock moves at least so far to the time of a gate


@dataclass(frozen=True, slots=True)
class BoxJob(JobDetails):
    """A job in a testing box: a JobDetails with the arguments decoded."""

    __module__ = "durio.testing"

    # Arguments by name, decoded to the types of the task's parameters.
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


async def stored_jobs(store: Store, query: Query) -> list[StoredJob]:
    """Return all jobs that a query finds, in the order of enqueue."""
    found: list[StoredJob] = []
    cursor: str | None = None
    while True:
        page = await store.find(query, limit=PAGE_JOBS, cursor=cursor)
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            return sorted(found, key=lambda job: job.id)


async def next_due(store: Store, namespaces: Iterable[str]) -> float | None:
    """Return when the next scheduled job of these Apps is due; None if there is none."""
    times = [
        job.run_at
        for namespace in namespaces
        for job in await stored_jobs(store, Query(namespace, states=(SCHEDULED,)))
        if job.run_at is not None
    ]
    return min(times, default=None)


async def next_gate(store: Store, now: float) -> float | None:
    """Return when the next gate opens that jobs stand before; None: time opens none."""
    settled = await store.settle(SETTLED_MAX)
    if settled.count:
        return now  # one has opened already
    seconds = settled.next_due_seconds
    return None if seconds is None else now + max(seconds, GATE_SECONDS)


def box_job(stored: StoredJob, handler: Handler | None, retries: int | None) -> BoxJob:
    details = details_of(stored, retries)
    known = {each.name: getattr(details, each.name) for each in fields(details)}
    return BoxJob(**known, arguments=arguments_by_name(stored, handler))


def arguments_by_name(stored: StoredJob, handler: Handler | None) -> dict[str, Any]:
    """Return the arguments by name, decoded if the task's code is known.

    Of `task.chunks` these are the calls by number, each with its arguments.
    """
    if options_of(stored).is_chunk:
        calls = [encode(call, stored.task) for call in decode(stored.payload)]
        return {
            str(number): by_name(call, handler) for number, call in enumerate(calls)
        }
    return by_name(stored.payload, handler)


def by_name(payload: bytes, handler: Handler | None) -> dict[str, Any]:
    if handler is not None:
        with suppress(InvalidArguments):  # enqueued by name, and they do not fit
            return handler.codec.decode_by_name(payload)
    args, kwargs = decode(payload)
    return {**{str(place): value for place, value in enumerate(args)}, **kwargs}
