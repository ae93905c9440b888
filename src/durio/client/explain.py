"""Why a job does not run now, or how it ended: for `job.explain()` and `durio why`.

This reads what the rules in `client/explain_rules.py` need. Every read has a limited size:
the job, the queues and workers of its App, at most 1,001 index entries of the jobs before
it, at most 1,000 jobs of its plan.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import msgspec

from durio.client.explain_breaker import breaker_facts
from durio.client.explain_facts import AHEAD_MAX, JobFacts, PlanFacts, PlanParent
from durio.client.explain_limits import LimitsClient, limiting_gates
from durio.client.explain_rules import reasons_of
from durio.client.job_view import options_of, retries_of_tasks, status_fields
from durio.client.plan_view import failed_job
from durio.client.task_by_name import published_tasks
from durio.model.explanation import JobExplanation, JobReason, attempts_of
from durio.model.ids import id_bytes, id_text
from durio.model.job import (
    BLOCKED,
    CANCELLED,
    DEAD,
    DONE,
    READY,
    StoredJob,
    utc_datetime,
)
from durio.model.logs import DEAD_END, DONE_END
from durio.model.names import namespace_of
from durio.model.plan_place import PlanPlace
from durio.model.published_tasks import tasks_kind
from durio.model.timeout import TimeLimits
from durio.ports.browse import AuditLine, LaneRow
from durio.ports.plan_reader import (
    ENTRIES_MAX,
    StoredPlan,
    find_plan,
    find_whole_plan,
)
from durio.ports.plan_sweep import current_state, steps
from durio.ports.store import Store

AUDIT_LINES_MAX = 10_000  # as many as a store keeps
ANCESTORS_MAX = 1000  # jobs of a plan whose states are read
STATES_MAX = 500  # per read


class ExplainClient(LimitsClient, Protocol):
    """The part of an App that knows its code and its store."""

    @property
    def name(self) -> str:
        """The namespace."""
        ...

    async def store(self) -> Store:
        """Return the open store."""
        ...

    def retries_of(self, task: str) -> int | None:
        """Return the retries of the task's policy; None if this process does not know the task."""
        ...

    def limits_of(self, task: str) -> TimeLimits | None:
        """Return the time limits of the task; None if this process does not know the task."""
        ...

    def declared_names(self) -> tuple[set[str], set[str]]:
        """Return the tasks and the queues that the code names."""
        ...

    def pasteable(self, cure: str) -> str:
        """Return a cure whose commands mean the store of this App."""
        ...

    def now(self) -> float:
        """Return wall-clock seconds."""
        ...


async def explain_job(client: ExplainClient, job: StoredJob) -> JobExplanation:
    """Return why a job does not run now, or how it ended."""
    facts = await read_facts(client, job)
    store = await client.store()
    retries = (await retries_of_tasks(store, client.retries_of, [job]))[job.task]
    status = status_fields(job, retries)
    facts = facts._replace(max_attempts=status["max_attempts"])
    return JobExplanation(
        id=status["id"],
        task=job.task,
        queue=status["queue"],
        state=status["state"],
        at=utc_datetime(facts.now),
        reasons=tuple(pasteable(client, reason) for reason in reasons_of(facts)),
        attempts=attempts_of(job),
    )


def pasteable(client: ExplainClient, reason: JobReason) -> JobReason:
    """Return the reason with a command that names the store of this App."""
    if reason.command is None:
        return reason
    command, _, _ = client.pasteable(reason.command).partition("\n")
    if command.startswith("durio worker") and "--app" not in command:
        # No module of the App is known, and a worker needs its code.
        command = command.replace("durio worker", "durio worker MODULE:APP", 1)
    return replace(reason, command=command)


async def read_facts(client: ExplainClient, job: StoredJob) -> JobFacts:
    """Read the store for the rules of this job's state."""
    store, namespace = await client.store(), namespace_of(job.lane)
    options = options_of(job)
    facts = JobFacts(job, client.now(), options, limits=client.limits_of(job.task))
    if options.plan is not None:
        plan = await plan_facts(client, store, job, options.plan)
        facts = facts._replace(plan=plan)
    if job.state >= DONE:
        return facts
    facts = facts._replace(workers=await store.workers(namespace))
    rows = await store.queues(namespace)
    lane = next((row for row in rows if row.name == job.lane), None)
    tasks, _ = client.declared_names()
    has_code = bool(tasks) and client.name == namespace
    is_loaded = not has_code or client.limits_of(job.task) is not None
    facts = facts._replace(lane=lane, is_loaded=is_loaded)
    breaker = await find_breaker_of(client, store, namespace, job)
    facts = facts._replace(breaker=await breaker_facts(store, namespace, breaker))
    facts = facts._replace(pause=await find_pause(store, namespace, lane))
    if job.state == BLOCKED:
        gates = await limiting_gates(client, store, job, facts.now, facts.workers)
        facts = facts._replace(gates=gates)
    if job.state == READY:
        facts = facts._replace(ahead=await store.ahead(job.id, limit=AHEAD_MAX + 1))
    if not facts.able:
        published = await published_tasks(store, namespace) or {}
        known = {*published, *(tasks if has_code else ())}
        facts = facts._replace(known_tasks=known)
    return facts


