"""Every emission: its name, its level and what it means. Names are noun.past_participle."""

from typing import Final, NamedTuple

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40


class Meaning(NamedTuple):
    """How loud an emission is, and what it says."""

    level: int
    text: str


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

MEANINGS: dict[str, Meaning] = {
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
    "worker.started": Meaning(INFO, "the worker has a lease and claims jobs"),
    "worker.stopping": Meaning(INFO, "no more claims; running jobs may finish"),
    "worker.stopped": Meaning(INFO, "the worker gave everything back and left"),
    "worker.fenced": Meaning(ERROR, "the lease was lost: running jobs are given up"),
    "worker.overwhelmed": Meaning(
        ERROR, "too many abandoned attempts hang on: the worker ends"
    ),
    "worker.rescued": Meaning(WARNING, "a dead worker's jobs were taken back"),
    "loop.blocked": Meaning(WARNING, "a call blocks the event loop; its stack"),
    "lease.unrenewed": Meaning(WARNING, "a heartbeat failed; the next one tries again"),
    "store.failed": Meaning(WARNING, "a call to the store failed; tried again"),
    "store.stalled": Meaning(WARNING, "a process holds the writer's lock: its pid"),
    "hook.failed": Meaning(ERROR, "a hook raised; the job is not affected"),
    "upkeep.failed": Meaning(WARNING, "a maintenance turn failed; the next one comes"),
    "jobs.pruned": Meaning(DEBUG, "final jobs past their retention were deleted"),
    "payload.large": Meaning(WARNING, "arguments over the warning bound"),
    "namespace.unknown": Meaning(WARNING, "enqueued by name; no worker told its tasks"),
    "retry.unpaused": Meaning(WARNING, "a retry policy without a pause between tries"),
}
