"""The rules for jobs that wait: for their time, a queue, a worker, or other jobs.

Each rule yields its reasons, or nothing.
"""

from collections.abc import Iterator

from durio.client.explain_breaker import breaker_reasons
from durio.client.explain_facts import (
    AHEAD_MAX,
    NAMED_MAX,
    JobFacts,
    PlanFacts,
    PlanParent,
    others_text,
    worker_command,
    worker_text,
    workers_text,
)
from durio.client.explain_limits import limited
from durio.model.explanation import JobReason, moment, scheduled_reason
from durio.model.job import BLOCKED, SCHEDULED, STATE_BY_CODE
from durio.model.names import close_name, is_prefix, known_as, namespace_of
from durio.model.plan_record import PlanState
from durio.model.quantities import counted
from durio.model.system_tasks import is_system_task

# --- scheduled


def scheduled(facts: JobFacts) -> Iterator[JobReason]:
    job = facts.job
    if job.parked_at is not None:
        yield parked(facts, job.parked_at)
        return
    yield scheduled_reason(job, facts.options.tick, facts.max_attempts, facts.now)


def parked(facts: JobFacts, parked_at: float) -> JobReason:
    """Return why workers claim the job and give it back."""
    job = facts.job
    again = f"it is tried again at {moment(job.run_at)}"
    since = f"since {moment(parked_at)}"
    serving, able = facts.serving, facts.able
    if able and len(able) == len(serving):
        return JobReason(
            "needs_other_release",
            f"its arguments fit {job.task} of another release: workers have given it back "
            f"{since}; {again}",
            "Start a worker of the release that enqueued it. With such a worker, run it now.",
            f"durio jobs run {facts.job_id}",
        )
    if able:
        return JobReason(
            "task_unknown",
            f"a worker without the task {job.task} has given it back {since}; "
            f"{workers_text(able)} has it; {again}",
            "Wait, or run it now. During a deployment this is normal.",
            f"durio jobs run {facts.job_id}",
        )
    text = f"no live worker has the task {job.task}: workers have given the job back {since}"
    return JobReason("task_unknown", f"{text}; {again}", *task_cure(facts))


def task_cure(facts: JobFacts) -> tuple[str, str | None]:
    """Return what makes a worker have the task, and a command."""
    task, known = facts.job.task, facts.known_tasks
    close = close_name(task, [name for name in known if not is_prefix(name)])
    if facts.is_loaded and known_as(task, known):
        return "Start a worker of the code that has it.", worker_command(facts.queue)
    if close is not None:
        return (
            f"If it was renamed to {close}, rename its jobs; else deploy the code.",
            f"durio jobs rename {task} {close}",
        )
    return "Deploy the code that has it. If it was renamed: durio jobs rename.", None


# --- the queue and its workers


def paused(facts: JobFacts) -> Iterator[JobReason]:
    if facts.lane is None or not facts.lane.paused:
        return
    by = ""
    if facts.pause is not None:
        _, _, why = facts.pause.target.partition(" (")
        by = f" by {facts.pause.who} since {moment(facts.pause.at)}"
        by += f": {why.removesuffix(')')}" if why else ""
    yield JobReason(
        "queue_paused",
        f'queue "{facts.queue}" is paused{by}',
        "Resume the queue.",
        f"durio queues resume {facts.queue}",
    )


def closed(facts: JobFacts) -> Iterator[JobReason]:
    if facts.lane is not None and facts.lane.closed:
        yield JobReason(
            "queue_closed",
            f'queue "{facts.queue}" is closed: it takes no new jobs; this one still runs',
            "Open the queue for new jobs.",
            f"durio queues resume {facts.queue}",
            is_blocking=False,
        )


def unserved(facts: JobFacts) -> Iterator[JobReason]:
    """Yield why no worker can take the job."""
    if not facts.live:
        yield from no_worker(facts)
    elif not facts.serving:
        serve = ", ".join(
            f"{worker_text(row)} serves {', '.join(row.info['queues'] or ())}"
            for row in facts.live[:NAMED_MAX]
        )
        yield JobReason(
            "queue_unserved",
            f'no live worker serves queue "{facts.queue}": {serve}'
            f"{others_text(facts.live)}",
            "Start a worker for the queue, or move its jobs: durio queues move.",
            worker_command(facts.queue),
        )
    elif not facts.able and facts.job.parked_at is None:
        yield JobReason(
            "task_unknown",
            f"no live worker has the task {facts.job.task}: "
            f"{workers_text(facts.serving, with_version=True)}",
            *task_cure(facts),
        )
    elif facts.able and all(row.is_draining for row in facts.able):
        yield JobReason(
            "workers_draining",
            f"every worker that could run it is stopping: {workers_text(facts.able)}",
            "Start another worker.",
            worker_command(facts.queue),
        )


def never_known(facts: JobFacts) -> Iterator[JobReason]:
    """Yield a task that no worker has ever had, when no worker is there to find that out."""
    task, known = facts.job.task, facts.known_tasks
    is_known = known_as(task, known) or is_system_task(task)
    if not facts.serving and known and not is_known:
        text = f"no worker has ever had the task {task}"
        yield JobReason("task_unknown", text, *task_cure(facts))


