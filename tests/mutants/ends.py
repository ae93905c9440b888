"""Bugs about how jobs end, and what an end costs."""

from tests.mutants.planting import Mutant, Patch, Promises, Seeds, Tests

FINISH = "stores/sqlite/sql/finish.sql"
FENCE = "where id = :id and claim_no = :claim_no and worker = :worker and state = 3"
# A statement must use all of its parameters.
NO_FENCE = "where id = :id and :claim_no and :worker and state = 3"
# Every few seconds a worker pauses for longer than its lease, and goes on.
ZOMBIES = tuple(
    (10.0 + 9 * n, "pause", f"worker-{n % 4}", 20.0, 0.5) for n in range(30)
)

PLANTED = (
    Mutant(
        "no_fence_at_done",
        "A done is accepted from any claim while the job runs anywhere.",
        (
            Patch(
                FINISH,
                "and job.claim_no = :claim_no and +job.worker = :worker",
                "and :claim_no and :worker",
            ),
            Patch(
                FINISH,
                f"keep_count = :keep_count\n{FENCE}",
                f"keep_count = :keep_count\n{NO_FENCE}",
            ),
        ),
        (Seeds(20, {"lease_seconds": 6.0}, ZOMBIES),),
    ),
    Mutant(
        "results_of_other_jobs",
        "Jobs that end together get each other's results.",
        (
            Patch(
                "stores/sqlite/finish.py",
                'return b"".join([outcome.id for outcome in outcomes])',
                'return b"".join([outcome.id for outcome in outcomes][::-1])',
            ),
        ),
        (Promises("many_jobs."),),
    ),
    Mutant(
        "no_fence_at_the_gate",
        "A retry, a release or a death is accepted for any claim.",
        (
            Patch(
                FINISH,
                "id = :id and claim_no = :claim_no and worker is :worker and state = 3",
                "id = :id and :claim_no and (:worker is null or true) and state = 3",
            ),
        ),
        (Seeds(20, {"lease_seconds": 6.0}, ZOMBIES),),
    ),
    Mutant(
        "finish_before_run",
        "A job is reported done as soon as it starts, like an early acknowledgement.",
        (
            Patch(
                "worker/slots.py",
                "        self._first_steps.start(attempt)\n",
                "        early = Outcome(claim.id, claim.claim_no, OutcomeKind.DONE)\n"
                "        self._outcomes.add(UnsentOutcome(early, attempt, None))\n"
                "        self._nudge()\n"
                "        self._first_steps.start(attempt)\n",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "retry_counts_twice",
        "A failed attempt is charged two retries.",
        (
            Patch(
                FINISH,
                "retried = retried + (exit.way < 5 and :kind = 1)",
                "retried = retried + 2 * (exit.way < 5 and :kind = 1)",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "release_charges",
        "A job that is released without a run is charged an attempt.",
        (
            Patch(
                FINISH,
                "retried = retried + (exit.way < 5 and :kind = 1)",
                "retried = retried + (exit.way < 5 and :kind in (1, 3))",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "snooze_keeps_lost",
        "A snooze does not end a row of losses: a job that ran well can die of them.",
        (
            Patch(
                FINISH,
                "when exit.way >= 5 or :kind = 3 then lost",
                "when exit.way >= 5 or :kind in (2, 3) then lost",
            ),
        ),
        (Promises("upkeep.snooze_resets_lost"),),
    ),
    Mutant(
        "third_loss_without_alone",
        "The third loss in a row kills a job that did not run alone.",
        (
            Patch(
                FINISH,
                "lost >= 2 and (alone or :killed_process)",
                "lost >= 2 and (alone or :killed_process or true)",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "gate_forgets_an_asked_cancel",
        "A cancel requested while the job ran is forgotten when it starts again.",
        (Patch(FINISH, "when cancel or :kind = 5 then 6", "when :kind = 5 then 6"),),
        (Promises("control.asked_cancel_survives"),),
    ),
    Mutant(
        "prune_takes_live_jobs",
        "Old jobs that still wait are pruned with the old finished jobs.",
        (
            Patch(
                "stores/sqlite/sql/prune.sql",
                "where state >= 4 and state <> 5 and gone_at <= :now",
                "where (state >= 4 and state <> 5 and gone_at <= :now)\n"
                "    or (state in (0, 2) and created_at <= :now - 30)",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "prune_before_its_time",
        "A finished job goes with the next prune, whatever its retention.",
        (
            Patch(
                "stores/sqlite/sql/prune.sql",
                "state <> 5 and gone_at <= :now",
                "state <> 5 and finished_at <= :now",
            ),
        ),
        (Promises("retention.a_job_is_kept_for_its_age"),),
    ),
    Mutant(
        "one_retry_too_many",
        "A job with three retries gets four.",
        (
            Patch(
                "model/decision.py",
                "if counts.retried >= most:",
                "if counts.retried > most:",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "never_after_the_table",
        "The table of error classes decides before `never` of the retry policy.",
        (
            Patch(
                "model/decision.py",
                "_by_policy(error, policy, counts) or _by_rules(\n"
                "        error, policy, counts, rules\n    )",
                "_by_rules(error, policy, counts, rules) or _by_policy(\n"
                "        error, policy, counts\n    )",
            ),
        ),
        (Tests("tests/unit/model/test_decision.py"),),
    ),
    Mutant(
        "retry_after_burns_an_attempt",
        "A job that waits as Retry-After says uses a retry for it.",
        (
            Patch(
                "model/decision.py",
                "return Decision(OutcomeKind.SNOOZE, delay_seconds, text=text)",
                "return Decision(OutcomeKind.RETRY, delay_seconds, text=text)",
            ),
        ),
        (Tests("tests/unit/app/test_error_classes.py"),),
    ),
    Mutant(
        "retry_after_is_ignored",
        "A job is tried again before the time that Retry-After gives.",
        (
            Patch(
                "model/decision.py",
                "bounded = min(found.wait_seconds, counts.retry_after_max_seconds)",
                "bounded = min(found.wait_seconds, 1.0)",
            ),
        ),
        (Tests("tests/unit/app/test_error_classes.py"),),
    ),
    Mutant(
        "no_jitter",
        "Jobs that fail together are retried at the same moment.",
        (
            Patch(
                "model/retry.py",
                "return whole * share if self.jitter else whole",
                "return whole",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "ends_are_not_flushed",
        "A power cut loses ends that were reported to the worker as stored.",
        (
            Patch(
                "stores/sqlite/exchange.py",
                "durable=bool(outcomes)",
                "durable=False",
            ),
        ),
        (Tests("tests/unit/stores/test_flushes.py"),),
    ),
    Mutant(
        "ends_beside_claims_are_not_flushed",
        "An end is not flushed if a claim is written in the same transaction.",
        (
            Patch(
                "stores/sqlite/writer.py",
                "is_durable = any(request.is_durable for",
                "is_durable = all(request.is_durable for",
            ),
        ),
        (Tests("tests/unit/stores/test_flushes.py"),),
    ),
)
