"""Run the layout of a plan in memory, in a random order: a store, workers and a leader.

A job waits until a log is longer, appends to logs when it ends, and
the leader reads the log of failures. Nothing here knows what a chain or a group is.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - seeded by the test
from typing import Any, NamedTuple

from durio.model.ids import id_text
from durio.model.logs import CANCELLED_END, DEAD_END, DONE_END, OnEnd
from durio.model.plan_failure import dependents, fails_plan, handler_id, handlers
from durio.model.plan_layout import Input, PlanLayout, PlanNode
from durio.model.plan_names import node_id
from durio.plans import Collected, Err, Ok
from tests.plans.reference import Behaviours, leaf_value, name_of

PLAN = bytes.fromhex("018bcfe568007005a51cc5d900000015")
ENDS = {"done": DONE_END, "dead": DEAD_END, "cancelled": CANCELLED_END}


class Entry(NamedTuple):
    tag: int
    state: str
    node: int
    body: Any


@dataclass
class Job:
    node: PlanNode
    ends: list[OnEnd]
    state: str = "blocked"
    failures: int = 0
    is_asked: bool = False  # to end: it was cancelled while it ran
    result: Any = None


@dataclass
class Engine:
    """One plan, from its enqueue to its end."""

    layout: PlanLayout
    behaviours: Behaviours
    random: Random
    logs: defaultdict[str, list[Entry]] = field(
        default_factory=lambda: defaultdict(list)
    )
    # ("start", leaf) and ("done", leaf), in the order in which they happened
    events: list[tuple[str, str]] = field(default_factory=list)
    handled: list[str] = field(default_factory=list)  # handlers, in this order
    failures: list[str] = field(default_factory=list)  # leaves, as the leader saw them
    first_error: str | None = None

    def run(self) -> None:
        self.jobs = [Job(node, list(node.on_end)) for node in self.layout.nodes]
        self.read = 0  # the leader's cursor in the log of failures
        self.handler_ids: set[bytes] = set()
        if self.layout.go is not None:
            self.logs[self.layout.go].append(Entry(0, "done", -1, None))
        self.release()
        while actions := [*self.actions()]:
            action, *what = self.random.choice(actions)
            action(*what)

    def actions(self) -> Iterator[tuple[Any, ...]]:
        for job in self.jobs:
            if job.state == "ready":
                yield self.start, job
            elif job.state == "running":
                yield self.finish, job
        if self.read < len(self.logs["pf:shop"]):
            yield (self.lead,)

    # --- workers

    def start(self, job: Job) -> None:
        job.state = "running"
        if job.node.signature is not None and job.failures == 0:
            self.events.append(("start", name_of(job.node.signature)))

    def finish(self, job: Job) -> None:
        if job.is_asked and self.random.random() < 0.5:
            job.state = "cancelled"  # quiet: the leader asked for it
            return
        given = () if job.node.input is None else (self.input_of(job.node.input),)
        if job.node.signature is None:
            self.end(job, "done", given[0])
            return
        name = name_of(job.node.signature)
        behaviour = self.behaviours[name]
        if job.failures < behaviour.failures:
            job.failures += 1
            job.state = "cancelled" if job.is_asked else "ready"
        elif behaviour.end == "value":
            self.events.append(("done", name))
            self.end(job, "done", leaf_value(*given, *job.node.signature.args))
        elif job.is_asked:
            job.state = "cancelled"
        else:
            self.end(job, behaviour.end, None)

    def input_of(self, wanted: Input) -> Any:
        if wanted.log is None:
            return Collected() if wanted.kind == "collected" else []
        entries = sorted(e for e in self.logs[wanted.log] if e.tag >= 0)
        if wanted.kind == "one":
            return entries[0].body
        assert [entry.tag for entry in entries] == [*range(wanted.members)]
        if wanted.kind == "list":
            return [entry.body for entry in entries]
        return Collected(
            Ok(entry.body)
            if entry.state == "done"
            else Err(entry.state, "", id_text(node_id(PLAN, entry.node)))
            for entry in entries
        )

    # --- the store

    def end(self, job: Job, state: str, result: Any) -> None:
        job.state, job.result = state, result
        for end in [end for end in job.ends if end.when & ENDS[state]]:
            job.ends.remove(end)
            log = self.logs[end.log]
            if not (end.once and any(entry.tag == end.tag for entry in log)):
                log.append(Entry(end.tag, state, job.node.number, result))
        self.release()

    def release(self) -> None:
        for job in self.jobs:
            wait = job.node.wait
            if job.state == "blocked" and (
                wait is None or len(self.logs[wait.log]) > wait.above
            ):
                job.state = "ready"

    # --- the leader

    def lead(self) -> None:
        """Read one failure: cancel what depends on it, and run its handlers."""
        number = self.logs["pf:shop"][self.read].tag
        self.read += 1
        signature = self.layout.nodes[number].signature
        assert signature is not None
        self.failures.append(name_of(signature))
        if fails_plan(self.layout, number) and self.first_error is None:
            self.first_error = name_of(signature)
        for each in dependents(self.layout, number):
            job = self.jobs[each]
            if job.state == "running":
                job.is_asked = True
            elif job.state in {"blocked", "ready"}:
                job.state = "cancelled"
        for call in handlers(self.layout, number):
            job_id = handler_id(PLAN, call)
            if job_id not in self.handler_ids:
                self.handler_ids.add(job_id)
                self.handled.append(name_of(call.signature))
