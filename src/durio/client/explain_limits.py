"""Which limit holds a job back: its gates, as the code computes them, and their rows.

A store does not say before which gate a job stands. So its gates are computed again from its
arguments, and the rows of those gates say which of them lets nothing pass. In the same way
the holders of places are found among running and ready jobs.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

from durio.client.explain_facts import NAMED_MAX, GateFacts, JobFacts
from durio.client.job_view import options_of
from durio.client.limit_view import rate_text, set_arguments
from durio.client.task_by_name import NamedArguments, published_tasks
from durio.model.errors import DurioError
from durio.model.explanation import JobReason, moment
from durio.model.gate import TICK_SECONDS
from durio.model.gate_keys import BREAKER, CAP, gate_prefix
from durio.model.gate_rule import (
    FAIR_LIMIT,
    QUEUE_LIMIT,
    GateChoice,
    GateRule,
    JobPlace,
    rule_of_published,
)
from durio.model.ids import id_text
from durio.model.job import PRIORITY_MAX, READY, RUNNING, STATE_BY_CODE, StoredJob
from durio.model.names import known_as, namespace_of, queue_of
from durio.model.quantities import counted
from durio.ports.browse import GateRow, Query
from durio.ports.handler import Handler
from durio.ports.store import Store

# Jobs that may hold a place: the newest running ones, and ready ones of its queue and others.
CANDIDATES_MAX, LANES_MAX = 200, 10
_values = msgspec.json.Decoder(tuple[list[Any], dict[str, Any]])


class LimitsClient(Protocol):
    """The part of an App that knows the code of its tasks."""

    def handler_of(self, task: str) -> Handler | None:
        """Return the task's code; None if it is not loaded here."""
        ...


class GateNames:
    """Computes the names of the gates of stored jobs."""

    def __init__(
        self, client: LimitsClient, published: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._client = client
        self._published = published

    def of(self, job: StoredJob) -> dict[str, tuple[str, str]]:
        """Return them with limit and key, as the job's arguments give them, in order.

        Those whose key is a function need the code.
        """
        namespace, queue = namespace_of(job.lane), queue_of(job.lane)
        of_queue = f"{QUEUE_LIMIT}{queue}"
        found = {gate_prefix(CAP, namespace, of_queue): (of_queue, "")}
        place = JobPlace(namespace, queue, PRIORITY_MAX - job.rank)
        try:
            rule, values = self._rule_and_values(job)
            if rule is not None:
                prefixes = rule.prefixes(place)
                for spec in rule.gates(values, place):
                    limit, prefix = next(
                        p for p in prefixes if spec.name.startswith(p[1])
                    )
                    found[spec.name] = limit, spec.name.removeprefix(prefix)
        except (DurioError, msgspec.MsgspecError):
            pass  # damaged arguments, or a function that is not here
        return dict(sorted(found.items()))

    def _rule_and_values(
        self, job: StoredJob
    ) -> tuple[GateRule | None, Mapping[str, Any]]:
        handler = self._client.handler_of(job.task)
        if handler is not None:
            rule = handler.gate_rule
            values = {} if rule is None else handler.codec.decode_by_name(job.payload)
            return rule, values
        name = known_as(job.task, self._published)
        if name is None:
            return None, {}
        known = self._published[name]
        place = options_of(job).plan
        args, kwargs = _values.decode(job.payload)
        is_following = place is not None and place.input is not None
        arguments = NamedArguments(job.task, known)
        values = arguments.by_name(args, kwargs, is_following=is_following)
        return rule_of_published(job.task, known.get("limits")), values


async def limiting_gates(
    client: LimitsClient, store: Store, job: StoredJob, now: float
) -> list[GateFacts]:
    """Return the gates of a blocked job that let nothing pass, in its order."""
    namespace = namespace_of(job.lane)
    names = GateNames(client, await published_tasks(store, namespace) or {})
    estimates = dict((options_of(job).budgets or {}).values())  # by gate
    shut: list[GateFacts] = []
    for name, (limit, key) in names.of(job).items():
        cost = estimates.get(name, 1.0)
        shut += [
            GateFacts(limit, key, row, [], cost)
            for row in await store.gates(name, limit=1)
            if row.name == name and row.waiting and not is_passable(row, cost, now)
        ]
    holders = {gate.row.name: gate.holders for gate in shut}
    if any(gate.row.cap is not None for gate in shut):
        for other in await candidates(store, namespace, job.lane):
            for name in names.of(other):
                if name in holders and other.id != job.id:
                    holders[name].append(other)
    return shut


async def candidates(
    store: Store, namespace: str, lane: str | None = None
) -> list[StoredJob]:
    """Return jobs that may hold places; those of `lane` are looked at first."""
    lanes = {} if lane is None else {lane: None}
    lanes |= {row.name: None for row in await store.queues(namespace)}
    queries = [Query(namespace=namespace, states=(RUNNING,))]
    queries += [Query(lane=each, states=(READY,)) for each in [*lanes][:LANES_MAX]]
    found: list[StoredJob] = []
    for query in queries:
        page = await store.find(query, limit=CANDIDATES_MAX, cursor=None)
        found += page.jobs
    return found


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
        if not gate.row.name.startswith(BREAKER):  # client/explain_breaker.py
            yield limit_reason(facts, gate)


def limit_reason(facts: JobFacts, gate: GateFacts) -> JobReason:
    limit, key, row = gate[:3]
    whose = f' for "{key}"' if key else ""
    verb = "waits" if row.waiting == 1 else "wait"
    waits = f"{counted(row.waiting, 'job')} {verb} there"
    show = f"durio limits show {limit}"
    if row.until is not None and row.until > facts.now:
        until = moment(row.until)
        text = f"limit {limit}{whose} is closed until {until}; {waits}"
        return JobReason("limit_closed", text, "Wait.", show)
    if row.cap is None or row.used < row.cap:
        until = moment(facts.now + seconds_until(row, gate.cost))
        pace = rate_text(row.rate or 0.0)
        text = f"limit {limit}{whose} lets {pace} start: none until {until}; {waits}"
        return JobReason("rate_reached", text, "Wait, or raise the limit.", show)
    choice = GateChoice(row.cap + 1, row.rate, row.burst)
    raised = f"durio limits set {limit} {set_arguments(choice)}"
    if limit.startswith(FAIR_LIMIT):
        priority = PRIORITY_MAX - facts.job.rank
        text = (
            f'{row.used} jobs of "{key}" with priority {priority} are ready in queue '
            f'"{facts.queue}" already, and {row.cap} may be: others have their turn; {waits}'
        )
        return JobReason("fair_turn", text, "Wait, or widen the turns.", raised)
    text = f"limit {limit}{whose} is {row.used}/{row.cap}{holders_text(gate)}; {waits}"
    return JobReason("limit_reached", text, "Wait, or raise the limit.", raised)


def holders_text(gate: GateFacts) -> str:
    """Return the jobs that hold places, as far as they were found."""
    shown = [
        f"job {id_text(job.id)} ({STATE_BY_CODE[job.state].value})"
        for job in gate.holders[:NAMED_MAX]
    ]
    more = gate.row.used - len(shown)
    if not shown:
        return ""
    return f": {', '.join(shown)}" + (f" and {more} more" if more > 0 else "")
