"""Bugs about the rules of plans: what nodes get and give, failures, results, keys."""

from tests.mutants.planting import Promises, Seeds, Tests, one_patch

LAYOUT = Tests("tests/plans/test_layout.py")
HANDLED = "tests/unit/client/test_plan_job.py"
HANDLES = Tests(HANDLED)
GATED = Tests("tests/unit/app/test_gated_bursts.py")
RULES = Tests("tests/unit/client/test_plan_rules.py")
HALF = Tests("tests/unit/client/test_half_a_plan.py")
HANDLED_INSIDE = Tests("tests/unit/client/test_plan_handles.py")
KEYS = Tests("tests/unit/client/test_plan_key.py")
LAID_OUT = Tests("tests/unit/model/test_plan_layout.py")
KEPT = Tests("tests/unit/model/test_plan_change.py")
LONG_RESULT = Tests(
    "tests/plans/test_recovery.py::test_long_result_inside_is_kept_for_the_plan_outside"
)
STORED = Tests("tests/bad_input/test_stored_plans.py")

PLANTED = (
    # --- what a node gets
    one_patch(
        "arguments_go_to_one_member",
        "Arguments of plan.enqueue() go to the first member of a first group only.",
        "model/plan_arguments.py",
        "    members = [_given(member, args, kwargs) for member in link.members]\n",
        "    members = [_given(member, args, kwargs) for member in link.members[:1]]\n"
        "    members += link.members[1:]\n",
        Tests("tests/unit/model/test_plan.py"),
    ),
    one_patch(
        "result_is_the_last_argument",
        "A node gets the result before it behind its own arguments.",
        "model/plan_payload.py",
        "[msgspec.Raw(value), *args]",
        "[*args, msgspec.Raw(value)]",
        Tests("tests/unit/model/test_plan_storage.py"),
    ),
    # --- the value of a plan
    one_patch(
        "chain_gives_its_first_result",
        "The value of a chain is the result of its first node.",
        "ports/plan_reader.py",
        "return node_id(self.id, len(self.layout.nodes) - 1)",
        "return node_id(self.id, 0)",
        HANDLES,
    ),
    one_patch(
        "chain_that_ends_in_a_group_is_unrolled",
        "A chain of one group gives its members to the group around it.",
        "model/plan_layout.py",
        '    if isinstance(link, SignatureValue) or link.kind == "chain":\n',
        "    if isinstance(link, SignatureValue) or (\n"
        '        link.kind == "chain" and len(link.members) > 1\n'
        "    ):\n",
        LAYOUT,
    ),
    one_patch(
        "empty_group_gives_null",
        "What follows an empty group gets None.",
        "worker/plan_inputs.py",
        '            return b"[]"\n',
        '            return b"null"\n',
        HANDLES,
    ),
    one_patch(
        "empty_group_never_ends",
        "What follows an empty group waits for ever.",
        "model/plan_layout.py",
        "Before(before.wait, Input(kind, None, 0))",
        "Before(Wait(log, 0), Input(kind, None, 0))",
        LAYOUT,
    ),
    one_patch(
        "group_of_one_gives_its_member",
        "The value of a group of one is the result of its member, not a list.",
        "worker/plan_inputs.py",
        '        if kind == "one":\n',
        '        if kind == "one" or members == 1:\n',
        Seeds(30),
    ),
    # --- failures
    one_patch(
        "retried_attempt_fails_the_plan",
        "A failed attempt that is retried counts as the failure of its node.",
        "stores/sqlite/exit.py",
        "    if state <= READY:\n",
        "    if state <= READY and ties is not None and outcome.kind == OutcomeKind.RETRY:\n"
        "        append_ends(tx, (EndedJob(outcome.id, DEAD, ties, None),))\n"
        "    if state <= READY:\n",
        Promises("on_end."),
    ),
    one_patch(
        "every_group_cancels_its_rest",
        "Members of a group do not go on when one of them fails.",
        "model/plan_failure.py",
        "if layout.scopes[scope].plan.cancels_rest:",
        'if layout.scopes[scope].plan.kind == "group":',
        LAYOUT,
    ),
    one_patch(
        "handlers_begin_outside",
        "The handler of a plan starts before those of the plans in it.",
        "model/plan_failure.py",
        "(NESTING_MAX + 1 - call.depth) * HANDLERS_MAX",
        "call.depth * HANDLERS_MAX",
        LAID_OUT,
    ),
    one_patch(
        "plan_fails_twice",
        "A second failure changes the error of a plan that has failed.",
        "maintenance/plans.py",
        "        if fails and state is PlanState.RUNNING:\n",
        "        if fails and state is not PlanState.FAILING:\n",
        Seeds(30),
    ),
    one_patch(
        "collected_failure_is_ok",
        "A group that collects gives an Ok for a member that has failed.",
        "worker/plan_inputs.py",
        "    if entry.state == DONE:\n",
        "    if entry.state is not None:\n",
        Seeds(30),
    ),
    one_patch(
        "cancelled_node_fails_nothing",
        "A node that is cancelled by hand does not fail its plan.",
        "model/plan_layout.py",
        "failed = OnEnd(self._failures, FAILED_END, number)",
        "failed = OnEnd(self._failures, FAILED_END & 2, number)",
        Tests("tests/unit/client/test_plan_retry.py"),
    ),
    one_patch(
        "cancelled_plan_runs_handlers",
        "A failure that the leader sees after the cancel of its plan runs handlers.",
        "maintenance/plans.py",
        "ENDED_BY_HAND = (PlanState.CANCELLING, PlanState.CANCELLED)",
        "ENDED_BY_HAND = ()",
        Tests("tests/plans/test_leaders.py"),
    ),
    # --- cancel and retry
    one_patch(
        "cancel_leaves_the_first_node",
        "The cancel of a plan leaves its first node as it is.",
        "ports/plan_sweep.py",
        "ids = plan.ids(plan.numbers)[::-1]",
        "ids = plan.ids(plan.numbers)[:0:-1]",
        HANDLES,
    ),
    one_patch(
        "plan_that_runs_is_retried",
        "A plan that has not ended can be retried.",
        "client/plan_actions.py",
        "    if state not in RETRIED:\n",
        "    if state is PlanState.DONE:\n",
        STORED,
    ),
    # --- results between nodes
    one_patch(
        "long_result_is_deleted_early",
        "The record with a long result has the retention of its task.",
        "model/plan_kept.py",
        "    if len(result) <= ENTRY_BODY_MAX and not is_short:\n",
        "    if not is_short:\n",
        LONG_RESULT,
    ),
    one_patch(
        "last_node_is_deleted_early",
        "A node whose task keeps nothing is deleted before its plan ends.",
        "model/plan_kept.py",
        "is_short = seconds < SHORT_SECONDS or count is not None",
        "is_short = count is not None",
        KEPT,
    ),
    one_patch(
        "records_are_kept_for_a_year",
        "Records that a plan needed do not get their own retention at its end.",
        "maintenance/plan_deletion.py",
        "                await store.keep_done(ids, keep)\n",
        "                del keep, ids\n",
        LONG_RESULT,
    ),
    one_patch(
        "input_ends_with_its_result_ttl",
        "A long result is an input only while its result TTL lasts.",
        "worker/plan_inputs.py",
        "                if job.result is not None:\n",
        "                if job.result is not None and job.result_until is None:\n",
        RULES,
    ),
    one_patch(
        "input_without_a_bound",
        "The results before one node may have any size.",
        "worker/plan_inputs.py",
        "            raise InputTooLarge\n",
        "            pass\n",
        HANDLES,
    ),
    # --- keys
    one_patch(
        "node_shares_a_key",
        "A plan is stored although another job has the key of a node.",
        "client/plan_commits.py",
        "self._store.commit(effects, all_new=True)",
        "self._store.commit(effects)",
        KEYS,
    ),
    one_patch(
        "key_for_other_arguments",
        "A plan with other arguments gets the plan that has the key of a window.",
        "client/plan_key.py",
        " and holder.digest != self.digest:",
        " and not holder.digest:",
        KEYS,
    ),
    one_patch(
        "ended_plan_keeps_its_key",
        "A key that is held while its plan is active is held after the end.",
        "client/plan_key.py",
        "        return plan is not None and not (await current_state(store, plan)).is_final\n",
        "        return plan is not None\n",
        KEYS,
    ),
    one_patch(
        "outside_replace_starts_a_node",
        "A job with unique=replace ends the wait of the node whose arguments it changes.",
        "stores/sqlite/enqueue.py",
        "    if ties is not None and (ties.wait is not None or ties.on_end):\n",
        "    if ties is not None and not held.id:\n",
        Promises("waits."),
    ),
    # --- a plan is stored whole
    one_patch(
        "half_a_plan_stays",
        "Jobs of a plan whose writer died are not deleted.",
        "maintenance/plan_deletion.py",
        "        if plan.record.state is PlanState.RUNNING:\n",
        "        if plan.record.state is PlanState.FAILED:\n",
        HANDLES,
    ),
    one_patch(
        "half_a_plan_starts_without_its_jobs",
        "The last commit of a plan is accepted after the leader has deleted its jobs.",
        "maintenance/plan_deletion.py",
        "    found = await marked(store, [plan])\n",
        "    found = [plan]\n",
        HALF,
    ),
    one_patch(
        "half_a_plan_leaves_cancelled_jobs",
        "Jobs of a plan whose writer died are cancelled, and stay for days.",
        "maintenance/plan_deletion.py",
        "DiscardJobs(with_cancelled=True)",
        "DiscardJobs()",
        HALF,
    ),
    one_patch(
        "replace_on_a_node",
        "A node may replace the arguments of another plan's node.",
        "model/plan_checks.py",
        "check_unique(options.unique).mode == REPLACE:",
        "check_unique(options.unique).mode == -1:",
        Tests("tests/bad_input/test_plans.py"),
    ),
    one_patch(
        "refused_plan_refuses_others",
        "Plans that are stored together are all refused if one of them is.",
        "client/plan_commits.py",
        "        if answer.conflict is not None and len(batch) > 1:\n",
        "        if answer.conflict is not None and not batch:\n",
        STORED,
    ),
    # --- tasks and their plans
    one_patch(
        "task_waits_for_a_plan",
        "A task may wait for a plan that runs, and keeps its slot.",
        "client/plan_job.py",
        "        if in_job.get() is None:\n            return\n        plan =",
        "        if in_job.get() is None or self.id:\n            return\n        plan =",
        Tests(f"{HANDLED}::test_a_task_waits_for_no_plan_that_runs"),
    ),
    one_patch(
        "task_waits_for_a_job",
        "The result of a job that has not ended is None inside a task.",
        "client/handle.py",
        "        if stored.state < DONE:\n            raise UsageError(\n",
        "        if stored.state < 0:\n            raise UsageError(\n",
        Tests("tests/unit/app/test_waiting.py"),
    ),
    one_patch(
        "value_of_a_plan_inside_is_refused",
        "A task cannot read the value of a plan in the place of a job, which has ended.",
        "client/handle.py",
        "        if stored.state < DONE:\n            raise UsageError(\n",
        "        if stored.state < DONE or replacing_plan(stored.result):\n"
        "            raise UsageError(\n",
        HANDLED_INSIDE,
    ),
    one_patch(
        "replacement_that_is_not_returned",
        "A task may call ctx.replace() and return another value, which is lost.",
        "worker/attempt_plan.py",
        "        if self._replacement is not None and value is not self._replacement:\n",
        "        if self._replacement is not None and value is self:\n",
        Tests("tests/bad_input/test_plan_changes.py"),
    ),
    # --- chunks
    one_patch(
        "chunk_makes_its_first_call",
        "A job of a chunk makes one of its calls.",
        "worker/handler_call.py",
        "for call in calls]\n",
        "for call in calls[:1]]\n",
        RULES,
    ),
    one_patch(
        "chunk_gives_its_first_result",
        "A job of a chunk gives the result of its first call.",
        "worker/handler_call.py",
        "    return results if attempt.is_chunk else results[0]\n",
        "    return results[0]\n",
        RULES,
    ),
    one_patch(
        "chunk_changes_its_plan",
        "A call of a chunk may put a plan in the place of all of them.",
        "worker/inflight.py",
        "        if self.is_chunk:\n            raise UsageError(\n",
        "        if self.is_chunk and not self.is_node:\n            raise UsageError(\n",
        Tests("tests/bad_input/test_plan_changes.py"),
    ),
    # --- the end of a burst
    one_patch(
        "burst_ends_before_plans",
        "A burst ends when no job is ready, before a failure is handled.",
        "worker/burst_end.py",
        "        if await self._has_plans():\n",
        "        if self._has_reported and await self._has_plans():\n",
        RULES,
    ),
    one_patch(
        "burst_ends_before_gates",
        "A burst ends although jobs stand before gates.",
        "worker/burst_end.py",
        '        return "gates" if waits else "nothing"\n',
        '        return "nothing"\n',
        GATED,
    ),
    one_patch(
        "burst_waits_for_gates_of_others",
        "A burst waits for jobs before gates in queues that it does not serve.",
        "worker/burst_end.py",
        "if row.before_gates and not row.paused and self._serves(row.name)\n",
        "if row.before_gates\n",
        GATED,
    ),
    one_patch(
        "drained_before_gates",
        "`drained()` returns although jobs stand before gates.",
        "app/embed.py",
        "            row.jobs(READY, RUNNING) or row.before_gates\n",
        "            row.jobs(READY, RUNNING)\n",
        GATED,
    ),
    one_patch(
        "box_forgets_gates",
        "`box.drain(until=...)` runs no job whose gate opens within that time.",
        "testing/box.py",
        "            times.append(await next_gate(self._store, self.clock.now()))\n",
        "",
        GATED,
    ),
    one_patch(
        "settle_after_the_gate",
        "A worker that waits for a gate does not settle what is left meanwhile.",
        "worker/settler.py",
        "            if self._due_at <= due_at:\n",
        "            if self._due_at:\n",
        GATED,
    ),
)
