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
    JOB_RETRIED: EmissionMeaning(
        WARNING, "the attempt failed; the job will be retried"
    ),
    JOB_SNOOZED: EmissionMeaning(
        INFO, "the task snoozed: it runs again later, the attempt is not counted"
    ),
    JOB_DEAD: EmissionMeaning(ERROR, "the job failed for good: a dead letter"),
    JOB_CANCELLED: EmissionMeaning(INFO, "the job was cancelled"),
    JOB_RELEASED: EmissionMeaning(
        INFO, "the job was given back unfinished; the attempt is not counted"
    ),
    JOB_FENCED: EmissionMeaning(
        WARNING, "a late write was refused: the job has a new owner"
    ),
    JOB_RESCUED: EmissionMeaning(WARNING, "the job of a lost worker was given back"),
    JOB_PARKED: EmissionMeaning(
        WARNING, "this worker cannot run the job (see reason); left to other workers"
    ),
    JOB_ABANDONED: EmissionMeaning(
        ERROR, "the attempt ignored its hard limit and still runs"
    ),
    JOB_FALTERED: EmissionMeaning(
        ERROR, "the task failed after its own transaction had made the job done"
    ),
    "worker.started": EmissionMeaning(INFO, "the worker has a lease and claims jobs"),
    "worker.waiting": EmissionMeaning(
        INFO, "only jobs before gates are left; the burst goes on when these open"
    ),
    "worker.stopping": EmissionMeaning(INFO, "no more claims; running jobs may finish"),
    "worker.stopped": EmissionMeaning(INFO, "the worker gave its jobs back and ended"),
    "worker.fenced": EmissionMeaning(
        ERROR, "the lease was lost: running attempts are abandoned"
    ),
    "worker.broken": EmissionMeaning(
        ERROR, "the worker cannot continue in this process: it drains and ends"
    ),
    "worker.rescued": EmissionMeaning(
        WARNING, "the jobs of a dead worker were rescued"
    ),
    "deps.failed": EmissionMeaning(
        ERROR, "deps= raised during its cleanup; the worker had already ended"
    ),
    "worker.failed": EmissionMeaning(
        ERROR, "an embedded worker ended with an error; its process continues"
    ),
    "worker.stuck": EmissionMeaning(
        ERROR,
        "a call blocks past its hard limit in a host process, which Durio does not end",
    ),
    "schedule.ticked": EmissionMeaning(DEBUG, "a tick of a schedule made a job"),
    "schedule.skipped": EmissionMeaning(
        WARNING, "ticks of a schedule made no job (see reason)"
    ),
    "schedule.missed": EmissionMeaning(
        WARNING, "a tick was handled much later than it was due"
    ),
    "schedule.failed": EmissionMeaning(
        ERROR, "the job of a tick could not be made; the schedule goes on"
    ),
    "schedule.never_due": EmissionMeaning(
        WARNING, "a worker stored a schedule of its code that has no tick"
    ),
    "schedule.paused": EmissionMeaning(WARNING, "Durio has paused a schedule"),
    "breaker.opened": EmissionMeaning(
        WARNING, "calls failed: a breaker holds the jobs of its tasks back (see why)"
    ),
    "breaker.half_open": EmissionMeaning(
        INFO, "the open time of a breaker is over: a few jobs try its dependency"
    ),
    "breaker.closed": EmissionMeaning(
        INFO, "a breaker lets the jobs of its tasks run again"
    ),
    "spawn.failed": EmissionMeaning(
        ERROR, "a call of app.spawn raised; it is not retried"
    ),
    "spawn.cancelled": EmissionMeaning(
        WARNING, "calls of app.spawn were cancelled at shutdown"
    ),
    "child.started": EmissionMeaning(INFO, "a child process is ready for jobs"),
    "child.died": EmissionMeaning(
        ERROR, "a child process died; the crash counts against its own job only"
    ),
    "child.killed": EmissionMeaning(
        WARNING, "a child process did not stop in time: killed"
    ),
    "child.recycled": EmissionMeaning(
        INFO, "a child process reached its recycle limit and is replaced"
    ),
    "child.failed": EmissionMeaning(
        ERROR, "a child process did not become ready, or did not exit cleanly"
    ),
    "fleet.started": EmissionMeaning(INFO, "a supervisor starts its worker processes"),
    "fleet.stopping": EmissionMeaning(
        INFO, "a signal arrived: every worker process drains"
    ),
    "fleet.draining": EmissionMeaning(INFO, "running jobs and remaining grace period"),
    "fleet.stopped": EmissionMeaning(INFO, "every worker process has ended"),
    "fleet.crashed": EmissionMeaning(
        ERROR, "worker processes keep dying: the supervisor ends"
    ),
    "process.started": EmissionMeaning(INFO, "the supervisor started a worker process"),
    "process.unstarted": EmissionMeaning(
        ERROR, "a worker process could not be started; tried again"
    ),
    "process.replaced": EmissionMeaning(
        INFO, "a new worker process took over from an old one"
    ),
    "process.drained": EmissionMeaning(INFO, "a worker process has drained and ended"),
    "process.ended": EmissionMeaning(ERROR, "a worker process died; it is replaced"),
    "process.blocked": EmissionMeaning(
        ERROR, "a worker process could not continue and ended; it is replaced"
    ),
    "process.killed": EmissionMeaning(ERROR, "a worker process hung: killed"),
    "reload.started": EmissionMeaning(
        INFO, "every worker process is being replaced, one by one"
    ),
    "reload.ended": EmissionMeaning(INFO, "every worker process has been replaced"),
    "reload.failed": EmissionMeaning(
        ERROR, "a new process did not start; the old ones keep running"
    ),
    "supervisor.lost": EmissionMeaning(
        ERROR, "the supervisor is gone: this worker drains"
    ),
    "tasks.missing": EmissionMeaning(
        WARNING, "the App has no tasks, so its workers have nothing to run"
    ),
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
    "plan.unhandled": EmissionMeaning(
        ERROR, "the error handlers of a failed plan could not be enqueued"
    ),
    "hook.failed": EmissionMeaning(ERROR, "a hook raised; the job is not affected"),
    "upkeep.failed": EmissionMeaning(
        WARNING, "a maintenance turn failed; the next turn tries again"
    ),
    "jobs.pruned": EmissionMeaning(
        DEBUG, "final jobs past their retention were deleted"
    ),
    "queue.overfilled": EmissionMeaning(
        WARNING, "jobs were added to a full queue by a caller's transaction (tx=)"
    ),
    "queue.filled": EmissionMeaning(
        WARNING, "a queue is full: callers of enqueue wait for room"
    ),
    "payload.large": EmissionMeaning(WARNING, "arguments over the warning bound"),
    "namespace.unknown": EmissionMeaning(
        WARNING,
        "no worker has registered this task yet, so its arguments were not checked",
    ),
    "task.unpublished": EmissionMeaning(
        WARNING,
        "the name of a task is too long to publish: it cannot be enqueued by name",
    ),
    "retry.unpaused": EmissionMeaning(
        WARNING, "a retry policy without a pause between tries"
    ),
    "web.failed": EmissionMeaning(
        ERROR, "the dashboard could not answer a request (see error)"
    ),
}
