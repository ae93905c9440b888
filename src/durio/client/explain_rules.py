"""Why a job does not run: the rules by the state of the job, and those for its run and end.

Each rule yields its reasons from the facts that `client/explain.py` has read, or nothing.
RULES lists the rules by state, in the order in which a reader should see their reasons. A
feature that holds jobs back adds its facts to JobFacts, and its rule to the states in which
it holds them.
"""

from collections.abc import Callable, Iterator

from durio.client.explain_facts import JobFacts, worker_text
from durio.client.explain_waiting import (
    blocked,
    broken_circuit,
    closed,
    in_line,
    never_known,
    no_worker,
    paused,
    scheduled,
    task_here,
    unserved,
)
from durio.client.job_view import progress_of
from durio.model.explanation import JobReason, final_reason, moment
from durio.model.ids import id_text
from durio.model.job import (
    BLOCKED,
    DONE,
    READY,
    RUNNING,
    SCHEDULED,
    Progress,
    attempt_number,
)
from durio.model.plan_change import replacing_plan
from durio.model.quantities import format_duration
from durio.model.timeout import NO_LIMITS, TimeLimits
from durio.ports.browse import WorkerRow

# How often a leader looks for lost workers, and for jobs whose worker is not registered.
RESCUE_SECONDS, ORPHAN_SECONDS = 5.0, 30.0

Rule = Callable[[JobFacts], Iterator[JobReason]]


def reasons_of(facts: JobFacts) -> tuple[JobReason, ...]:
    """Return all reasons for the state of a job, those that block it first."""
    rules = RULES.get(facts.job.state, FINAL_RULES)
    found = [reason for rule in rules for reason in rule(facts)]
    for root in () if facts.plan is None else facts.plan.roots:
        found += [reason.of_job(root.job_id) for reason in reasons_of(root)]
    return tuple(sorted(found, key=lambda reason: not reason.is_blocking))


# --- running


def running(facts: JobFacts) -> Iterator[JobReason]:
    job = facts.job
    worker = next((row for row in facts.workers if row.id == job.worker), None)
    if worker is None:
        yield JobReason(
            "worker_lost",
            f"its worker {job.worker} is not registered any more; a leader gives the job "
            f"back within about {format_duration(ORPHAN_SECONDS)}",
        )
        yield from no_worker(facts)
    elif worker.lease_seconds_left <= 0:
        yield JobReason(
            "worker_lost",
            f"its {worker_text(worker)} has not renewed its lease ({worker.lease_text()}); "
            f"a leader gives the job back within about {format_duration(RESCUE_SECONDS)}",
        )
        yield from no_worker(facts)
    else:
        yield from at_work(facts, worker)
    if job.cancel_asked:
        yield JobReason("cancel_asked", "it was asked to cancel", is_blocking=False)


def at_work(facts: JobFacts, worker: WorkerRow) -> Iterator[JobReason]:
    job, limits = facts.job, facts.options.limits(facts.limits or NO_LIMITS)
    passed = max(0.0, facts.now - (job.started_at or facts.now))
    number = attempt_number(job.retried, job.losses)
    hard = limits.hard_seconds
    if hard is not None and passed > hard:
        yield JobReason(
            "past_hard_limit",
            f"attempt {number} has run for {format_duration(passed)}, and its hard limit is "
            f"{format_duration(hard)}: a task blocks the event loop of {worker_text(worker)}",
            "See where it is; then end that worker process.",
            f"durio workers stack {worker.id}",
        )
    began = f"since {moment(job.started_at)}, for {format_duration(passed)}"
    parts = [
        f"attempt {number} runs on {worker_text(worker)} {began}",
        *heartbeat_texts(worker),
        *limit_texts(limits),
        *progress_texts(progress_of(job)),
    ]
    yield JobReason("running", "; ".join(parts), is_blocking=False)
    if worker.running > int(worker.info["concurrency"]):
        text = "its worker has claimed more jobs than it has slots: it may wait for one"
        yield JobReason("claimed_ahead", text, is_blocking=False)
    if worker.is_draining:
        text = "its worker is stopping: the job ends within the grace, or is given back"
        yield JobReason("worker_draining", text, is_blocking=False)


def heartbeat_texts(worker: WorkerRow) -> Iterator[str]:
    whole = worker.info.get("lease_seconds")
    if whole:
        ago = max(0.0, whole - worker.lease_seconds_left)
        yield f"last heartbeat {format_duration(ago)} ago"


def limit_texts(limits: TimeLimits) -> Iterator[str]:
    if limits.soft_seconds is not None and limits.hard_seconds is not None:
        soft, hard = map(format_duration, (limits.soft_seconds, limits.hard_seconds))
        yield f"soft limit {soft}, hard limit {hard}"


def progress_texts(progress: Progress | None) -> Iterator[str]:
    if progress is not None:
        total = "" if progress.total is None else f" of {progress.total:g}"
        message = f" ({progress.message})" if progress.message else ""
        yield f"progress {progress.done:g}{total}{message}"


# --- ended


def ended(facts: JobFacts) -> Iterator[JobReason]:
    plan, job = facts.plan, facts.job
    inner = replacing_plan(job.result) if job.state == DONE else None
    yield final_reason(job, plan and plan.id, plan and plan.failed)
    if inner is not None:
        text = f"plan {id_text(inner)} has its place: its result is that of the plan"
        command = f"durio plans show {id_text(inner)}"
        yield JobReason("replaced_by_plan", text, "", command, is_blocking=False)
    elif job.state == DONE and job.result_until is not None:
        kept = job.result is not None and job.result_until >= facts.now
        verb = "can be read until" if kept else "has expired at"
        text = f"its result {verb} {moment(job.result_until)}"
        yield JobReason("result", text, is_blocking=False)


RULES: dict[int, tuple[Rule, ...]] = {
    SCHEDULED: (
        scheduled,
        broken_circuit,
        paused,
        never_known,
        unserved,
        closed,
        task_here,
    ),
    BLOCKED: (broken_circuit, blocked, paused, closed, task_here),
    READY: (broken_circuit, paused, never_known, unserved, in_line, closed, task_here),
    RUNNING: (running,),
}
FINAL_RULES: tuple[Rule, ...] = (ended,)
