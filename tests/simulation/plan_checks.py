"""Invariants of plans, judged from the ledger and by the reference interpreter.

What a plan must give depends on how its leaves ended, and a fault may end any leaf: so the
interpreter gets the leaves as they have ended, and says what follows from that.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any

import msgspec

from durio.model.job import STATE_BY_CODE
from durio.plans import Signature
from tests.plans.reference import (
    AnyLink,
    Behaviour,
    Expected,
    Result,
    comparable,
    evaluate,
    interpret,
    leaves_of,
    name_of,
)
from tests.simulation.checks import FINAL_KINDS, FIRST_FINAL, Case, Violation
from tests.simulation.ledger import LedgerLine
from tests.simulation.plan_workload import HANDLER, PlanWish

FINAL = {"done", "failed", "cancelled"}
# What may follow a state, without a retry.
NEXT = {
    "running": {"failing", "cancelling", "done"},
    "failing": {"failed", "cancelling"},
    "cancelling": {"cancelled", "done"},
}


class PlanCase:
    """Everything about one plan of a world."""

    def __init__(self, case: Case, n: int, wish: PlanWish) -> None:
        self.case = case
        self.n = n
        self.wish = wish
        self.plan: AnyLink = wish.plan
        self.records = {case.ledger.number(one): one for one in case.all_records}
        self.jobs: dict[int, LedgerLine] = {}  # number of a job -> how it was stored
        self.lines: list[LedgerLine] = []  # of these jobs, in order
        self.history = case.of(n, "plan")  # each change of its record
        for entry in case.ledger.entries:
            if entry.what == "node" and entry.fields["plan"] == n:
                self.jobs[entry.n or 0] = entry
            elif entry.n in self.jobs:
                self.lines.append(entry)
        self.job_of = {
            entry.fields["name"]: job
            for job, entry in self.jobs.items()
            if entry.fields["task"] != HANDLER
        }
        self.handlers = [
            entry.fields["name"]
            for entry in self.jobs.values()
            if entry.fields["task"] == HANDLER
        ]

    @property
    def is_stored(self) -> bool:
        return bool(self.history)

    @property
    def state(self) -> str:
        return self.history[-1].fields["state"]

    @property
    def resumes(self) -> int:
        return self.history[-1].fields["resumed"]

    @property
    def is_untouched(self) -> bool:
        """Whether nobody cancelled or retried it, or a job of it."""
        asked = (
            f"plan.{what}" for what in ("cancel", "retry", "cancel_job", "retry_job")
        )
        return not self.case.of(self.n, *asked)

    def ends(self, job: int) -> list[str]:
        """Return the final states that a job got from workers and rescues, in order."""
        found: list[str] = []
        for entry in self.lines:
            if entry.n != job:
                continue
            if entry.what == "end" and entry.fields["kind"] in FINAL_KINDS:
                found.append(FINAL_KINDS[entry.fields["kind"]])
            elif entry.what == "rescued" and entry.fields["state"] >= FIRST_FINAL:
                code: int = entry.fields["state"]
                found.append(STATE_BY_CODE[code].value)
        return found

    def job_state(self, job: int) -> str:
        """Return the state at the end; a job that never ran and is gone was cancelled."""
        record = self.records.get(job)
        if record is not None:
            return STATE_BY_CODE[record.state].value
        return (self.ends(job) or ["cancelled"])[-1]

    @cached_property
    def behaviours(self) -> dict[str, Behaviour]:
        """How the leaves have ended."""
        return {
            name: Behaviour(
                "value" if self.job_state(self.job_of[name]) == "done" else "dead"
            )
            for name in leaves_of(self.plan)
        }

    @cached_property
    def expected(self) -> Expected:
        return interpret(self.plan, self.behaviours)


Check = Callable[[PlanCase], Iterator[Violation]]


def a_plan_is_stored_whole_or_not_at_all(plan: PlanCase) -> Iterator[Violation]:
    """An acknowledged plan is stored with all its leaves; a refused one is not stored."""
    names = {name for name in plan.job_of if name}
    if plan.case.of(plan.n, "plan.ok") and not plan.is_stored:
        yield Violation("P1", plan.n, "it was acknowledged, and is not stored")
    if plan.case.of(plan.n, "plan.fail") and plan.is_stored:
        what = "its producer was told that it was not stored"
        yield Violation("P1", plan.n, what)
    if plan.is_stored and names != set(leaves_of(plan.plan)):
        yield Violation("P1", plan.n, f"it has only the leaves {sorted(names)}")


def a_plan_and_all_its_jobs_end(plan: PlanCase) -> Iterator[Violation]:
    """Every plan ends by itself, and so does each of its jobs and handlers."""
    if plan.is_stored and plan.state not in FINAL:
        what = f"it is {plan.state} long after everything healed"
        yield Violation("P2", plan.n, what)
    for job, entry in plan.jobs.items():
        state = plan.job_state(job)
        if state not in FINAL_KINDS.values():
            what = (
                f"{entry.fields['name'] or 'join'} is {state} after everything healed"
            )
            yield Violation("P2", plan.n, what)


def a_plan_ends_once_per_start_or_resume(plan: PlanCase) -> Iterator[Violation]:
    """Its state changes along the known ways, and leaves a final one only by a retry."""
    for before, after in pairwise(entry.fields for entry in plan.history):
        old, new = before["state"], after["state"]
        is_resumed = after["resumed"] > before["resumed"]
        if is_resumed:
            plan.case.exercised.add("P4")
            if old not in {"failed", "cancelled"} or new != "running":
                what = f"a retry made it {new}, and it was {old}"
                yield Violation("P4", plan.n, what)
        elif new not in NEXT.get(old, set()):
            yield Violation("P3", plan.n, f"it was {old}, and became {new}")


def its_state_follows_from_its_jobs(plan: PlanCase) -> Iterator[Violation]:
    """It is done if the rules say so, and otherwise failed, or cancelled by a person."""
    if not plan.is_stored or plan.state not in FINAL:
        return
    is_asked = any(entry.fields["state"] == "cancelling" for entry in plan.history)
    if plan.state == "cancelled":
        if not is_asked:
            yield Violation("P5", plan.n, "it is cancelled, and nobody asked")
    elif (plan.state == "done") != plan.expected.is_done:
        ends = {name: one.end for name, one in plan.behaviours.items()}
        yield Violation("P5", plan.n, f"it is {plan.state} with {ends}")


def no_job_runs_before_what_it_waits_for(plan: PlanCase) -> Iterator[Violation]:
    """A leaf starts after every leaf before it is done."""
    succeed = dict.fromkeys(leaves_of(plan.plan), Behaviour())
    needs = interpret(plan.plan, succeed).needs
    name_of_job = {job: name for name, job in plan.job_of.items()}
    done: set[str] = set()
    for entry in plan.lines:
        name = name_of_job.get(entry.n or 0, "")
        if entry.what == "end" and entry.fields["kind"] == "done":
            done.add(name)
        elif entry.what == "start" and name:
            missing = needs[name] - done
            if missing:
                what = f"{name} began before {', '.join(sorted(missing))} was done"
                yield Violation("P6", plan.n, what)


def a_job_of_a_plan_is_done_once(plan: PlanCase) -> Iterator[Violation]:
    """A job is done once, and ends otherwise once for each start or resume."""
    by_hand = len(plan.case.of(plan.n, "plan.retry_job"))
    for job, entry in plan.jobs.items():
        ends = plan.ends(job)
        name = entry.fields["name"] or "join"
        if ends.count("done") > 1:
            yield Violation("P7", plan.n, f"{name} was done twice")
        if "done" in ends[:-1]:
            yield Violation("P7", plan.n, f"{name} went on after done: {ends}")
        if len(ends) > 1 + plan.resumes + by_hand:
            yield Violation("P7", plan.n, f"{name} ended as {ends}")


def every_handler_runs_once(plan: PlanCase) -> Iterator[Violation]:
    """A handler is enqueued once per start or resume, and when its plan fails."""
    for name, count in Counter(plan.handlers).items():
        plan.case.exercised.add("P8")
        if count > 1 + plan.resumes:
            what = f"handler {name} was enqueued {count} times"
            yield Violation("P8", plan.n, what)
    if not plan.is_untouched or not plan.is_stored:
        return
    handled, expected = set(plan.handlers), plan.expected
    if missing := expected.must_handle - handled:
        what = f"handler {', '.join(sorted(missing))} did not run"
        yield Violation("P8", plan.n, what)
    if more := handled - expected.must_handle - expected.may_handle:
        what = f"handler {', '.join(sorted(more))} ran without a failure"
        yield Violation("P8", plan.n, what)


def every_job_gets_what_was_before_it(plan: PlanCase) -> Iterator[Violation]:
    """The result of each leaf names all its arguments, and the value is that of the last."""
    if not plan.is_untouched or not plan.is_stored:
        return
    expected = dict(values_of(evaluate(plan.plan, (), plan.behaviours)))
    name_of_job = {job: name for name, job in plan.job_of.items()}
    for entry in plan.lines:
        name = name_of_job.get(entry.n or 0, "")
        if entry.what == "effect" and name in expected:
            plan.case.exercised.add("P9")
            if entry.fields["value"] != expected[name]:
                what = f"{name} gave {entry.fields['value']}, not {expected[name]}"
                yield Violation("P9", plan.n, what)
    last = plan.records.get(max(plan.job_of.values()))
    if plan.state == "done" and last is not None and last.result is not None:
        value = comparable(msgspec.json.decode(last.result))
        if value != comparable(plan.expected.value):
            what = f"its value is {value}, not {comparable(plan.expected.value)}"
            yield Violation("P9", plan.n, what)


def values_of(result: Result) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each leaf that is done."""
    if isinstance(result.link, Signature) and result.is_done:
        yield name_of(result.link), result.value
    for part in result.parts:
        yield from values_of(part)


CHECKS: tuple[Check, ...] = (
    a_plan_is_stored_whole_or_not_at_all,
    a_plan_and_all_its_jobs_end,
    a_plan_ends_once_per_start_or_resume,
    its_state_follows_from_its_jobs,
    no_job_runs_before_what_it_waits_for,
    a_job_of_a_plan_is_done_once,
    every_handler_runs_once,
    every_job_gets_what_was_before_it,
)
# By each plan that was stored; checks mark the others.
ALWAYS_EXERCISED = "P1", "P2", "P3", "P5", "P6", "P7"


def judge(case: Case) -> list[Violation]:
    found: list[Violation] = []
    for wish in case.wishes.values():
        if wish.plan is None:
            continue
        plan = PlanCase(case, wish.n, wish.plan)
        if plan.is_stored:
            case.exercised.update(ALWAYS_EXERCISED)
        for check in CHECKS:
            found += check(plan)
    return found