def no_worker(facts: JobFacts) -> Iterator[JobReason]:
    if facts.live:
        return
    lost = len(facts.workers)
    are = f"; {counted(lost, 'worker')} lost" if lost else ""
    yield JobReason(
        "no_worker",
        f"no worker of App {namespace_of(facts.job.lane)} is alive{are}",
        "Start a worker.",
        "durio worker",
    )


def in_line(facts: JobFacts) -> Iterator[JobReason]:
    """Yield the place of a job that a worker will take."""
    taking = [row for row in facts.able if not row.is_draining]
    if not taking or (facts.lane is not None and facts.lane.paused):
        return
    slots = sum(int(row.info["concurrency"]) for row in taking)
    running = sum(row.running for row in taking)
    place = f'{before_text(facts.ahead)} in queue "{facts.queue}"'
    workers = f"{counted(len(taking), 'worker')} with {counted(slots, 'slot')}"
    if running >= slots:
        yield JobReason(
            "workers_busy",
            f"all slots are taken: {workers} run {counted(running, 'job')}; {place}",
            "Wait, or start another worker.",
            worker_command(facts.queue),
        )
    else:
        yield JobReason(
            "in_line",
            f"{place}; {workers} run {counted(running, 'job')} and take the next ones",
            is_blocking=False,
        )


def before_text(ahead: int) -> str:
    """Return how many ready jobs are claimed before this one."""
    if ahead > AHEAD_MAX:
        return f"more than {AHEAD_MAX:,} jobs are before it"
    if not ahead:
        return "it is the next"
    return f"{counted(ahead, 'job')} {'is' if ahead == 1 else 'are'} before it"


def task_here(facts: JobFacts) -> Iterator[JobReason]:
    if not facts.is_loaded:
        yield JobReason(
            "task_unknown_here",
            f"the code of this App, as loaded here, has no task {facts.job.task}",
            is_blocking=False,
        )


# --- held back by a breaker


def broken_circuit(facts: JobFacts) -> Iterator[JobReason]:
    """Yield the state of the breaker of its task; a scheduled job has to wait anyway."""
    if facts.job.state == SCHEDULED or is_before_gate(facts):
        is_blocking = facts.job.state != SCHEDULED
        yield from breaker_reasons(facts.breaker, is_blocking=is_blocking)


def is_before_gate(facts: JobFacts) -> bool:
    """Whether the job waits for no other job."""
    plan = facts.plan
    if plan is None or facts.job.state != BLOCKED:
        return True
    is_going = plan.state is PlanState.RUNNING and plan.is_whole
    return is_going and all(each.is_ended for each in plan.parents)


# --- blocked by its plan


def blocked(facts: JobFacts) -> Iterator[JobReason]:
    plan = facts.plan
    is_free = plan is None or (plan.is_whole and all(p.is_ended for p in plan.parents))
    if is_free and (facts.gates or facts.breaker is not None):
        yield from limited(facts)
        yield from no_worker(facts)
    elif plan is None:
        yield from unknown_wait(facts)
    elif plan.state is None:
        yield JobReason(
            "plan_gone",
            f"its plan {plan.id} is no longer stored: nothing will start it",
            "Cancel it.",
            f"durio jobs cancel {facts.job_id}",
        )
    elif not plan.is_whole:
        text = (
            f"plan {plan.id} is being stored: its first jobs start when it is complete"
        )
        yield JobReason("plan_incomplete", text)
    else:
        yield from blocked_in_plan(facts, plan, plan.state)


def unknown_wait(facts: JobFacts) -> Iterator[JobReason]:
    """Yield what is known of a job that no limit holds back as far as this process knows."""
    yield from no_worker(facts)
    yield JobReason(
        "blocked",
        "it waits for entries of a log, or all its limits let it pass and a live worker lets "
        "it go within a second",
    )


def blocked_in_plan(
    facts: JobFacts, plan: PlanFacts, state: PlanState
) -> Iterator[JobReason]:
    failed = next((each.id for each in plan.parents if each.has_failed), plan.failed)
    if state not in {PlanState.RUNNING, PlanState.DONE} or failed is not None:
        yield from no_worker(facts)
        what = f"plan {plan.id} is {state.value}"
        if state is PlanState.RUNNING:
            what = f"job {failed} of plan {plan.id} has failed"
        is_cancelling = state in {PlanState.CANCELLING, PlanState.CANCELLED}
        yield JobReason(
            "plan_ending",
            f"{what}: a leader is about to cancel this job",
            "" if is_cancelling else "Repair the cause, then resume the plan.",
            None if is_cancelling or failed is None else f"durio jobs retry {failed}",
        )
        return
    left = [each for each in plan.parents if not each.is_ended]
    named = ", ".join(f"{each.id} is {parent_text(each)}" for each in left[:NAMED_MAX])
    yield JobReason(
        "blocked_by_jobs",
        f"it waits for {counted(len(left), 'job')} of plan {plan.id}: {named}"
        f"{others_text(left)}; {len(plan.parents) - len(left)} of {len(plan.parents)} "
        "have ended",
        "It starts by itself when they have ended.",
        None if plan.roots else f"durio plans show {plan.id}",
    )


def parent_text(parent: PlanParent) -> str:
    if parent.plan is not None:
        return f"replaced by plan {parent.plan}, which has not ended"
    return "deleted" if parent.state is None else STATE_BY_CODE[parent.state].value
