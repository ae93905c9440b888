"""Every emission: its name, its level and what it means. Names are noun.past_participle."""

from typing import Final, NamedTuple

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
LEVELS = {DEBUG: "DEBUG", INFO: "INFO", WARNING: "WARNING", ERROR: "ERROR"}


class Meaning(NamedTuple):
    """How loud an emission is, and what it says."""

    level: int
    text: str


JOB_ENQUEUED: Final = "job.enqueued"
JOB_STARTED: Final = "job.started"
JOB_DONE: Final = "job.done"
JOB_RETRIED: Final = "job.retried"
JOB_SNOOZED: Final = "job.snoozed"
JOB_DEAD: Final = "job.dead"
JOB_CANCELLED: Final = "job.cancelled"
JOB_RELEASED: Final = "job.released"
JOB_FENCED: Final = "job.fenced"
JOB_RESCUED: Final = "job.rescued"
JOB_PARKED: Final = "job.parked"
JOB_ABANDONED: Final = "job.abandoned"
JOB_FALTERED: Final = "job.faltered"

MEANINGS: dict[str, Meaning] = {
    JOB_ENQUEUED: Meaning(DEBUG, "a job was stored; told to `durio tail` only"),
    JOB_STARTED: Meaning(DEBUG, "an attempt began"),
    JOB_DONE: Meaning(INFO, "the store accepted the result"),
    JOB_RETRIED: Meaning(WARNING, "the attempt failed and will be made again"),
    JOB_SNOOZED: Meaning(INFO, "the task asked to look again later"),
    JOB_DEAD: Meaning(ERROR, "the job failed for good: a dead letter"),
    JOB_CANCELLED: Meaning(INFO, "the job was cancelled"),
    JOB_RELEASED: Meaning(INFO, "the job was given back unfinished, uncharged"),
    JOB_FENCED: Meaning(WARNING, "a late write was refused: the job has a new owner"),
    JOB_RESCUED: Meaning(WARNING, "a lost worker's job went back"),
    JOB_PARKED: Meaning(WARNING, "this worker does not know the task: put aside"),
    JOB_ABANDONED: Meaning(ERROR, "the attempt ignores its hard limit and hangs on"),
    JOB_FALTERED: Meaning(
        ERROR, "the task failed after its own transaction had made the job done"
    ),
    "worker.started": Meaning(INFO, "the worker has a lease and claims jobs"),
    "worker.stopping": Meaning(INFO, "no more claims; running jobs may finish"),
    "worker.stopped": Meaning(INFO, "the worker gave everything back and left"),
    "worker.fenced": Meaning(ERROR, "the lease was lost: running jobs are given up"),
    "worker.broken": Meaning(
        ERROR, "the worker cannot go on in this process: it drains and ends"
    ),
    "worker.rescued": Meaning(WARNING, "a dead worker's jobs were taken back"),
    "deps.failed": Meaning(ERROR, "deps= raised while a worker left it: it had ended"),
    "worker.failed": Meaning(
        ERROR, "an embedded worker ended with an error; its process goes on"
    ),
    "worker.stuck": Meaning(
        ERROR, "a call blocks past its hard limit in a process that is not ours to end"
    ),
    "spawn.failed": Meaning(ERROR, "a call of app.spawn raised; nobody retries it"),
    "spawn.cancelled": Meaning(
        WARNING, "calls of app.spawn still ran at the end: cancelled"
    ),
    "child.started": Meaning(INFO, "a child process is ready for jobs"),
    "child.died": Meaning(ERROR, "a child process died; only its own job is charged"),
    "child.killed": Meaning(WARNING, "a child process did not stop in time: killed"),
    "child.recycled": Meaning(INFO, "a child process had its share and is replaced"),
    "child.failed": Meaning(
        ERROR, "a child process did not become ready, or did not leave in order"
    ),
    "fleet.started": Meaning(INFO, "a supervisor starts its worker processes"),
    "fleet.stopping": Meaning(INFO, "a signal: every worker process is told to drain"),
    "fleet.draining": Meaning(INFO, "how many jobs still run, and the grace left"),
    "fleet.stopped": Meaning(INFO, "every worker process has ended"),
    "fleet.crashed": Meaning(ERROR, "worker processes keep dying: the supervisor ends"),
    "process.started": Meaning(INFO, "the supervisor started a worker process"),
    "process.unstarted": Meaning(ERROR, "no process could be started; tried again"),
    "process.replaced": Meaning(INFO, "a new worker process took over from an old one"),
    "process.drained": Meaning(INFO, "a worker process has done all it was to do"),
    "process.ended": Meaning(ERROR, "a worker process ended unasked; it is replaced"),
    "process.blocked": Meaning(
        ERROR, "a worker process ended itself: it could not go on; it is replaced"
    ),
    "process.killed": Meaning(ERROR, "a worker process hung: killed"),
    "reload.started": Meaning(INFO, "every worker process is replaced, one by one"),
    "reload.ended": Meaning(INFO, "every worker process is a new one"),
    "reload.failed": Meaning(ERROR, "a new process did not come up; old ones work on"),
    "supervisor.lost": Meaning(ERROR, "the supervisor is gone: this worker drains"),
    "tasks.missing": Meaning(WARNING, "supervised workers have nothing to run"),
    "recycle.ignored": Meaning(WARNING, "only a supervisor recycles workers"),
    "loop.blocked": Meaning(WARNING, "a call blocks the event loop; its stack"),
    "lease.unrenewed": Meaning(WARNING, "a heartbeat failed; the next one tries again"),
    "store.failed": Meaning(WARNING, "a call to the store failed; tried again"),
    "store.warned": Meaning(WARNING, "the store works, but not as well as it could"),
    "store.stalled": Meaning(WARNING, "a process holds the writer's lock: its pid"),
    "hook.failed": Meaning(ERROR, "a hook raised; the job is not affected"),
    "upkeep.failed": Meaning(WARNING, "a maintenance turn failed; the next one comes"),
    "jobs.pruned": Meaning(DEBUG, "final jobs past their retention were deleted"),
    "queue.overfilled": Meaning(
        WARNING, "jobs entered a full queue in their caller's own transaction"
    ),
    "queue.filled": Meaning(WARNING, "a queue is full: its enqueues wait for room"),
    "payload.large": Meaning(WARNING, "arguments over the warning bound"),
    "namespace.unknown": Meaning(WARNING, "enqueued by name; no worker told its tasks"),
    "retry.unpaused": Meaning(WARNING, "a retry policy without a pause between tries"),
}
