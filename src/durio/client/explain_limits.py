"""Which limit holds a job back: the gate that it stands before, and those behind it.

The store says which gates a job has, and who holds places there. The name of a gate says the
limit and the key, unless it is long: then the code or the records of limits do.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from durio.client.explain_facts import (
    NAMED_MAX,
    GateFacts,
    GateHolder,
    JobFacts,
    worker_command,
)
from durio.client.job_view import options_of
from durio.client.limit_store import read_limits
from durio.client.limit_view import rate_text, set_arguments
from durio.model.explanation import JobReason, moment
from durio.model.gate import TICK_SECONDS
from durio.model.gate_keys import BREAKER, FAIR
from durio.model.gate_rule import FAIR_LIMIT, GateChoice, JobPlace
from durio.model.ids import id_text
from durio.model.job import PRIORITY_MAX, READY, RUNNING, STATE_BY_CODE, StoredJob
from durio.model.names import namespace_of, queue_of
from durio.model.quantities import counted
from durio.ports.browse import GateRow, LaneRow, Query, WorkerRow
from durio.ports.handler import Handler
from durio.ports.store import Store

# Jobs that may hold a place: the newest running ones, and ready ones of its queue and others.
CANDIDATES_MAX, LANES_MAX = 200, 10


class LimitsClient(Protocol):
    """The part of an App that knows the code of its tasks."""

    def handler_of(self, task: str) -> Handler | None:
        """Return the task's code; None if it is not loaded here."""
        ...


async def limiting_gates(
    client: LimitsClient,
    store: Store,
    job: StoredJob,
    now: float,
    workers: Sequence[WorkerRow],
) -> list[GateFacts]:
    """Return the gates of a blocked job that let nothing pass, in its order."""
    (mine,) = await store.gated([job.id]) or [None]
    if mine is None or mine.before is None:
        return []
    prefixes = await limit_prefixes(client, store, job)
    estimates = dict((options_of(job).budgets or {}).values())  # by gate
    shut: list[GateFacts] = []
    for name in mine.gates[mine.gates.index(mine.before) :]:
        if name.startswith(BREAKER):  # client/explain_breaker.py
            continue
        limit, key = limit_and_key(name, prefixes)
        cost = estimates.get(name, 1.0)
        shut += [
            GateFacts(limit, key, row, [], cost, is_budget=name in estimates)
            for row in await store.gates(name, limit=1)
            if row.name == name and row.waiting and not is_passable(row, cost, now)
        ]
    holders = {gate.row.name: gate.holders for gate in shut}
    if any(gate.row.cap is not None for gate in shut):
        namespace = namespace_of(job.lane)
        lanes = await store.queues(namespace)
        jobs = await candidates(store, namespace, lanes, job.lane)
        found = {each.id: each for each in jobs}
        for other in await store.gated([*found]):
            for name in other.holds:
                if name in holders:
                    holder = found[other.id]
                    holders[name].append(holder_of(holder, lanes, workers))
    return shut


async def limit_prefixes(
    client: LimitsClient, store: Store, job: StoredJob
) -> list[tuple[str, str]]:
    """Return the known limits, each with the beginning of the names of its gates."""
    namespace = namespace_of(job.lane)
    known = [(each.name, each.gates) for each in await read_limits(store, namespace)]
    handler = client.handler_of(job.task)
    if handler is None or handler.gate_rule is None:
        return known
    place = JobPlace(namespace, queue_of(job.lane), PRIORITY_MAX - job.rank)
    return [*handler.gate_rule.prefixes(place), *known]


