"""Checks of queues and the jobs in them."""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from durio.doctor.snapshot import StoreSnapshot
from durio.model.finding import Finding, error, fine, warning
from durio.model.job import BLOCKED, READY, SCHEDULED, StoredJob
from durio.model.names import known_as, queue_of
from durio.model.quantities import counted, format_duration

OLD_SECONDS = 300.0
DEEP_JOBS = 10_000  # waiting jobs in a queue without a bound of its own
FRESH_SECONDS = 3600.0
DEAD_MAX = 10  # within that time
FUTURE_SECONDS = 5.0


def unknown_tasks(snapshot: StoreSnapshot) -> Iterator[Finding]:
    """Report waiting jobs whose task this code lacks; an error if no worker has it either."""
    name = "queues.unknown_tasks"
    if snapshot.registered is None and not snapshot.published:
        yield fine(name, "no worker has registered its tasks yet; --app names the code")
        return
    known = snapshot.published if snapshot.registered is None else snapshot.registered
    unknown = {
        task: n
        for task, n in snapshot.waiting_tasks().items()
        if not known_as(task, known)
    }
    missing = {
        task: n for task, n in unknown.items() if not known_as(task, snapshot.published)
    }
    if missing:
        fix = "Deploy the code that has it, or retry by the new name; cancel the rest."
        yield error(name, f"no code and no worker has {task_counts_text(missing)}", fix)
    elsewhere = {task: n for task, n in unknown.items() if task not in missing}
    if elsewhere:
        fix = (
            "Normal during a deployment. Afterwards a worker with this task must be "
            "running."
        )
        evidence = f"not in this code, only registered by a worker: {task_counts_text(elsewhere)}"
        yield warning(name, evidence, fix)
    if not unknown:
        yield fine(name, "every waiting task is known")


def task_counts_text(jobs_by_task: dict[str, int]) -> str:
    return ", ".join(
        f"{task} ({counted(n, 'waiting job')})"
        for task, n in sorted(jobs_by_task.items())
    )


def unserved(snapshot: StoreSnapshot) -> Iterator[Finding]:
    """Report jobs in queues that no live worker claims from."""
    name = "queues.unserved"
    bad = [
        (lane, n)
        for lane in snapshot.lanes
        if (n := lane.jobs(READY, SCHEDULED, BLOCKED))
        and not snapshot.is_served(lane.name)
    ]
    if not bad:
        yield fine(name, "every queue with jobs has a worker")
        return
    evidence = ", ".join(
        f"{queue_of(lane.name)} ({counted(n, 'waiting job')})" for lane, n in bad
    )
    is_due = any(lane.jobs(READY) for lane, _ in bad)
    if snapshot.live_workers:
        fix = "Start a worker with -q for it, or move the jobs: durio queues move."
    else:
        fix = "No worker is alive: start one with durio worker MODULE:APP."
    made = error if is_due else warning
    yield made(name, f"no worker serves {evidence}", fix)


def held_back(snapshot: StoreSnapshot) -> Iterator[Finding]:
    """Report queues that are paused while jobs wait, or closed, perhaps forgotten."""
    name = "queues.held_back"
    found = False
    for lane in snapshot.lanes:
        jobs = lane.jobs(READY, SCHEDULED, BLOCKED)
        queue = queue_of(lane.name)
        fix = f"To resume it: durio queues resume {queue}"
        if lane.paused and jobs:
            found = True
            yield warning(
                name, f"{queue} is paused with {counted(jobs, 'waiting job')}", fix
            )
        if lane.closed:
            found = True
            yield warning(name, f"{queue} is closed: it accepts no new jobs", fix)
    if not found:
        yield fine(name, "none is paused with jobs, none is closed")


def unbounded(snapshot: StoreSnapshot) -> Iterator[Finding]:
    """Report queues that may grow until the disk is full."""
    name = "queues.unbounded"
    deep = {
        queue_of(lane.name): jobs
        for lane in snapshot.lanes
        if lane.maxsize is None
        and (jobs := lane.jobs(READY, SCHEDULED, BLOCKED)) > DEEP_JOBS
    }
    if deep:
        evidence = ", ".join(f"{queue} ({jobs:,} jobs)" for queue, jobs in deep.items())
        fix = "Give it a bound: app.queue(name, maxsize=...), and more workers."
        yield warning(name, f"deep and without a bound of its own: {evidence}", fix)
    else:
        yield fine(name, "no deep queue without a bound")


def oldest(snapshot: StoreSnapshot) -> Iterator[Finding]:
    """Report ready jobs that wait longer than 300 s."""
    name = "queues.oldest"
    ages = {
        lane.name: snapshot.now - lane.oldest_ready_at
        for lane in snapshot.lanes
        if lane.oldest_ready_at is not None and not lane.paused
    }
    if not ages:
        yield fine(name, "nothing is due and waiting")
        return
    lane = max(ages, key=lambda each: ages[each])
    evidence = f"ready for {format_duration(ages[lane])} in {queue_of(lane)}"
    if ages[lane] > OLD_SECONDS:
        fix = "Add slots or workers, or inspect a worker: durio workers show ID."
        yield warning(name, evidence, fix)
    else:
        yield fine(name, evidence)


def dead_letters(snapshot: StoreSnapshot) -> Iterator[Finding]:
    """Report jobs that died within the last hour."""
    name = "queues.dead_letters"
    fresh = [
        r for r in snapshot.dead if snapshot.now - (r.finished_at or 0) < FRESH_SECONDS
    ]
    evidence = f"{len(fresh)} in the last {format_duration(FRESH_SECONDS)}"
    if len(fresh) >= DEAD_MAX:
        fix = "See: durio dead ls\nRepair the cause, then: durio dead retry --all"
        yield warning(name, f"{evidence}, mostly {most_common(fresh)}", fix)
    else:
        yield fine(name, evidence)


def most_common(dead: Sequence[StoredJob]) -> str:
    """Return the most common pair of task and error among dead jobs."""
    kinds = Counter((record.task, last_error(record)) for record in dead)
    (task, kind), jobs = kinds.most_common(1)[0]
    return f"{task} with {kind} ({jobs})"


def last_error(job: StoredJob) -> str:
    """Return the type of the last error; if there is none or it is damaged, the reason."""
    try:
        errors = msgspec.json.decode(job.errors or b"[]")
        return str(errors[-1]["type"])
    except (msgspec.DecodeError, LookupError, TypeError):
        return job.reason or "no error"


def future_jobs(snapshot: StoreSnapshot) -> Iterator[Finding]:
    """Report jobs created in the future: a clock was set back, or two machines disagree."""
    ahead = max((r.created_at - snapshot.now for r in snapshot.newest), default=0.0)
    if ahead > FUTURE_SECONDS:
        evidence = f"a job was created {format_duration(ahead)} in the future"
        fix = "A clock is or was wrong: run NTP. Delays depend on it."
        yield warning("queues.clock", evidence, fix)
    else:
        yield fine("queues.clock", "no job was created in the future")


CHECKS = {
    "queues.unknown_tasks": unknown_tasks,
    "queues.unserved": unserved,
    "queues.held_back": held_back,
    "queues.unbounded": unbounded,
    "queues.oldest": oldest,
    "queues.dead_letters": dead_letters,
    "queues.clock": future_jobs,
}
