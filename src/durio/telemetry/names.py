"""Every event with its level and meaning; names are noun.past_participle."""

from typing import Final, NamedTuple

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
LEVELS = {DEBUG: "DEBUG", INFO: "INFO", WARNING: "WARNING", ERROR: "ERROR"}


class EmissionMeaning(NamedTuple):
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

MEANINGS: dict[str, EmissionMeaning] = {
    JOB_ENQUEUED: EmissionMeaning(DEBUG, "a job was stored; sent to `durio tail` only"),
    JOB_STARTED: EmissionMeaning(DEBUG, "an attempt began"),
    JOB_DONE: EmissionMeaning(INFO, "the store accepted the result"),
    JOB_RETRIED: EmissionMeaning(WARNING, "the attempt failed and will be made again"),
    JOB_SNOOZED: EmissionMeaning(INFO, "the task asked to look again later"),
    JOB_DEAD: EmissionMeaning(ERROR, "the job failed for good: a dead letter"),
    JOB_CANCELLED: EmissionMeaning(INFO, "the job was cancelled"),
    JOB_RELEASED: EmissionMeaning(INFO, "the job was given back unfinished, uncharged"),
    JOB_FENCED: EmissionMeaning(
        WARNING, "a late write was refused: the job has a new owner"
    ),
    JOB_RESCUED: EmissionMeaning(WARNING, "a lost worker's job went back"),
    JOB_PARKED: EmissionMeaning(
        WARNING, "the code here cannot run it, for this reason: left to other workers"
    ),
    JOB_ABANDONED: EmissionMeaning(
        ERROR, "the attempt ignores its hard limit and hangs on"
    ),
    JOB_FALTERED: EmissionMeaning(
        ERROR, "the task failed after its own transaction had made the job done"
    ),
    "worker.started": EmissionMeaning(INFO, "the worker has a lease and claims jobs"),
    "worker.stopping": EmissionMeaning(INFO, "no more claims; running jobs may finish"),
    "worker.stopped": EmissionMeaning(INFO, "the worker gave everything back and left"),
    "worker.fenced": EmissionMeaning(
        ERROR, "the lease was lost: running jobs are given up"
    ),
    "worker.broken": EmissionMeaning(
        ERROR, "the worker cannot go on in this process: it drains and ends"
    ),
    "worker.rescued": EmissionMeaning(WARNING, "a dead worker's jobs were taken back"),
    "deps.failed": EmissionMeaning(
        ERROR, "deps= raised while a worker left it: it had ended"
    ),
    "worker.failed": EmissionMeaning(
        ERROR, "an embedded worker ended with an error; its process goes on"
    ),
    "worker.stuck": EmissionMeaning(
        ERROR, "a call blocks past its hard limit in a process that is not ours to end"
    ),
    "spawn.failed": EmissionMeaning(
        ERROR, "a call of app.spawn raised; it is not retried"
    ),
    "spawn.cancelled": EmissionMeaning(
        WARNING, "calls of app.spawn still ran at the end: cancelled"
    ),
    "child.started": EmissionMeaning(INFO, "a child process is ready for jobs"),
    "child.died": EmissionMeaning(
        ERROR, "a child process died; only its own job is charged"
    ),
    "child.killed": EmissionMeaning(
        WARNING, "a child process did not stop in time: killed"
    ),
    "child.recycled": EmissionMeaning(
        INFO, "a child process had its share and is replaced"
    ),
    "child.failed": EmissionMeaning(
        ERROR, "a child process did not become ready, or did not leave in order"
    ),
    "fleet.started": EmissionMeaning(INFO, "a supervisor starts its worker processes"),
    "fleet.stopping": EmissionMeaning(
        INFO, "a signal: every worker process is asked to drain"
    ),
    "fleet.draining": EmissionMeaning(
        INFO, "how many jobs still run, and the grace left"
    ),
    "fleet.stopped": EmissionMeaning(INFO, "every worker process has ended"),
    "fleet.crashed": EmissionMeaning(
        ERROR, "worker processes keep dying: the supervisor ends"
    ),
    "process.started": EmissionMeaning(INFO, "the supervisor started a worker process"),
    "process.unstarted": EmissionMeaning(
        ERROR, "no process could be started; tried again"
    ),
    "process.replaced": EmissionMeaning(
        INFO, "a new worker process took over from an old one"
    ),
    "process.drained": EmissionMeaning(
        INFO, "a worker process has done all it was to do"
    ),
    "process.ended": EmissionMeaning(
        ERROR, "a worker process ended unasked; it is replaced"
    ),
    "process.blocked": EmissionMeaning(
        ERROR, "a worker process ended itself: it could not go on; it is replaced"
    ),
    "process.killed": EmissionMeaning(ERROR, "a worker process hung: killed"),
    "reload.started": EmissionMeaning(
        INFO, "every worker process is replaced, one by one"
    ),
    "reload.ended": EmissionMeaning(INFO, "every worker process is a new one"),
    "reload.failed": EmissionMeaning(
        ERROR, "a new process did not come up; old ones work on"
    ),
    "supervisor.lost": EmissionMeaning(
        ERROR, "the supervisor is gone: this worker drains"
    ),
    "tasks.missing": EmissionMeaning(WARNING, "supervised workers have nothing to run"),
    "recycle.ignored": EmissionMeaning(WARNING, "only a supervisor recycles workers"),
    "loop.blocked": EmissionMeaning(WARNING, "a call blocks the event loop; its stack"),
    "lease.unrenewed": EmissionMeaning(
        WARNING, "a heartbeat failed; the next one tries again"
    ),
    "store.failed": EmissionMeaning(WARNING, "a call to the store failed; tried again"),
    "store.warned": EmissionMeaning(
        WARNING, "the store works, but not as well as it could"
    ),
    "store.stalled": EmissionMeaning(
        WARNING, "a process holds the writer's lock: its pid"
    ),
    "hook.failed": EmissionMeaning(ERROR, "a hook raised; the job is not affected"),
    "upkeep.failed": EmissionMeaning(
        WARNING, "a maintenance turn failed; the next one comes"
    ),
    "jobs.pruned": EmissionMeaning(
        DEBUG, "final jobs past their retention were deleted"
    ),
    "queue.overfilled": EmissionMeaning(
        WARNING, "jobs entered a full queue in their caller's own transaction"
    ),
    "queue.filled": EmissionMeaning(
        WARNING, "a queue is full: its enqueues wait for room"
    ),
    "payload.large": EmissionMeaning(WARNING, "arguments over the warning bound"),
    "namespace.unknown": EmissionMeaning(
        WARNING,
        "no worker has registered this task yet, so its arguments were not checked",
    ),
    "task.unpublished": EmissionMeaning(
        WARNING, "the name of a task is too long to publish: no enqueue by name"
    ),
    "retry.unpaused": EmissionMeaning(
        WARNING, "a retry policy without a pause between tries"
    ),
}
