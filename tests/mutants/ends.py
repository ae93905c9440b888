"""Bugs about how jobs end, and what an end costs."""

from tests.mutants.planting import Mutant, Patch, Promises, Seeds

GATE = "stores/sqlite/sql/pass_gate.sql"
FENCE = "and claim_no = ?2 and worker = ?3 and state = 3"
# Every few seconds a worker stands still for longer than its lease, and goes on.
ZOMBIES = tuple(
    (10.0 + 9 * n, "pause", f"worker-{n % 4}", 20.0, 0.5) for n in range(30)
)

PLANTED = (
    Mutant(
        "no_fence_at_done",
        "A done is accepted from whoever says it while the job runs anywhere.",
        (
            Patch("stores/sqlite/sql/finish_plain.sql", FENCE, "and state = 3"),
            Patch("stores/sqlite/sql/finish_done.sql", FENCE, "and state = 3"),
        ),
        (Seeds(20, {"lease_seconds": 6.0}, ZOMBIES),),
    ),
    Mutant(
        "no_fence_at_the_gate",
        "A retry, a release or a death is accepted whichever claim it is about.",
        (
            Patch(
                GATE,
                "where id = ?1 and claim_no = ?2 and worker is ?3 and state = 3",
                "where id = ?1 and state = 3",
            ),
        ),
        (Seeds(20, {"lease_seconds": 6.0}, ZOMBIES),),
    ),
    Mutant(
        "finish_before_run",
        "A job is told done as soon as it starts, like a message acknowledged early.",
        (
            Patch(
                "worker/slots.py",
                "        self.deadlines.watch(attempt)\n        attempt.asyncio_task",
                "        early = Outcome(claim.id, claim.claim_no, OutcomeKind.DONE)\n"
                "        self._outcomes.add(UnsentOutcome(early, attempt, None))\n"
                "        self._nudge()\n"
                "        self.deadlines.watch(attempt)\n"
                "        attempt.asyncio_task",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "retry_counts_twice",
        "A failed attempt is charged two retries.",
        (
            Patch(
                GATE,
                "retried = retried + (gate.way < 5 and ?4 = 1)",
                "retried = retried + 2 * (gate.way < 5 and ?4 = 1)",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "release_charges",
        "A job that is given back unrun pays with an attempt.",
        (
            Patch(
                GATE,
                "retried = retried + (gate.way < 5 and ?4 = 1)",
                "retried = retried + (gate.way < 5 and ?4 in (1, 3))",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "snooze_keeps_lost",
        "A snooze does not end a row of losses, so that it convicts a job which ran well.",
        (
            Patch(
                GATE,
                "when gate.way >= 5 or ?4 = 3 then lost",
                "when gate.way >= 5 or ?4 in (2, 3) then lost",
            ),
        ),
        (Promises("upkeep.snooze_resets_lost"),),
    ),
    Mutant(
        "third_loss_without_alone",
        "The third loss in a row kills a job that only happened to be there.",
        (Patch(GATE, "lost >= 2 and (alone or ?8)", "lost >= 2"),),
        (Seeds(),),
    ),
    Mutant(
        "gate_forgets_an_asked_cancel",
        "A cancel that was asked while the job ran is forgotten when it begins anew.",
        (Patch(GATE, "when cancel or ?4 = 5 then 6", "when ?4 = 5 then 6"),),
        (Promises("control.asked_cancel_survives"),),
    ),
    Mutant(
        "prune_takes_live_jobs",
        "Old jobs that still wait go with the old jobs that are over.",
        (
            Patch(
                "stores/sqlite/sql/prune_aged.sql",
                "where state >= 4 and state <> 5 and gone_at <= ?1",
                "where (state >= 4 and state <> 5 and gone_at <= ?1)\n"
                "    or (state in (0, 2) and created_at <= ?1 - 30)",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "prune_before_its_time",
        "A job that is over goes with the next prune, whatever its retention.",
        (
            Patch(
                "stores/sqlite/sql/prune_aged.sql",
                "state <> 5 and gone_at <= ?1",
                "state <> 5 and finished_at <= ?1",
            ),
        ),
        (Promises("retention.a_job_is_kept_for_its_age"),),
    ),
    Mutant(
        "one_retry_too_many",
        "A job of three retries gets four.",
        (
            Patch(
                "model/retry.py",
                "    if retried >= policy.retries:\n        return",
                "    if retried > policy.retries:\n        return",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "no_jitter",
        "Jobs that fail together come back together.",
        (
            Patch(
                "model/retry.py",
                "return whole * share if self.jitter else whole",
                "return whole",
            ),
        ),
        (Seeds(),),
    ),
)
