"""Bugs about expiries and locks: late jobs that run, and two holders of one lock."""

from tests.mutants.planting import Promises, Tests, one_patch

JOBS = Tests("tests/unit/app/test_expiry.py")
LOCKS = Tests("tests/unit/app/test_lock.py")
RECORD = "client/held_record.py"

PLANTED = (
    one_patch(
        "expired_job_is_called",
        "A worker calls a job that has expired.",
        "worker/attempt.py",
        "        if attempt.has_expired(self.clock.now()):\n",
        "        if False:\n",
        JOBS,
    ),
    one_patch(
        "retry_after_the_expiry",
        "A failed attempt waits for a retry that cannot begin in time.",
        "worker/attempt.py",
        "expires = attempt.has_expired(self.clock.now() + decision.delay_seconds)",
        "expires = attempt.has_expired(self.clock.now())",
        JOBS,
    ),
    one_patch(
        "expiry_of_a_running_job_is_forgotten",
        "A job that runs at its expiry, and comes back, waits for ever.",
        "maintenance/expirer.py",
        "states = {job.id: RUNNING for job in jobs if job.state == RUNNING}",
        "states: dict[bytes, int] = {}",
        JOBS,
    ),
    one_patch(
        "expiry_survives_a_retry_by_hand",
        "A job that a person retries is dead again.",
        "stores/sqlite/job_actions.py",
        "unexpiring = None if opts is None else without_expiry(opts)",
        "unexpiring = None",
        Promises("expiry.a_retry_by_hand"),
    ),
    one_patch(
        "killed_job_keeps_its_place",
        "A job that dies while it waits stays counted in its full queue.",
        "stores/sqlite/job_actions.py",
        "    key, mode, lane, task, seq, ties = tx.db.rows(KILL_WAITING, values)[0]\n"
        "    subtract_from_depth(tx, lane)\n",
        "    key, mode, lane, task, seq, ties = tx.db.rows(KILL_WAITING, values)[0]\n",
        Promises("expiry.a_dead_job_leaves"),
    ),
    one_patch(
        "renewal_without_its_version",
        "A holder that was paused takes its lock back from the next one.",
        RECORD,
        "if_version=expected,",
        "if_version=None if version is None else version,",
        Promises("locks.a_holder_that_was_paused"),
    ),
    one_patch(
        "lock_outlives_its_store",
        "A holder that cannot reach the store goes on for ever.",
        RECORD,
        "return self._clock.monotonic() < self._until",
        "return True",
        LOCKS,
    ),
    one_patch(
        "lost_lock_runs_on",
        "A block goes on after its lock was lost.",
        "client/lock_block.py",
        "            self._task.cancel()\n",
        "            pass\n",
        LOCKS,
    ),
    one_patch(
        "failed_work_counts_as_done",
        "A block of `once` that raises keeps its key.",
        "client/once.py",
        "        if error is not None:\n",
        "        if error is not None and self._is_done:\n",
        LOCKS,
    ),
)
