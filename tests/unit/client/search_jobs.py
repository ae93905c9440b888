"""Jobs of every kind for searches, and a plain filter that searches are compared with."""

import json
import operator
import random  # noqa: TID251 - from a seed
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from durio.client.job_search import JobSearch, prepare_search, whole_app
from durio.client.job_view import details_of
from durio.model.error_groups import fingerprint_of
from durio.model.ids import id_text, uuid7
from durio.model.job import JobDetails, StoredJob
from durio.model.options import RowOptions
from durio.model.outcome import OutcomeKind
from durio.model.plan_place import PlanPlace
from durio.model.query_language import parse_query
from durio.model.tick import TickPlace
from durio.ports.browse import Query
from durio.ports.control import CancelJobs
from durio.ports.store import Store
from tests.conformance.manual_clock import START, ManualClock
from tests.conformance.scene import Scene, info, outcome
from tests.conformance.subject import Subject

APP, JOBS = "shop", 120
QUEUES = ("mail", "default")
TASKS = ("shop.send", "shop.send_receipt", "shop.pay", "bank.pay")
KEYS = ("order-1", "order-2", "a b", 'with "quotes"', "über")
ERRORS = (("ValueError", "no such order"), ("TimeoutError", "Zeitüberschreitung: 30s"))
PLANS = tuple(id_text(uuid7(1_700_000_000_000 + n, 0, n)) for n in range(2))
USERS: tuple[Any, ...] = (
    1,
    2,
    "1",
    "ann",
    1.5,
    None,
    True,
    ["red", 2],
    {"name": "ann"},
)
KINDS = ("ready", "scheduled", "done", "dead", "cancelled", "retried", "running")
NOW = START + 5_000.0
VERSION = "v2.1"


def options_for(chance: random.Random) -> bytes | None:
    tick = TickPlace("nightly", 1_799_999_000.0) if chance.random() < 0.2 else None
    plan = PlanPlace(chance.choice(PLANS), 0) if chance.random() < 0.2 else None
    meta = {"tenant": chance.choice(["acme", "eu", 7]), "deep": {"x": [1, 2]}}
    row = RowOptions(
        meta=meta if chance.random() < 0.5 else None,
        key=chance.choice([None, None, *KEYS]),
        tick=tick,
        plan=plan,
    )
    return None if row == RowOptions() else msgspec.json.encode(row)


async def add_jobs(scene: Scene, seed: int) -> None:
    """Add jobs of every state, made over an hour, some of them out of order."""
    chance = random.Random(seed)  # noqa: S311 - data from a seed
    kinds: dict[bytes, str] = {}
    for n in range(JOBS):
        args = [chance.choice(USERS)] if chance.random() < 0.3 else []
        kwargs = {"user": chance.choice(USERS), "0": "zero"}
        job_id = uuid7(int((START + chance.uniform(0, 3600)) * 1000), n, n)
        kind = chance.choice(KINDS)
        task = chance.choice(TASKS)
        await scene.add(
            id=job_id,
            lane=f"{APP if task[0] == 's' else 'bank'}:{chance.choice(QUEUES)}",
            task=task,
            payload=json.dumps([args, kwargs]).encode(),
            opts=options_for(chance),
            priority=chance.randrange(10),
            delay=1000.0 if kind == "scheduled" else 0.0,
        )
        kinds[job_id] = kind
        scene.clock.advance(1.0)
    await end_jobs(scene, kinds, chance)


async def end_jobs(
    scene: Scene, kinds: dict[bytes, str], chance: random.Random
) -> None:
    await scene.store.act(
        [i for i, k in kinds.items() if k == "cancelled"], CancelJobs()
    )
    row = info(code_version=VERSION, name="host-1/77")
    worker = await scene.store.register(row, 1e6, [])
    for lane in (f"{app}:{queue}" for app in (APP, "bank") for queue in QUEUES):
        for claim in await scene.claim(worker, lane=lane, want=1000):
            scene.clock.advance(chance.choice([0.25, 3.0]))
            kind = kinds[claim.id]
            name, text = chance.choice(ERRORS)
            error = json.dumps(
                {"type": name, "message": text, "attempt": 1, "worker": "host-9/1"}
            ).encode()
            if kind == "done":
                await scene.finish(worker, claim)
            elif kind == "dead":
                reason = chance.choice(["exhausted", "permanent"])
                end = outcome(claim, OutcomeKind.DEAD, error=error, reason=reason)
                await scene.store.exchange(worker, [end], (), 0)
            elif kind == "retried":
                wait = outcome(
                    claim, OutcomeKind.RETRY, error=error, delay_seconds=900.0
                )
                await scene.store.exchange(worker, [wait], (), 0)
            elif kind == "ready":
                back = outcome(claim, OutcomeKind.RELEASE)
                await scene.store.exchange(worker, [back], (), 0)


# --- the filter in plain Python


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
PREFIX = "*"


