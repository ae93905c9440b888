"""Bugs about batches: outcomes of the wrong job, and slots that are lost or given twice."""

from tests.mutants.planting import Mutant, Patch, Tests, one_patch

JOBS = Tests("tests/unit/app/test_batches.py")
FAULTS = Tests("tests/unit/worker/test_batch_faults.py")
RUNNER, BATCHES = "worker/batch_runner.py", "worker/batches.py"
CALL, SLOTS = "worker/batch_call.py", "worker/slots.py"

PLANTED = (
    one_patch(
        "results_of_the_wrong_items",
        "A job gets the result of another item.",
        RUNNER,
        "        pairs = zip(items, ends, strict=True)\n",
        "        pairs = zip(items, ends[::-1], strict=True)\n",
        JOBS,
    ),
    one_patch(
        "retry_of_one_retries_all",
        "One item that fails is the failure of the whole call.",
        RUNNER,
        "        pairs = zip(items, ends, strict=True)\n",
        "        if failed := [e for e in map(error_of, ends) if e is not None]:\n"
        "            return self._all_failed(items, failed[0])\n"
        "        pairs = zip(items, ends, strict=True)\n",
        JOBS,
    ),
    Mutant(
        "missing_results_are_none",
        "A call that returns too few results is not noticed.",
        (
            Patch("model/batch.py", "if len(ends) != count:", "if len(ends) > count:"),
            Patch(
                RUNNER,
                "        pairs = zip(items, ends, strict=True)\n",
                "        pairs = zip(items, (*ends, None, None, None))\n",
            ),
        ),
        (JOBS,),
    ),
    one_patch(
        "cancelled_item_is_done",
        "The result of an item whose cancel was requested counts.",
        RUNNER,
        "        if item.interrupt_reason is InterruptReason.CANCEL:\n",
        "        if False:\n",
        JOBS,
    ),
    one_patch(
        "cancel_of_one_cancels_all",
        "A cancel of one item ends the call of all.",
        CALL,
        "        if reason is InterruptReason.CANCEL and not self._is_cancelled:\n",
        "        if False:\n",
        JOBS,
    ),
    one_patch(
        "time_limit_ends_one_item",
        "The other jobs of a call that has no time left run on.",
        SLOTS,
        "for each in attempt.together]",
        "for each in (attempt,)]",
        JOBS,
    ),
    one_patch(
        "time_limit_of_a_job_is_ignored",
        "A job's own time limit does not count in a batch.",
        CALL,
        "limits = [item.own_limits for item in items]",
        "limits = [item.handler.limits for item in items]",
        JOBS,
    ),
    one_patch(
        "last_chance_in_a_batch",
        "A job that has lost two workers takes other jobs with it.",
        SLOTS,
        "is_alone=claim is self._alone",
        "is_alone=False",
        JOBS,
    ),
    one_patch(
        "slots_are_given_twice",
        "A job that joined a batch leaves a slot behind when it ends.",
        BATCHES,
        "            self._slots.capacity -= 1\n",
        "            pass\n",
        JOBS,
    ),
    one_patch(
        "slots_of_a_queue_are_given_twice",
        "A batch frees a slot of its queue for each of its jobs.",
        BATCHES,
        "                self._quotas.starts(item.claim)\n",
        "                pass\n",
        JOBS,
    ),
    one_patch(
        "batch_is_never_full",
        "A batch takes as many jobs as there are.",
        BATCHES,
        "        if is_alone or len(batch.items) >= rule.size:\n",
        "        if is_alone:\n",
        JOBS,
    ),
    one_patch(
        "batch_waits_too_long",
        "A batch that is not full begins too late.",
        BATCHES,
        "self._loop.call_later(rule.wait_seconds, self._begin, batch)",
        "self._loop.call_later(2 * rule.wait_seconds, self._begin, batch)",
        JOBS,
    ),
    one_patch(
        "batch_is_not_filled",
        "A worker with few slots makes small calls.",
        "worker/claim_request.py",
        "        if room > 0 and not resync and",
        "        if False and",
        JOBS,
    ),
    one_patch(
        "batch_claims_other_jobs",
        "A batch that is gathered reserves jobs that cannot join it.",
        BATCHES,
        "return Fill(asked, want, sorted({task for task, _ in self.open}))",
        "return Fill(asked, want, None)",
        JOBS,
    ),
    one_patch(
        "gathered_jobs_stay",
        "A worker keeps jobs of a queue that was paused.",
        BATCHES,
        "            if lanes is None or lane in lanes:\n",
        "            if lanes is None:\n",
        JOBS,
    ),
    one_patch(
        "two_queues_in_one_call",
        "Jobs of another queue join a batch.",
        BATCHES,
        "        place = (claim.task, claim.lane)\n        found",
        "        place = (claim.task, '')\n        found",
        JOBS,
    ),
    one_patch(
        "result_of_an_item_is_not_checked",
        "A result that does not fit its annotation is stored.",
        RUNNER,
        "        return self._returned(item, value_of(end))\n",
        "        from durio.model.codec import encode\n"
        "        return self._done(item, encode(value_of(end), 'result'))\n",
        JOBS,
    ),
    one_patch(
        "slow_search_goes_on",
        "A batch searches a long queue again and again.",
        BATCHES,
        "        if count < want and seconds > SLOW_FILL_SECONDS:\n",
        "        if False:\n",
        FAULTS,
    ),
    one_patch(
        "slots_of_a_lost_lease",
        "A worker that lost its lease keeps the slots of its batches.",
        SLOTS,
        "        self.capacity = self.concurrency\n",
        "        pass\n",
        FAULTS,
    ),
    one_patch(
        "gathering_keeps_a_blocked_worker",
        "A worker whose loop is blocked while it gathers a batch never ends itself.",
        "worker/watchdog.py",
        " if a.has_begun]\n",
        "]\n",
        Tests("tests/simulation/test_blocked_loops.py"),
    ),
    one_patch(
        "block_before_a_call_extends_its_limit",
        "A block while a batch is gathered is added to the hard limit of its call.",
        CALL,
        "self.started, self.excused_seconds, self.has_begun = now, 0.0, True",
        "self.started, self.has_begun = now, True",
        Tests("tests/unit/worker/test_blocked.py"),
    ),
)
