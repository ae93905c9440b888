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

from durio.model.ids import id_text
from durio.model.job import STATE_BY_CODE
from durio.model.plan_change import ADDED_FROM, replacing_plan
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
    """Everything about one plan of a world, with plans in the places of its jobs."""

    def __init__(self, case: Case, n: int, wish: PlanWish) -> None:
        self.case = case
        self.n = n
        self.wish = wish
        self.plan: AnyLink = wish.plan
        self.records = {case.ledger.number(one): one for one in case.all_records}
        self.jobs: dict[int, LedgerLine] = {}  # number of a job -> how it was stored
        self.lines: list[LedgerLine] = []  # of these jobs, in order
        self.history = case.of(n, "plan")  # each change of its record
        self.inner: dict[str, list[LedgerLine]] = {}  # the same of plans inside, by id
        for entry in case.of(n, "inner"):
            self.inner.setdefault(entry.fields["id"], []).append(entry)
        for entry in case.ledger.entries:
            if entry.what == "node" and entry.fields["plan"] == n:
                self.jobs[entry.n or 0] = entry
            elif entry.n in self.jobs:
                self.lines.append(entry)
        leaves = {
            job: entry.fields["name"]
            for job, entry in self.jobs.items()
            if entry.fields["task"] != HANDLER and entry.fields["name"]
        }
        self.leaves = list(leaves.values())  # that were stored
        self.job_of = {name: job for job, name in leaves.items()}
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
        """How often it was retried; a plan inside may be retried without it."""
        lines = [self.history, *self.inner.values()]
        return max(some[-1].fields["resumed"] for some in lines if some)

    def last_job(self, plan_id: str) -> int:
        """Return the last job that this plan, or a plan inside, was written with."""
        jobs = {
            entry.fields["number"]: job
            for job, entry in self.jobs.items()
            if entry.fields["id"] == plan_id and entry.fields["number"] < ADDED_FROM
        }
        return jobs[max(jobs)]

    @property
    def value(self) -> bytes | None:
        """The stored value of the plan; None if it is gone."""
        plan_id = self.history[0].fields["id"]
        while True:
            last = self.records.get(self.last_job(plan_id))
            inside = None if last is None else replacing_plan(last.result)
            if inside is None:
                return None if last is None else last.result
            plan_id = id_text(inside)

    @property
    def is_untouched(self) -> bool:
        """Whether nobody cancelled or retried it, or a job of it."""
        asked = (
            f"plan.{what}" for what in ("cancel", "retry", "cancel_job", "retry_job")
        )
        return not self.case.of(self.n, *asked)

    @property
    def starts(self) -> list[LedgerLine]:
        """The lines with which it became active: its own, and those of retries."""
        before = [None, *(entry.fields["resumed"] for entry in self.history)]
        pairs = zip(before, self.history, strict=False)
        return [line for old, line in pairs if line.fields["resumed"] != old]

    def is_active_at(self, line: LedgerLine) -> bool:
        """Whether it was stored before this line, and had not ended.

        The leader marks a plan as done some time after the end of its last job.
        """
        is_active = False
        last = self.last_job(self.history[0].fields["id"]) if self.is_stored else None
        for entry in self.case.ledger.entries:
            if entry is line:
                break
            if entry.what == "plan" and entry.n == self.n:
                is_active = entry.fields["state"] not in FINAL
            elif entry.what == "end" and entry.n == last:
                is_active &= entry.fields["kind"] != "done"
        return is_active

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
        """How the leaves have ended, and how those that are done have changed the plan.

        A leaf that was never stored did not end well; P1 and P10 say whether it had to be.
        """
        jobs = ((name, self.job_of.get(name)) for name in self.wish.leaves)
        return {
            name: self.wish.leaves[name].behaviour
            if job is not None and self.job_state(job) == "done"
            else Behaviour("dead")
            for name, job in jobs
        }

    @cached_property
    def expected(self) -> Expected:
        return interpret(self.plan, self.behaviours)


Check = Callable[[PlanCase], Iterator[Violation]]


