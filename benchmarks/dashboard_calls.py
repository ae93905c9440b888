"""The calls that the dashboard's screens make, with parameters that change from call to call."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from benchmarks.dashboard_workload import (
    BACKLOG,
    DAYS,
    ERRORS,
    QUEUES,
    task_names,
)

NAMES_KEPT = 400  # of each kind that a call takes one of


@dataclass
class Sample:
    """Names of things in the store, for the paths of calls, and chance."""

    chance: random.Random
    names: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def one(self, kind: str) -> str:
        known = self.names.get(kind)
        return quote(self.chance.choice(known), safe="") if known else "none"

    def customer(self) -> int:
        return self.chance.randrange(10_000)

    def task(self) -> str:
        return self.chance.choice(task_names())

    def queue(self) -> str:
        return self.chance.choice(QUEUES)

    def state(self) -> str:
        return self.chance.choice(("dead", "done", "ready", "scheduled", "cancelled"))


class ScreenCall:
    """One call of a screen: its route, and its address for each use."""

    def __init__(
        self,
        route: str,
        of: str = "",
        label: str = "",
        **parameters: str | Callable[[Sample], str],
    ) -> None:
        self.route = route
        self.kind = of  # of the name in the path
        self.label = label
        self.parameters = parameters

    @property
    def name(self) -> str:
        return f"{self.route} {self.label}".rstrip()

    @property
    def is_action(self) -> bool:
        """Whether it is a step of an action, which may take longer: it counts exactly."""
        return self.route == "/bulk/preview"

    async def send(
        self, client: httpx.AsyncClient, sample: Sample
    ) -> tuple[httpx.Response, float]:
        """Make the call; return the answer and the seconds that it took."""
        path, given = self.path(sample)
        began = time.perf_counter()
        if self.is_action:
            answer = await client.post(path, json=given)
        else:
            answer = await client.get(path, params=given)
        return answer, time.perf_counter() - began

    def path(self, sample: Sample) -> tuple[str, dict[str, str]]:
        """Return the path below the mount, and the parameters."""
        path = self.route
        if "{" in path:
            head, _, rest = path.partition("{")
            path = head + sample.one(self.kind) + rest.partition("}")[2]
        given = {
            name: value if isinstance(value, str) else value(sample)
            for name, value in self.parameters.items()
        }
        return f"/admin{path}", given


def query(label: str, text: str | Callable[[Sample], str]) -> list[ScreenCall]:
    """Return the list and the count of one query."""
    return [
        ScreenCall("/jobs", label=label, q=text),
        ScreenCall("/jobs/count", label=label, q=text),
    ]


PREVIEWS: tuple[tuple[str, str, str | Callable[[Sample], str]], ...] = (
    ("dead of a task", "retry", lambda s: f"task:{s.task()}_or_fail"),
    ("all dead", "discard", "state:dead"),
    ("an argument", "retry", lambda s: f"args.customer:{s.customer()}"),
)


def days(sample: Sample) -> int:
    return sample.chance.randrange(1, DAYS)


CALLS: tuple[ScreenCall, ...] = (
    ScreenCall("/me"),
    ScreenCall("/overview"),
    ScreenCall("/jobs"),
    ScreenCall("/jobs/count"),
    *query("one state", lambda s: f"state:{s.state()}"),
    *query("a queue", lambda s: f"queue:{s.queue()}"),
    *query("a busy queue", f"queue:{BACKLOG} state:ready"),
    *query("a task", lambda s: f"task:{s.task()}"),
    *query("dead of a task", lambda s: f"state:dead task:{s.task()}_or_fail"),
    *query("an error", lambda s: f"state:dead error:{s.chance.choice(ERRORS)}"),
    *query("an argument", lambda s: f"args.customer:{s.customer()}"),
    *query("a rare word", lambda s: f"state:done nothing{s.customer()}"),
    *query("an age", lambda s: f"age:>{days(s)}d state:dead"),
    *query("a state of a queue", lambda s: f"state:{s.state()} queue:{s.queue()}"),
    ScreenCall(
        "/jobs/complete", q=lambda s: f"state:dead task:{s.task()[:4]}", at="16"
    ),
    ScreenCall("/jobs/{job_id}", "done", "done"),
    ScreenCall("/jobs/{job_id}", "dead", "dead"),
    ScreenCall("/jobs/{job_id}", "ready", "ready"),
    ScreenCall("/jobs/{job_id}", "running", "running"),
    ScreenCall("/jobs/{job_id}/explain", "ready", "ready"),
    ScreenCall("/jobs/{job_id}/explain", "blocked", "blocked"),
    ScreenCall("/jobs/{job_id}/explain", "dead", "dead"),
    ScreenCall("/queues"),
    ScreenCall("/queues/{name}", "queue"),
    ScreenCall("/tasks"),
    ScreenCall("/tasks/{name}", "task"),
    ScreenCall("/errors"),
    ScreenCall("/errors", label="a task", task=lambda s: s.task()),
    ScreenCall("/errors/{fingerprint}", "error"),
    ScreenCall("/dead"),
    ScreenCall("/dead", label="a task", q=lambda s: f"task:{s.task()}_or_fail"),
    ScreenCall(
        "/dead", label="an error", q=lambda s: f"error:{s.chance.choice(ERRORS)}"
    ),
    ScreenCall("/dead/facets"),
    ScreenCall("/schedules"),
    ScreenCall("/schedules/{name}", "schedule"),
    ScreenCall("/plans"),
    ScreenCall("/plans", label="failed", state="failed"),
    ScreenCall("/plans/{plan_id}", "plan"),
    ScreenCall("/workers"),
    ScreenCall("/workers/{name}", "worker"),
    ScreenCall("/limits"),
    ScreenCall("/limits/{name}", "limit"),
    ScreenCall("/breakers"),
    ScreenCall("/breakers/{name}", "breaker"),
    ScreenCall("/audit"),
    ScreenCall("/audit", label="a verb", verb="pause"),
    ScreenCall("/settings"),
    ScreenCall("/doctor"),
    ScreenCall("/search", q=lambda s: s.chance.choice((s.task(), s.queue(), "rep"))),
    ScreenCall("/users"),
    ScreenCall("/tokens"),
    ScreenCall("/bulk"),
    ScreenCall("/bulk/{run_id}", "bulk"),
    *(
        ScreenCall("/bulk/preview", label=name, verb=verb, q=q)
        for name, verb, q in PREVIEWS
    ),
)
# What no screen waits for: files, streams, the document of the API.
OTHERS = frozenset({"/stream", "/poll", "/openapi.json", "/dead/export", "/scale"})


async def take_sample(client: httpx.AsyncClient, seed: int) -> Sample:
    """Read names of things, through the API as the page does."""
    found = Sample(random.Random(seed))  # noqa: S311 - no secret
    for state in ("done", "dead", "ready", "running", "blocked"):
        answer = await client.get("/admin/jobs", params=of_state(state))
        found.names[state] = [each["id"] for each in items_of(answer)]
    await run_in_bulk(client, found)
    for kind, path, key in (
        ("queue", "queues", "name"),
        ("task", "tasks", "name"),
        ("error", "errors", "fingerprint"),
        ("schedule", "schedules", "name"),
        ("plan", "plans", "id"),
        ("bulk", "bulk", "id"),
        ("worker", "workers", "name"),
        ("limit", "limits", "name"),
        ("breaker", "breakers", "name"),
    ):
        answer = await client.get(f"/admin/{path}", params={"limit": "200"})
        found.names[kind] = [each[key] for each in items_of(answer)][:NAMES_KEPT]
    return found


async def run_in_bulk(client: httpx.AsyncClient, sample: Sample) -> None:
    """Retry one dead job in bulk, so that there is a run to show."""
    if sample.names["dead"]:
        query = f"id:{sample.names['dead'][-1]}"
        body = {"verb": "retry", "q": query}
        previewed = await client.post("/admin/bulk/preview", json=body)
        if previewed.is_success:
            chosen = {"preview": previewed.json()["preview"]}
            await client.post("/admin/bulk", json=chosen)


def of_state(state: str) -> dict[str, str]:
    return {"q": f"state:{state}", "state": state, "limit": "200"}


def items_of(answer: httpx.Response) -> list[dict[str, Any]]:
    return answer.json()["items"] if answer.is_success else []
