"""Topics of the stream: what each reads, once for all viewers, and how often at most.

A topic about a list only says that the list has changed; its pages are read again. A topic
about one thing also says numbers and states, never arguments. Nothing here listens to live
events: a listener would make every worker build an event for each job.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from durio.client.breakers import list_breakers
from durio.client.job_view import progress_of, readable
from durio.client.plan_list import list_plans
from durio.model.error_groups import GROUPS_MAX, errors_kind
from durio.model.errors import JobNotFound, PlanNotFound
from durio.model.gate_keys import CAP, FAIR, KEYED_CAP, KEYED_RATE, RATE
from durio.model.ids import id_bytes
from durio.model.job import STATE_BY_CODE, utc_datetime
from durio.model.limit_records import manual_limits_kind
from durio.model.names import queue_of
from durio.model.published_tasks import tasks_kind
from durio.model.schedule import schedules_kind
from durio.ports.browse import Query
from durio.ports.store import Store
from durio.web.attention import headline, notices, visible
from durio.web.figures import Figures, Queues

if TYPE_CHECKING:
    from durio.app.app import App

NEWEST_JOBS = 50
NEWEST_PLANS = 50
GATES_MAX = 200  # of each kind of limit
RECORDS_MAX = 1_000
BULK_SHOWN = ("state", "done", "skipped", "failed", "expected")
GATE_KINDS = (KEYED_CAP, KEYED_RATE, FAIR, CAP, RATE)

LIST_SECONDS = 1.0
FIGURE_SECONDS = 2.0
DETAIL_SECONDS = 0.5


class Watched(NamedTuple):
    """A topic, for all viewers who may see the same queues."""

    name: str  # `queues`, `job:<id>`
    queues: Queues  # None: all

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]

    @property
    def id(self) -> str:
        return self.name.partition(":")[2]

    def sees(self, lane: str) -> bool:
        return self.queues is None or queue_of(lane) in self.queues


class TopicSource:
    """Reads the state of topics from the store of an App."""

    def __init__(self, app: "App", figures: Figures) -> None:
        self.app = app
        self.figures = figures

    async def read(self, topic: Watched) -> Any:
        """Return the state now: a message follows when it differs from the one before."""
        return await KINDS[topic.kind].read(self, topic)

    async def store(self) -> Store:
        return await self.app.store()

    # --- figures

    async def overview(self, topic: Watched) -> Mapping[str, Any]:
        counted = (await self.figures.snapshot()).value
        lists = (await self.figures.lists.read()).value
        snapshot = visible(counted, topic.queues)
        is_all = topic.queues is None
        found = notices(
            snapshot,
            lists.findings if is_all else (),
            lists.breakers if is_all else (),
        )
        level, text = headline(found, snapshot)
        live = snapshot.live_workers
        return {
            "level": level,
            "text": text,
            "states": await self.states(topic),
            "workers": len(live),
            "busy": sum(row.running for row in live),
        }

    async def states(self, topic: Watched) -> dict[str, int]:
        """Return the jobs that have not ended, and the dead ones, by state."""
        found: dict[str, int] = {}
        for row in (await self.figures.snapshot()).value.lanes:
            if topic.sees(row.name):
                for code, jobs in row.counts.items():
                    state = STATE_BY_CODE[code].value
                    found[state] = found.get(state, 0) + jobs
        return found

    async def queues(self, topic: Watched) -> Any:
        rows = await (await self.store()).queues(self.app.name)
        counted = (await self.figures.snapshot()).value.lanes
        return [
            [row for row in rows if topic.sees(row.name)],
            [(row.name, row.counts) for row in counted if topic.sees(row.name)],
        ]

    # --- lists

    async def jobs(self, topic: Watched) -> Any:
        query = Query(namespace=self.app.name)
        page = await (await self.store()).find(query, limit=NEWEST_JOBS, cursor=None)
        return [
            [
                (job.id.hex(), job.state, job.retried, str(job.progress))
                for job in page.jobs
                if topic.sees(job.lane)
            ],
            await self.states(topic),
        ]

    async def dead(self, topic: Watched) -> Any:
        deaths = await (await self.store()).tallies(self.app.name)
        states = await self.states(topic)
        return [sum(n.dead for n in deaths if topic.sees(n.lane)), states.get("dead")]

    async def workers(self, topic: Watched) -> Any:
        _ = topic
        return [
            (row.id, row.running, row.lease_seconds_left > 0, row.is_draining)
            for row in await (await self.store()).workers(self.app.name)
        ]

    async def plans(self, topic: Watched) -> Any:
        plans = await list_plans(
            await self.store(), self.app.name, limit=NEWEST_PLANS, now=self.app.now()
        )
        return [[(plan.id, plan.state) for plan in plans], await self.states(topic)]

    async def schedules(self, topic: Watched) -> Any:
        _ = topic
        return await self.versions(schedules_kind(self.app.name))

    async def tasks(self, topic: Watched) -> Any:
        _ = topic
        return await self.versions(tasks_kind(self.app.name))

    async def errors(self, topic: Watched) -> Any:
        _ = topic
        return await self.versions(errors_kind(self.app.name), GROUPS_MAX + 1)

    async def limits(self, topic: Watched) -> Any:
        _ = topic
        store, name = await self.store(), self.app.name
        gates = [
            (gate.name, gate.cap, gate.rate, gate.used, gate.waiting)
            for kind in GATE_KINDS
            for gate in await store.gates(f"{kind}:{name}/", limit=GATES_MAX)
        ]
        return [gates, await self.versions(manual_limits_kind(name))]

    async def breakers(self, topic: Watched) -> Any:
        _ = topic
        found = await list_breakers(await self.store(), self.app.name)
        return [(each.name, each.record, each.waiting) for each in found]

    async def audit(self, topic: Watched) -> Any:
        _ = topic
        return await (await self.store()).audit(self.app.name, limit=1)

    async def versions(self, kind: str, limit: int = RECORDS_MAX) -> Any:
        """Return what changes with every write of a record of this kind."""
        records = await (await self.store()).list_records(kind, limit=limit)
        return [(record.name, record.version, record.due_at) for record in records]

    # --- one thing

    async def job(self, topic: Watched) -> Mapping[str, Any]:
        found = await (await self.store()).get([id_bytes(topic.id)])
        if not found or not topic.sees(found[0].lane):
            return {"id": topic.id, "state": None}
        job = found[0]
        progress = progress_of(job)
        return {
            "id": topic.id,
            "state": STATE_BY_CODE[job.state].value,
            "attempt": job.retried + job.losses + 1,
            "worker": None if job.worker is None else str(job.worker),
            "run_at": utc_datetime(job.run_at),
            "started_at": utc_datetime(job.started_at),
            "finished_at": utc_datetime(job.finished_at),
            "progress": progress and {"done": progress.done, "total": progress.total},
        }

    async def plan(self, topic: Watched) -> Mapping[str, Any]:
        try:
            status = await (await self.app.plan(topic.id)).status()
        except (PlanNotFound, JobNotFound):
            return {"id": topic.id, "state": None}
        counts = {state.value: jobs for state, jobs in status.counts.items()}
        return {"id": topic.id, "state": status.state.value, "counts": counts}

    async def bulk(self, topic: Watched) -> Mapping[str, Any]:
        kind = f"bulk:{self.app.name}"
        for record in await (await self.store()).records(kind, [topic.id]):
            body: Any = readable(record.body)
            return {"id": topic.id, **{name: body.get(name) for name in BULK_SHOWN}}
        return {"id": topic.id, "state": None}


class TopicKind(NamedTuple):
    """How a kind of topic is read."""

    read: Callable[[TopicSource, Watched], Awaitable[Any]]
    seconds: float  # between two reads, at least
    is_list: bool = False  # the state is not sent, only that it changed
    has_id: bool = False


def listed(
    read: Callable[[TopicSource, Watched], Awaitable[Any]],
    seconds: float = LIST_SECONDS,
) -> TopicKind:
    return TopicKind(read, seconds, is_list=True)


KINDS: dict[str, TopicKind] = {
    "overview": TopicKind(TopicSource.overview, FIGURE_SECONDS),
    "queues": listed(TopicSource.queues),
    "jobs": listed(TopicSource.jobs),
    "dead": listed(TopicSource.dead),
    "workers": listed(TopicSource.workers),
    "plans": listed(TopicSource.plans, FIGURE_SECONDS),
    "schedules": listed(TopicSource.schedules, FIGURE_SECONDS),
    "tasks": listed(TopicSource.tasks, FIGURE_SECONDS),
    "errors": listed(TopicSource.errors, FIGURE_SECONDS),
    "limits": listed(TopicSource.limits, FIGURE_SECONDS),
    "breakers": listed(TopicSource.breakers, FIGURE_SECONDS),
    "audit": listed(TopicSource.audit, FIGURE_SECONDS),
    "job": TopicKind(TopicSource.job, DETAIL_SECONDS, has_id=True),
    "plan": TopicKind(TopicSource.plan, LIST_SECONDS, has_id=True),
    "bulk": TopicKind(TopicSource.bulk, DETAIL_SECONDS, has_id=True),
}