async def find_breaker_of(
    client: ExplainClient, store: Store, namespace: str, job: StoredJob
) -> str | None:
    """Return the breaker of the job's task, from its code or as workers published it."""
    handler = client.handler_of(job.task)
    if handler is not None:
        return handler.breaker
    records = await store.records(tasks_kind(namespace), [job.task])
    return msgspec.json.decode(records[0].body).get("breaker") if records else None


async def find_pause(
    store: Store, namespace: str, lane: LaneRow | None
) -> AuditLine | None:
    """Return who paused a queue; None if it is not paused, or the audit has lost the line."""
    if lane is None or not lane.paused:
        return None
    for line in await store.audit(namespace, limit=AUDIT_LINES_MAX):
        if line.verb == "pause" and line.target.partition(" (")[0] == lane.name:
            return line
    return None


# --- plans


async def plan_facts(
    client: ExplainClient, store: Store, job: StoredJob, place: PlanPlace
) -> PlanFacts:
    """Return what the rules need about the plan of a job: only if it is blocked or cancelled."""
    namespace, plan_id = namespace_of(job.lane), id_bytes(place.plan)
    if job.state == CANCELLED:
        ended = await find_plan(store, namespace, plan_id)
        return PlanFacts(place.plan, failed=ended and failed_id(ended))
    plan = None
    if job.state == BLOCKED:
        plan = await find_whole_plan(store, namespace, plan_id)
    if plan is None:
        return PlanFacts(place.plan)
    writers = writers_of(plan)
    direct, further = ancestors(plan, writers, place.node)
    states = await states_of_nodes(store, plan, [*direct, *further])
    facts = PlanFacts(
        place.plan,
        await current_state(store, plan),
        is_whole=plan.record.is_whole,
        failed=failed_id(plan),
        parents=await parents_of(store, plan, place.node, direct, states),
    )
    for number in (*direct, *further):
        if states.get(number, DONE) not in {BLOCKED, DONE, DEAD, CANCELLED}:
            found = await store.get(plan.ids([number]))
            return facts._replace(roots=[await read_facts(client, j) for j in found])
    return facts


def failed_id(plan: StoredPlan) -> str | None:
    failure = plan.record.failure
    return None if failure is None else failed_job(plan, failure)


Writers = Mapping[str, Sequence[int]]


def writers_of(plan: StoredPlan) -> Writers:
    """Return the nodes that append to each log when they are done."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for number in plan.numbers:
        for end in plan.layout.node(number).on_end:
            if end.when & DONE_END:
                found[end.log].append(number)
    return found


def ancestors(
    plan: StoredPlan, writers: Writers, number: int
) -> tuple[list[int], list[int]]:
    """Return the nodes that a node waits for, and those before them: the nearest, bounded."""
    found: dict[int, None] = {}
    waiting, direct = deque([number]), -1
    while waiting and len(found) < ANCESTORS_MAX:
        wait = plan.layout.node(waiting.popleft()).wait
        before = () if wait is None else writers.get(wait.log, ())
        new = [each for each in before if each not in found][:ANCESTORS_MAX]
        found |= dict.fromkeys(new)
        waiting.extend(new)
        direct = len(found) if direct < 0 else direct
    return [*found][:direct], [*found][direct:ANCESTORS_MAX]


async def states_of_nodes(
    store: Store, plan: StoredPlan, numbers: Sequence[int]
) -> dict[int, int]:
    """Return the states of nodes by number, without those whose job is deleted."""
    found: dict[int, int] = {}
    ids = plan.ids(numbers)
    number_of = dict(zip(ids, numbers, strict=True))
    for some in steps(ids, STATES_MAX):
        states = await store.states(some)
        found |= {number_of[job_id]: state for job_id, state in states.items()}
    return found


async def parents_of(
    store: Store,
    plan: StoredPlan,
    number: int,
    direct: Sequence[int],
    states: Mapping[int, int],
) -> list[PlanParent]:
    """Return the nodes that a node waits for, and how far they are."""
    wait = plan.layout.node(number).wait
    if wait is None:
        return []
    tags: set[int] = set()
    if not plan.replacing.keys().isdisjoint(direct):
        # A plan that has the place of a node appends to the log in its name.
        tags = {
            entry.tag for entry in await store.read_log(wait.log, 0, limit=ENTRIES_MAX)
        }
    found: list[PlanParent] = []
    for parent, job_id in zip(direct, plan.ids(direct), strict=True):
        end = next(
            end for end in plan.layout.node(parent).on_end if end.log == wait.log
        )
        state, inner = states.get(parent), plan.replacing.get(parent)
        if end.tag in tags or state != DONE:
            inner = None
        has_failed = state in {DEAD, CANCELLED} and not end.when & DEAD_END
        is_over = state in {DONE, DEAD, CANCELLED} and not has_failed and inner is None
        holder = None if inner is None else id_text(inner)
        found.append(PlanParent(id_text(job_id), state, is_over, has_failed, holder))
    return found
