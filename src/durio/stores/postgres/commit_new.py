"""Commit new jobs and new records in one statement and one round trip: most plans.

If each record must be new, no job has a key, gates or an expiry, and no queue has a guard,
there is nothing to read first. A record or a log that exists is a unique violation: nothing
is written then, and commit.py decides under locks.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from durio.model.effects import Put
from durio.model.job import BLOCKED, NewJob
from durio.model.ties import encode_ties
from durio.ports.commit import Committed
from durio.ports.enqueue import Enqueued
from durio.stores.commit_rules import CommitRequest
from durio.stores.postgres.connections import LockWait
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.enqueue_fast import JobColumns, enqueued_result, send
from durio.stores.postgres.statements import statement

COMMIT_NEW = statement("commit_new")


def is_all_new(context: PostgresContext, request: CommitRequest) -> bool:
    """Whether nothing has to be read or locked before this commit is written."""
    jobs, puts, *others = request.effects
    return (
        bool(request.all_new and jobs and puts)
        and not (any(others) or request.note)
        and all(put.if_version == 0 and put.body is not None for put in puts)
        and all(job.key is job.expires_at is None and not job.gates for job in jobs)
        and context.guarded_lanes.isdisjoint(job.lane for job in jobs)
    )


async def commit_new(
    context: PostgresContext, jobs: Sequence[NewJob], puts: Sequence[Put]
) -> Committed | None:
    """Write all of them; return None if nothing was written."""
    fields = zip(*jobs, strict=True)
    columns = JobColumns._make(map(list, islice(fields, len(JobColumns._fields))))
    waits = [job.wait for job in jobs]
    logs = [None if wait is None else wait.log for wait in waits]
    kinds, names, bodies, _, due_times, ttls = map(list, zip(*puts, strict=True))
    values = [
        *columns[:-1],
        [encode_ties(job) for job in jobs],
        logs,
        [None if wait is None else wait.above for wait in waits],
        list({wait.log for wait in waits if wait is not None}),
        *(kinds, names, bodies, due_times, ttls),
    ]
    row = await send(context, LockWait.LONG, COMMIT_NEW, jobs, values)
    if row[0]:
        return None
    _, now, *records = row
    versions: Mapping[tuple[str, str], int] = {
        (kind, name): version for kind, name, version in zip(*records, strict=True)
    }
    return Committed(
        [new_result(job, now) for job in jobs], [versions[put[:2]] for put in puts]
    )


def new_result(job: NewJob, now: float) -> Enqueued:
    if job.wait is not None:
        return Enqueued(job.id, True, BLOCKED)
    return enqueued_result(job, now)
