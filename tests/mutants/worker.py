"""Bugs inside a worker: replies, outcomes, limits, other jobs of its process, hooks."""

from tests.mutants.planting import Mutant, Patch, Seeds, Tests

CLAIM = "worker/claim.py"
SLOTS = "worker/slots.py"
KEEP = "            self._outcomes.keep()\n            self._resync = True\n        if not self._f"
# For a minute one call in four has no answer, or never arrives; then all is well.
REPLIES_GET_LOST = tuple((5.0, "flaky", f"worker-{n}", 60.0, 0.9) for n in range(4))
# The loop is blocked and does not react to a stop.
STOPPED_WHILE_BLOCKED = tuple(
    (20.0 * n + (kind == "terminate"), kind, f"worker-{n % 4}", 13.0, 0.5)
    for n in range(1, 12)
    for kind in ("block", "terminate")
)

PLANTED = (
    Mutant(
        "lost_reply_not_resynced",
        "Claims in a lost reply are never asked for again.",
        (
            Patch(
                CLAIM, KEEP, "            self._outcomes.keep()\n        if not self._f"
            ),
        ),
        (Seeds(20, {"seconds": 200.0}, REPLIES_GET_LOST),),
    ),
    Mutant(
        "outbox_dropped_on_a_failed_exchange",
        "Outcomes of a failed exchange are forgotten.",
        (Patch(CLAIM, KEEP, KEEP.replace("keep()", "drop()")),),
        (Seeds(),),
    ),
    Mutant(
        "cancelled_error_swallowed",
        "An interrupted job counts as done.",
        (
            Patch(
                "worker/attempt.py",
                "        except BaseException as error:\n"
                "            return self._failed(driver.attempt, error)\n",
                "        except asyncio.CancelledError:\n"
                "            return self._done(driver.attempt, b'null')\n"
                "        except BaseException as error:\n"
                "            return self._failed(driver.attempt, error)\n",
            ),
            Patch(
                "worker/attempt.py",
                "            value = await SoftLimitDriver(coro, attempt)\n",
                "            value = await SoftLimitDriver(coro, attempt)\n"
                "        except asyncio.CancelledError:\n"
                "            return self._done(attempt, b'null')\n",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "soft_limit_not_delivered",
        "Nothing happens at the soft limit.",
        (
            Patch(
                "worker/inflight.py",
                "            self.soft_hits += 1\n"
                "            self.asyncio_task.cancel()",
                "            pass",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "hard_limit_ignored",
        "A job that ignores its soft limit runs past the hard limit.",
        (
            Patch(
                "worker/deadline.py",
                "            attempt.limit_at = NEVER\n            self._give_up(attempt)",
                "            attempt.limit_at = NEVER",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "watchdog_charges_neighbours",
        "When a blocked loop ends a worker, its other jobs are charged too.",
        (
            Patch(
                "worker/watchdog.py",
                "        for other in others:\n"
                "            other.interrupt_reason = other.interrupt_reason or InterruptReason.STOP\n"
                "        ends += [self._stopped(other) for other in others]",
                "        ends += [self._time_out(other) for other in others]",
            ),
        ),
        (Seeds(20, {"concurrency": 10}, STOPPED_WHILE_BLOCKED),),
    ),
    Mutant(
        "last_chance_in_company",
        "A job that lost two workers runs beside others, marked or not.",
        (
            Patch(
                SLOTS,
                "            elif claim.lost >= LOST_MAX - 1 and"
                " not self._has_own_process(claim):",
                "            elif claim.lost >= LOST_MAX + 1000:",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "slot_not_freed_on_cancel",
        "A cancelled job keeps its slot.",
        (
            Patch(
                SLOTS,
                "        del self.running[claim.id]\n",
                "        if outcome.kind != OutcomeKind.CANCEL:\n"
                "            del self.running[claim.id]\n",
            ),
        ),
        (Seeds(knobs={"is_calm": True, "concurrency": 1}),),
    ),
    Mutant(
        "dead_hook_told_twice",
        "The hook for dead jobs runs twice per death.",
        (
            Patch(
                "worker/outcome_buffer.py",
                "                self._notify_hooks(events)",
                "                self._notify_hooks(events)\n"
                "                self._notify_hooks(events)",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "dead_hook_never_told",
        "The hook for dead jobs does not run for a job that died with its worker.",
        (
            Patch(
                "app/worker_builder.py",
                "    worker.hooks.notify(events)\n",
                "",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "jobs_share_a_context",
        "A job starts with the context variables that another job has set.",
        (
            Patch(
                "worker/first_steps.py",
                "                context = copy_context()\n",
                "                context = self._context\n",
            ),
        ),
        (Tests("tests/unit/worker/test_first_steps.py"),),
    ),
    Mutant(
        "jobs_share_a_current_task",
        "A job gets the asyncio task that an earlier job still refers to.",
        (
            Patch(
                "worker/first_steps.py",
                " or marks_of(carrier) != unused:",
                ":",
            ),
        ),
        (Tests("tests/unit/worker/test_first_steps.py"),),
    ),
    Mutant(
        "a_carrier_with_attributes_is_used_again",
        "A job reads what an earlier job has noted on its asyncio task.",
        (
            Patch(
                "worker/first_steps.py",
                "        task.has_new_attributes,\n",
                "",
            ),
        ),
        (Tests("tests/unit/worker/test_first_steps.py"),),
    ),
    Mutant(
        "time_begins_with_the_slot",
        "The time limit of a job counts while other jobs keep the event loop.",
        (
            Patch(
                "worker/slots.py",
                "        self._first_steps.start(attempt)\n        if",
                "        self.deadlines.watch(attempt)\n"
                "        self._first_steps.start(attempt)\n        if",
            ),
            Patch(
                "worker/slots.py",
                "        attempt.started = now\n",
                "        if attempt.limit_at < float('inf'):\n            return\n",
            ),
        ),
        (Tests("tests/unit/worker/test_first_steps.py"),),
    ),
    Mutant(
        "claims_unbounded_in_bytes",
        "One claim brings a thousand large jobs into memory.",
        (
            Patch(
                "stores/sqlite/exchange.py",
                "    return 1 + sum(total <= CLAIM_BYTES_MAX for total in totals)\n",
                "    return room + 0 * len(list(totals))\n",
            ),
        ),
        (Tests("tests/unit/stores/test_large_claims.py"),),
    ),
    Mutant(
        "known_waiters_overtake",
        "A task that waited before gets an asyncio task ahead of queued attempts.",
        (
            Patch(
                "worker/first_steps.py",
                "        if self._carrier is None and self._needs_task(attempt):\n",
                "        if self._needs_task(attempt):\n",
            ),
        ),
        (Tests("tests/unit/worker/test_first_steps.py"),),
    ),
    Mutant(
        "attempts_behind_a_wait_are_forgotten",
        "Attempts that queue behind one that waits never start.",
        (
            Patch(
                "worker/first_steps.py",
                "        if waiting:\n"
                "            self._carrier = self._new_carrier()\n",
                "",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "accepted_ends_lost_in_a_block",
        "Ends that wait for a blocked event loop are not logged, and their hooks not run.",
        (
            Patch(
                "worker/watchdog.py",
                "        events, ended = self._outcomes.take_events(), self._outcomes.drop()\n",
                "        events: list[JobEvent] = []\n        ended = self._outcomes.drop()\n",
            ),
        ),
        (Tests("tests/unit/worker/test_blocked.py"),),
    ),
    Mutant(
        "next_start_reported_before_the_end",
        "The start of an attempt is reported before the end of the attempt before it.",
        (
            Patch(
                "worker/claim.py",
                "        if self.slots.reports_started:\n",
                "        if False:\n",
            ),
        ),
        (Tests("tests/unit/app/test_logs.py"),),
    ),
    Mutant(
        "threads_stay_busy",
        "The interpreter is not told that the last task in a thread has ended.",
        (
            Patch(
                "host/executors.py",
                "                self.idle.append(inbox)\n            self.report_busy()\n",
                "                self.idle.append(inbox)\n",
            ),
        ),
        (Tests("tests/unit/host/test_executors.py"),),
    ),
    Mutant(
        "claims_ahead_whatever_jobs_take",
        "A worker claims as many jobs ahead as it may, not as many as it will run soon.",
        (
            Patch(
                "worker/slots.py",
                "            self.target = int(min(self._prefetch, ahead, room))\n",
                "            self.target = int(min(self._prefetch, room, max(ahead, 1024)))\n",
            ),
        ),
        (Tests("tests/unit/app/test_queues.py"),),
    ),
    Mutant(
        "aborted_worker_runs_no_hooks",
        "A worker that is cancelled does not run the hooks of its last outcomes.",
        (
            Patch(
                "worker/worker.py",
                "        self.outcomes.report()  # after an abort the loop has had no turn to do this\n",
                "",
            ),
        ),
        (Tests("tests/unit/app/test_around.py"),),
    ),
    Mutant(
        "claim_loop_keeps_the_event_loop",
        "With a store in memory the claim loop lets no other code run.",
        (
            Patch(
                "worker/claim.py",
                " < FLUSH_OUTCOMES or not self._has_loop_turned:\n",
                " < FLUSH_OUTCOMES:\n",
            ),
        ),
        (Tests("tests/unit/app/test_around.py"),),
    ),
)
