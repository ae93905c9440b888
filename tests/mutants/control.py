"""Bugs of clients and workers that ignore a message, do not answer or do not wait."""

from tests.mutants.planting import Mutant, Patch, Seeds

ASK = "client/reliable_write.py"
CALLS = "client/calls.py"
WORKER = "worker/worker.py"
LEASE_EVENTS = "worker/lease_events.py"

# Lost calls and late calls together: a job ends while its worker resyncs its claims.
LOST_AND_LATE = tuple(
    (5.0 + 30 * turn, "bad_line", f"worker-{n}", 25.0, 0.5)
    for turn in range(4)
    for n in range(4)
)
# Only stops, one worker after another.
STOPS = tuple(
    (10.0 + 8 * n, "terminate", f"worker-{n % 4}", 0.0, 0.5) for n in range(12)
)
# Only pauses of a queue, with a distant store and more jobs than slots.
PAUSES = tuple((10.0 + 6 * n, "queue_paused", "*", 4.0, 0.5) for n in range(30))
AHEAD = {
    "seconds": 120.0,
    "jobs": 160,
    "lease_seconds": 6.0,
    "concurrency": 1,
    "prefetch": 20,
    "trip_seconds": 0.1,
    "old_workers": 0,
    "is_calm": False,
}
CALM = {"is_calm": True}

PLANTED = (
    Mutant(
        "client_dies_after_repeat",
        "An enqueue that had to be repeated ends in an unexpected error.",
        (
            Patch(
                ASK,
                "                return _after_repeat(jobs, answers) if again else answers",
                "                if again:\n"
                "                    raise ZeroDivisionError('planted')\n"
                "                return answers",
            ),
        ),
        (Seeds(8),),
    ),
    Mutant(
        "client_hangs_on_error",
        "An enqueue while the store is unavailable never returns.",
        (
            Patch(
                CALLS,
                "            call.future.set_exception(error)\n        self.end(call)",
                "            return",
            ),
        ),
        (Seeds(8),),
    ),
    Mutant(
        "cancel_ignored",
        "A worker ignores the cancel of a job that it runs.",
        (
            Patch(
                LEASE_EVENTS,
                "        for job_id, claim_no in cancels:\n"
                "            self._slots.cancel(job_id, claim_no)",
                "        del cancels",
            ),
        ),
        (Seeds(4, CALM),),
    ),
    Mutant(
        "cancel_forgotten_at_a_retry",
        "A job that fails after its cancel was requested starts again.",
        (
            Patch(
                "stores/sqlite/sql/finish.sql",
                "      when cancel or :kind = 5 then 6",
                "      when :kind = 5 then 6",
            ),
        ),
        (Seeds(8),),
    ),
    Mutant(
        "pause_unheard",
        "A worker starts prefetched jobs although their queue is paused.",
        (
            Patch(
                LEASE_EVENTS,
                "        self._loop.call_soon_threadsafe(self._claims.pause, lanes)",
                "        del lanes",
            ),
        ),
        (Seeds(4, AHEAD, PAUSES),),
    ),
    Mutant(
        "no_grace",
        "A worker that gets a stop releases its running jobs immediately.",
        (
            Patch(
                WORKER,
                "        await self._until_idle(grace)\n",
                "        await self._until_idle(0.0)\n",
            ),
        ),
        (Seeds(4, CALM),),
    ),
    Mutant(
        "drain_claims_on",
        "A worker that gets a stop claims more jobs while one runs.",
        (
            Patch(
                WORKER,
                "        self.slots.close()\n"
                "        self.claims.inputs.release_all()\n"
                "        await self._until_idle(grace)",
                "        await self._until_idle(grace)\n        self.slots.close()",
            ),
        ),
        (Seeds(4, {"is_calm": False}, STOPS),),
    ),
    Mutant(
        "watchdog_hasty",
        "A loop that is blocked for three seconds ends its worker.",
        (
            Patch(
                "worker/watchdog.py",
                "        if blocking is not None and is_running"
                " and self._is_past_hard(blocking):",
                "        if seconds > 3 * self._block_seconds:\n"
                "            self._has_ended = True\n"
                "            self._machine.end(EXIT_BLOCKED)\n"
                "        elif blocking is not None and is_running"
                " and self._is_past_hard(blocking):",
            ),
        ),
        (Seeds(8),),
    ),
    Mutant(
        "snooze_and_retry_at_once",
        "A delay of seconds lasts milliseconds.",
        (
            Patch(
                "worker/attempt.py",
                "            delay_seconds=decision.delay_seconds,\n            error=",
                "            delay_seconds=decision.delay_seconds / 1000,\n            error=",
            ),
        ),
        (Seeds(4, CALM),),
    ),
    Mutant(
        "resync_restarts_ended",
        "A job that ended while its worker resynced its claims starts again.",
        (
            Patch(
                "worker/claim.py",
                "            claims = [claim for claim in claims if not self._outcomes.holds(claim.id)]\n",
                "",
            ),
        ),
        (Seeds(4, {"is_calm": False, "concurrency": 5}, LOST_AND_LATE),),
    ),
    Mutant(
        "progress_never_told",
        "The progress that a task reports stays in its worker.",
        (
            Patch(
                "worker/claim.py",
                "        self._outcomes.add_progress(\n"
                "            Outcome(claim.id, claim.claim_no, OutcomeKind.PROGRESS, progress=progress),\n"
                "            attempt,\n"
                "        )\n",
                "",
            ),
        ),
        (Seeds(4, CALM),),
    ),
    Mutant(
        "never_pruned",
        "Jobs past their retention stay for ever.",
        (
            Patch(
                "maintenance/pruner.py",
                "pruned = await self.store.prune(self.batch_max,"
                " dead_count=self.dead_count)",
                "pruned = 0",
            ),
        ),
        (Seeds(4, {"is_calm": True, "keep_seconds": 40.0}),),
    ),
    Mutant(
        "fence_ends_worker",
        "A worker that lost its lease ends instead of registering again.",
        (
            Patch(
                LEASE_EVENTS,
                "        self._registration.register_again(worker, claims.forget, claims.give_up)",
                "        self._registration.register_again(worker, claims.forget, claims.give_up)\n"
                "        self._slots._on_too_many_abandoned(1)",
            ),
        ),
        (Seeds(8),),
    ),
    Mutant(
        "worker_goes_home",
        "A worker stops cleanly by itself after a while.",
        (
            Patch(
                WORKER,
                "            self.vitals.ready(len(self.config.tasks))",
                "            self.vitals.ready(len(self.config.tasks))\n"
                "            self._loop.call_later(40.0, self.stop)",
            ),
        ),
        (Seeds(4),),
    ),
)