@dataclass
class Wanted:
    """One term, as the strategy has made it."""

    key: str
    values: list[tuple[str, Any]]  # operator (or PREFIX), and the value
    is_negated: bool = False
    text: str = field(default="", init=False)

    def __post_init__(self) -> None:
        texts = [
            f"{written(v)}*" if op == PREFIX else f"{op}{written(v)}"
            for op, v in self.values
        ]
        head = f"{self.key}:" if self.key else ""
        self.text = f"{'-' if self.is_negated else ''}{head}{','.join(texts)}"

    def holds(self, job: JobDetails, stored: StoredJob) -> bool:
        found = any(self.fits(job, stored, op, value) for op, value in self.values)
        return found is not self.is_negated

    def fits(self, job: JobDetails, stored: StoredJob, op: str, value: Any) -> bool:
        if self.key:
            return self.fits_key(job, stored, op, value)
        own = job.task.split(".")[1] if job.task.startswith("shop.") else ""
        texts = (own, job.task)
        starts = op == PREFIX and any(t.startswith(value) for t in texts)
        error = f"{last(job, 'type')}: {last(job, 'message')}".lower()
        has_error = job.last_error is not None and value.lower() in error
        return value in texts or starts or (op != PREFIX and has_error)

    def fits_key(self, job: JobDetails, stored: StoredJob, op: str, value: Any) -> bool:
        if self.key.startswith(("args.", "meta.")):
            return json_holds(job, self.key, op, value)
        found = FIELDS[self.key](job, stored)
        return found is not None and self.fits_found(found, op, value)

    def fits_found(self, found: Any, op: str, value: Any) -> bool:
        if self.key in ("id", "plan", "group"):
            return str(found).replace("-", "").startswith(value.replace("-", ""))
        if op == PREFIX:
            return str(found).startswith(value)
        if self.key == "error":
            return value.lower() in found
        return OPERATORS[op](found, value)


def written(value: Any) -> str:
    text = str(value)
    if any(char in text for char in ' ",<>'):
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{quoted}"'
    return text


def last(job: JobDetails, name: str) -> Any:
    return getattr(job.last_error, name) if job.last_error else None


def error_of(job: JobDetails, _: StoredJob) -> str | None:
    if job.last_error is None:
        return None
    return f"{job.last_error.type}: {job.last_error.message}".lower()


def group_of(job: JobDetails, _: StoredJob) -> str | None:
    if not job.errors:
        return None
    error = job.errors[-1]
    return fingerprint_of(error.type, error.message, error.traceback, job.task)[0]


def worker_of(job: JobDetails, _: StoredJob) -> str | None:
    if job.worker is not None:
        return "host-1/77"
    return job.errors[-1].worker if job.errors else None


def made_at(stored: StoredJob) -> float:
    return int.from_bytes(stored.id[:6]) / 1000


def waited(_: JobDetails, stored: StoredJob) -> float | None:
    due = max(stored.created_at, stored.run_at or 0.0)
    if stored.state == 2:
        return max(0.0, NOW - due)
    if stored.state < 3 or stored.started_at is None:
        return None
    return max(0.0, stored.started_at - due)


def ran(_: JobDetails, stored: StoredJob) -> float | None:
    if stored.started_at is None or stored.state < 3:
        return None
    end = NOW if stored.state == 3 else stored.finished_at
    return None if end is None else end - stored.started_at


def tick_of(_: JobDetails, stored: StoredJob) -> str | None:
    return "nightly" if stored.opts and b"nightly" in stored.opts else None


FIELDS: dict[str, Callable[[JobDetails, StoredJob], Any]] = {
    "state": lambda job, _: job.state.value,
    "queue": lambda job, _: job.queue,
    "task": lambda job, _: job.task,
    "id": lambda job, _: job.id,
    "key": lambda job, _: job.key,
    "error": error_of,
    "reason": lambda job, _: job.reason,
    "worker": worker_of,
    "version": lambda job, _: VERSION if job.worker else None,
    "attempt": lambda job, _: job.attempt,
    "priority": lambda job, _: job.priority,
    "age": lambda _, stored: round(NOW - made_at(stored), 3),
    "created": lambda _, stored: made_at(stored),
    "finished": lambda _, s: s.finished_at and round(NOW - s.finished_at, 3),
    "wait": waited,
    "run": ran,
    "schedule": tick_of,
    "plan": lambda job, _: job.plan,
    "group": group_of,
}


def json_holds(job: JobDetails, key: str, op: str, value: Any) -> bool:
    root, *path = key.split(".")
    found: Any = job.meta if root == "meta" else job.kwargs
    if root == "args" and path[0] == "0" and job.args:
        found, path = job.args[0], path[1:]
    for name in path:
        found = found[name] if isinstance(found, dict) and name in found else Ellipsis
    if found is Ellipsis:
        return False
    if op == PREFIX and value == "":
        return True
    items = found if isinstance(found, list) else [found]
    return any(item_holds(item, op, value) for item in items)