def limit_and_key(name: str, prefixes: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the limit and the key of a gate; one of fairness has a priority in between."""
    kind, _, rest = name.partition(":")
    _, limit, key = rest.split("/", 2)
    for known, prefix in prefixes:
        if name.startswith(prefix):
            limit, key = known, name.removeprefix(prefix)
            break
    else:
        key = key.partition("/")[2] if kind == FAIR else key
    return limit, key


async def candidates(
    store: Store, namespace: str, lanes: Sequence[LaneRow], first: str | None = None
) -> list[StoredJob]:
    """Return jobs that may hold places; those of the lane `first` are looked at first."""
    ordered = {} if first is None else {first: None}
    ordered |= {row.name: None for row in lanes}
    queries = [Query(namespace=namespace, states=(RUNNING,))]
    queries += [Query(lane=each, states=(READY,)) for each in [*ordered][:LANES_MAX]]
    found: list[StoredJob] = []
    for query in queries:
        page = await store.find(query, limit=CANDIDATES_MAX, cursor=None)
        found += page.jobs
    return found


def holder_of(
    job: StoredJob, lanes: Sequence[LaneRow], workers: Sequence[WorkerRow]
) -> GateHolder:
    queue = queue_of(job.lane)
    if job.state == RUNNING:
        return GateHolder(job, queue)
    is_paused = any(row.paused for row in lanes if row.name == job.lane)
    has_workers = any(row.lease_seconds_left > 0 for row in workers)
    is_unserved = has_workers and not any(row.serves(queue) for row in workers)
    return GateHolder(job, queue, is_paused=is_paused, is_unserved=is_unserved)


def is_passable(row: GateRow, cost: float, now: float) -> bool:
    if row.until is not None and row.until > now:
        return False
    if row.cap is not None and row.used >= row.cap:
        return False
    return row.rate is None or seconds_until(row, cost) <= TICK_SECONDS


def seconds_until(row: GateRow, cost: float) -> float:
    """Return the time until there are tokens for a job of this cost."""
    missing = min(cost, row.burst) - row.tokens
    return max(0.0, missing / row.rate) if row.rate else 0.0


# --- the rule


def limited(facts: JobFacts) -> Iterator[JobReason]:
    """Yield the limits that hold a blocked job back."""
    for gate in facts.gates:
        yield limit_reason(facts, gate)


def limit_reason(facts: JobFacts, gate: GateFacts) -> JobReason:
    limit, key, row = gate[:3]
    whose = f' for "{key}"' if key else ""
    verb = "waits" if row.waiting == 1 else "wait"
    waits = f"{counted(row.waiting, 'job')} {verb} there"
    named = f"'{limit}'" if limit.endswith("*") else limit
    raised = f"durio limits set {named} {set_arguments(raised_choice(gate))}"
    if row.until is not None and row.until > facts.now:
        until = moment(row.until)
        text = f"limit {limit}{whose} is closed until {until}; {waits}"
        return JobReason("limit_closed", text, "Wait.", f"durio limits show {named}")
    if row.cap is None or row.used < row.cap:
        until = moment(facts.now + seconds_until(row, gate.cost))
        pace = rate_text(row.rate or 0.0)
        text = f"limit {limit}{whose} lets {pace} start: none until {until}; {waits}"
        return JobReason("rate_reached", text, "Wait, or raise the limit.", raised)
    if limit.startswith(FAIR_LIMIT):
        priority = PRIORITY_MAX - facts.job.rank
        queue = limit.removeprefix(FAIR_LIMIT)
        text = (
            f'{row.used} jobs of "{key}" with priority {priority} are ready in queue '
            f'"{queue}" already, and {row.cap} may be: others have their turn; {waits}'
        )
        return JobReason("fair_turn", text, "Wait, or widen the turns.", raised)
    text = f"limit {limit}{whose} is {row.used}/{row.cap}{holders_text(gate)}; {waits}"
    for holder in gate.holders:
        if holder.is_paused:
            unblock = (
                "Resume the queue of the job that has the place, or raise the limit."
            )
            command = f"durio queues resume {holder.queue}"
            return JobReason("limit_reached", text, unblock, command)
        if holder.is_unserved:
            unblock = (
                "Start a worker for the job that has the place, or raise the limit."
            )
            return JobReason(
                "limit_reached", text, unblock, worker_command(holder.queue)
            )
    return JobReason("limit_reached", text, "Wait, or raise the limit.", raised)


def raised_choice(gate: GateFacts) -> GateChoice:
    """Return a place more, if there is none; else twice the rate."""
    cap, used, rate, burst = gate.row[1:5]
    if cap is not None and used >= cap:
        return GateChoice(cap + 1, rate, burst)
    if rate is not None:
        return GateChoice(cap, 2 * rate, 2 * burst if gate.is_budget else burst)
    return GateChoice(cap, rate, burst)


def holders_text(gate: GateFacts) -> str:
    """Return the jobs that hold places, as far as they were found: first those that stay."""
    stuck_first = sorted(gate.holders, key=lambda holder: not holder.is_stuck)
    shown = [holder_text(holder) for holder in stuck_first[:NAMED_MAX]]
    more = gate.row.used - len(shown)
    if not shown:
        return ""
    return f": {', '.join(shown)}" + (f" and {more} more" if more > 0 else "")


def holder_text(holder: GateHolder) -> str:
    text = STATE_BY_CODE[holder.job.state].value
    if holder.is_paused:
        text += f' in queue "{holder.queue}", which is paused'
    elif holder.is_unserved:
        text += f' in queue "{holder.queue}", which no live worker serves'
    return f"job {id_text(holder.job.id)} ({text})"
