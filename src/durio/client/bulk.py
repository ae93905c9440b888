"""Apply one action to many jobs: count them first, then act in limited steps.

Every step is a transaction of its own, so that no step keeps workers and callers waiting.
The states are visited in the order in which jobs go through them, so no job slips into a
state that was already visited. Jobs that another transaction has locked are skipped. All
states are visited twice, because most locks are short; jobs that are locked the second time
too stay unchanged and are counted.
"""

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import NamedTuple

from durio.client.plan_retry import resume_plans
from durio.model.job import StoredJob
from durio.model.names import namespace_of
from durio.ports.browse import Query
from durio.ports.clock import Clock
from durio.ports.control import Action, AuditNote, MoveJobs, RenameJobs, RetryJobs
from durio.ports.store import Store

STEP_JOBS = 500
PAGE_JOBS = 1000  # that are read at a time


class BulkStep(NamedTuple):
    """The result of one step."""

    jobs: int  # changed by this step
    held: int = 0  # unchanged: open transactions hold them or their keys
    alone: int = 0  # of those changed: nodes whose plan does not go on with them


class CountedJobs(NamedTuple):
    """The jobs that were counted: they match the query and are not beyond the mark."""

    query: Query
    mark: str
    limit: int  # at most this many are changed; of dead letters, the oldest
    # What the store does not filter: it is judged just before a job is changed.
    keeps: Callable[[StoredJob], bool] | None = None
    words: str = ""  # about `keeps`, for the audit


async def act_in_bulk(
    store: Store,
    action: Action,
    counted: CountedJobs,
    *,
    clock: Clock,
    by: str,
    details: str = "",  # for the audit
    step_jobs: int = STEP_JOBS,
) -> AsyncGenerator[BulkStep]:
    """Apply the action in steps until all jobs are processed; together the steps are one audit line."""
    query, mark, left = counted.query, counted.mark, counted.limit
    states = states_to_visit(action, query)
    note = bulk_note(action, counted, by, details)
    visits = [(state, is_second) for is_second in (False, True) for state in states]
    for state, is_second in visits:
        one_state, cursor = query._replace(states=(state,)), None
        while left > 0:
            page = await store.find(
                one_state, limit=min(step_jobs, left), cursor=cursor, mark=mark
            )
            ids = page.ids
            if counted.keeps is not None:
                ids = [j.id for j in await store.get(page.ids) if counted.keeps(j)]
            if ids:
                is_retry = isinstance(action, RetryJobs)
                nodes = await resume_plans(store, ids, clock, by) if is_retry else {}
                acted = await store.act(ids, action, only=(query, mark), note=note)
                changed = [one.id for one in acted if one.is_changed_by(action)]
                held = sum(one.is_held for one in acted) if is_second else 0
                lonely = (i for i in changed if i in nodes and nodes[i].why_alone)
                left -= len(changed)
                yield BulkStep(len(changed), held, sum(1 for _ in lonely))
            cursor = page.cursor
            if cursor is None:
                break


def states_to_visit(action: Action, query: Query) -> list[int]:
    return [s for s in action.states if query.states is None or s in query.states]


async def jobs_up_to_mark(
    store: Store, action: Action, counted: CountedJobs
) -> AsyncIterator[list[StoredJob]]:
    """Yield the jobs that an action would change, as they are now, page by page."""
    for state in states_to_visit(action, counted.query):
        one_state, cursor = counted.query._replace(states=(state,)), None
        while True:
            page = await store.find(
                one_state, limit=PAGE_JOBS, cursor=cursor, mark=counted.mark
            )
            found = await store.get(page.ids) if page.ids else []
            yield [j for j in found if counted.keeps is None or counted.keeps(j)]
            cursor = page.cursor
            if cursor is None:
                break


async def count_by_task(
    store: Store, action: Action, counted: CountedJobs, *, most: int | None = None
) -> Counter[str]:
    """Count the jobs that an action would change; stop above `most`."""
    tasks = Counter[str]()
    async for jobs in jobs_up_to_mark(store, action, counted):
        tasks.update(job.task for job in jobs)
        if most is not None and tasks.total() > most:
            break
    return tasks


def bulk_note(
    action: Action, counted: CountedJobs, by: str, details: str = ""
) -> AuditNote:
    """Return the audit line of all steps."""
    query = counted.query
    match action:
        case MoveJobs():
            target = f"{query.lane} to {action.lane}"
        case RenameJobs():
            target = f"{query.task} to {action.task}"
        case _:
            target = " ".join(filter(None, (query.in_words(), counted.words)))
    namespace = query.namespace or namespace_of(query.lane or "")
    return AuditNote(namespace=namespace, who=by, target=target, details=details)