def item_holds(item: Any, op: str, value: Any) -> bool:
    if isinstance(item, dict):
        return False
    text = item if isinstance(item, str) else json.dumps(item)
    if op == PREFIX:
        return text.startswith(value)
    is_number = isinstance(item, int | float) and not isinstance(item, bool)
    if op:
        return is_number and OPERATORS[op](item, value)
    return text == str(value) or (is_number and item == value)


# --- queries from chance


@st.composite
def terms(draw: st.DrawFn, ids: list[str], groups: list[str]) -> Wanted:
    def some(*values: Any) -> st.SearchStrategy[Any]:
        return st.sampled_from(values)

    exact, order, prefix = some(""), some("<", "<=", ">", ">="), some(PREFIX)
    choices: dict[str, list[st.SearchStrategy[tuple[str, Any]]]] = {
        "state": [st.tuples(exact, some("ready", "dead", "done", "scheduled"))],
        "queue": [
            st.tuples(exact, some(*QUEUES, "none")),
            st.tuples(prefix, some("ma")),
        ],
        "task": [st.tuples(exact, some(*TASKS, "shop.x"))],
        "id": [st.tuples(exact, some(*ids, *(i[:9] for i in ids), "0", "f"))],
        "key": [st.tuples(exact, some(*KEYS)), st.tuples(prefix, some("order-", ""))],
        "meta.tenant": [st.tuples(exact, some("acme", "eu", 7, "8"))],
        "meta.deep.x": [st.tuples(exact, some(1, 3)), st.tuples(prefix, some(""))],
        "args.user": [
            st.tuples(exact, some(1, 2, "ann", 1.5, "null", "true", "red", "none")),
            st.tuples(order, some(1, 1.5, 2)),
            st.tuples(prefix, some("a", "1", "")),
        ],
        "args.user.name": [st.tuples(exact, some("ann", "bob"))],
        "args.0": [st.tuples(exact, some(1, "zero", "ann"))],
        "args.__proto__": [st.tuples(exact, some(1))],
        "error": [st.tuples(exact, some("ORDER", "timeout", "r: n", "ÜBER", "none"))],
        "reason": [st.tuples(exact, some("exhausted", "permanent", "none"))],
        "worker": [
            st.tuples(exact, some("host-1/77", "host-9/1")),
            st.tuples(prefix, some("host")),
        ],
        "version": [st.tuples(exact, some(VERSION, "v1"))],
        "attempt": [st.tuples(some("", "<", ">="), some(1, 2))],
        "priority": [st.tuples(some("", "<", "<=", ">", ">="), some(0, 5, 9))],
        "age": [st.tuples(order, some(1400, 2500, 4000.5, 5000, 0, 10**7))],
        "finished": [st.tuples(order, some(4700, 4800, 4900.25, 0))],
        "wait": [st.tuples(order, some(0, 60, 100, 4900))],
        "run": [st.tuples(order, some(0.25, 3, 4000))],
        "schedule": [st.tuples(exact, some("nightly", "x"))],
        "plan": [st.tuples(exact, some(*PLANS, "01", "ff"))],
        "group": [st.tuples(exact, some(*groups, *(g[:4] for g in groups), "0"))],
        "": [
            st.tuples(exact, some("send", "pay", "shop.send", "order", "bank.pay")),
            st.tuples(prefix, some("send", "shop.")),
        ],
    }
    key = draw(st.sampled_from(sorted(choices)))
    value = st.one_of(*choices[key])
    values = draw(st.lists(value, min_size=1, max_size=3 if key else 1))
    return Wanted(key, values, draw(st.booleans()))


@dataclass
class Searched:
    """A store with jobs, and what a search is compared with."""

    store: Store
    clock: ManualClock
    jobs: list[StoredJob]  # newest first by id

    def expected(self, wanted: list[Wanted]) -> set[bytes]:
        return {
            stored.id
            for stored in self.jobs
            for job in [details_of(stored, None)]
            if stored.lane.startswith(f"{APP}:")
            and all(each.holds(job, stored) for each in wanted)
        }

    async def search(
        self, text: str, cursor: str | None = None
    ) -> tuple[JobSearch, str | None]:
        return await prepare_search(
            self.store, parse_query(text), whole_app(APP), now=NOW, cursor=cursor
        )


async def searched(stack: AsyncExitStack, subject: Subject, seed: int) -> Searched:
    """Open a store with the jobs of this seed."""
    clock = ManualClock()
    store = await stack.enter_async_context(subject.open_store(clock))
    scene = Scene(store, clock, subject, stack)
    await add_jobs(scene, seed)
    jobs = sorted(await scene.records(Query()), key=lambda job: job.id, reverse=True)
    assert len(jobs) == JOBS
    return Searched(store, clock, jobs)