def a_plan_is_stored_whole_or_not_at_all(plan: PlanCase) -> Iterator[Violation]:
    """An acknowledged plan is stored with all its leaves; a refused one is not stored."""
    told = [entry.fields["is_new"] for entry in plan.case.of(plan.n, "plan.ok")]
    if any(told) and not plan.is_stored:
        yield Violation("P1", plan.n, "it was acknowledged, and is not stored")
    if plan.case.of(plan.n, "plan.fail") and plan.is_stored and not told:
        what = "its producer was told that it was not stored"
        yield Violation("P1", plan.n, what)
    missing = set(leaves_of(plan.plan)).difference(plan.leaves)
    if plan.is_stored and missing:
        yield Violation("P1", plan.n, f"it lacks the leaves {sorted(missing)}")
    for name, count in Counter(plan.leaves).items():
        if count > 1:
            yield Violation("P1", plan.n, f"leaf {name} was stored {count} times")


def a_plan_changes_with_the_end_of_a_job(plan: PlanCase) -> Iterator[Violation]:
    """What a leaf puts in its place or adds is stored with its end, or not at all."""
    for name, job in plan.job_of.items():
        change = plan.wish.leaves[name].behaviour
        new = set(map(name_of, change.added))
        if change.replaced_by is not None:
            new |= set(leaves_of(change.replaced_by))
        if not new:
            continue
        plan.case.exercised.add("P10")
        is_done = "done" in plan.ends(job)
        stored = new.intersection(plan.leaves)
        if stored != (new if is_done else set()):
            what = (
                f"{name} is {plan.job_state(job)}, and of its leaves there are {stored}"
            )
            yield Violation("P10", plan.n, what)


def a_plan_and_all_its_jobs_end(plan: PlanCase) -> Iterator[Violation]:
    """Every plan ends by itself, and so does each of its jobs and handlers."""
    if plan.is_stored and plan.state not in FINAL:
        what = f"it is {plan.state} long after everything healed"
        yield Violation("P2", plan.n, what)
    for history in plan.inner.values():
        if (state := history[-1].fields["state"]) not in FINAL:
            what = f"a plan inside is {state} long after everything healed"
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
    pairs = [pairwise(each) for each in (plan.history, *plan.inner.values())]
    for before, after in ((a.fields, b.fields) for each in pairs for a, b in each):
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
    succeed = {name: leaf.behaviour for name, leaf in plan.wish.leaves.items()}
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
    if plan.state == "done" and (text := plan.value) is not None:
        value = comparable(msgspec.json.decode(text))
        if value != comparable(plan.expected.value):
            what = f"its value is {value}, not {comparable(plan.expected.value)}"
            yield Violation("P9", plan.n, what)


def values_of(result: Result) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each leaf that is done."""
    if isinstance(result.link, Signature) and result.is_done and not result.parts:
        yield name_of(result.link), result.value
    for part in (*result.parts, *(part for _, part in result.added)):
        yield from values_of(part)


def one_active_plan_per_key(plan: PlanCase) -> Iterator[Violation]:
    """A plan gets a key when no other plan that has it is active."""
    if not plan.wish.key:
        return
    others = [
        PlanCase(plan.case, wish.n, wish.plan)
        for wish in plan.case.wishes.values()
        if wish.plan is not None and wish.plan.key == plan.wish.key and wish.n != plan.n
    ]
    for start in plan.starts:
        plan.case.exercised.add("P11")
        for other in others:
            if other.is_active_at(start):
                what = f"it became active when plan {other.n} had its key"
                yield Violation("P11", plan.n, what)


CHECKS: tuple[Check, ...] = (
    a_plan_is_stored_whole_or_not_at_all,
    a_plan_changes_with_the_end_of_a_job,
    a_plan_and_all_its_jobs_end,
    a_plan_ends_once_per_start_or_resume,
    its_state_follows_from_its_jobs,
    no_job_runs_before_what_it_waits_for,
    a_job_of_a_plan_is_done_once,
    every_handler_runs_once,
    every_job_gets_what_was_before_it,
    one_active_plan_per_key,
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
