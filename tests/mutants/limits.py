"""Bugs about limits: keys, numbers by hand, budgets, and what is said about them."""

from tests.mutants.planting import Tests, one_patch

GATES = Tests("tests/unit/app/test_job_limits.py")
RULES = Tests("tests/unit/model/test_gate_rule.py")
RECORDS = Tests("tests/unit/app/test_limit_records.py")
BUDGETS = Tests("tests/unit/app/test_budgets.py")
REASONS = Tests("tests/unit/client/test_explain_limits.py")

RULE, ENQUEUE = "model/gate_rule.py", "client/enqueue.py"
SPENDING = "worker/spending.py"

PLANTED = (
    one_patch(
        "keys_are_ignored",
        "All jobs of a task share one limit, whatever the key.",
        RULE,
        "    return GateSpec(prefix + key, cap",
        "    return GateSpec(prefix, cap",
        GATES,
        RULES,
    ),
    one_patch(
        "missing_key_is_a_key",
        "Jobs without a key share a limit.",
        "model/gate_keys.py",
        "        if value is None:\n            return None\n",
        "        if value is None:\n            value = 'None'\n",
        GATES,
        RULES,
    ),
    one_patch(
        "names_have_no_defaults",
        "A producer by name has no limit if it leaves out the argument of the key.",
        RULE,
        'return values if path.partition(".")[0] in values else self.defaults',
        "return values",
        GATES,
        RULES,
    ),
    one_patch(
        "turns_in_one_line_for_all_priorities",
        "The urgent jobs of a tenant wait behind its others.",
        RULE,
        '{place.priority}/"',
        '5/"',
        GATES,
    ),
    one_patch(
        "turns_are_kept_to_the_end",
        "A tenant has no more jobs running than may be ready.",
        RULE,
        "held_until=START",
        "held_until=ATTEMPT",
        GATES,
        RULES,
    ),
    one_patch(
        "ticks_have_no_limits",
        "The jobs of schedules pass without limits.",
        "client/tick_maker.py",
        "        if builder.has_gates:\n",
        "        if builder.has_gates and job_id is None:\n",
        GATES,
    ),
    one_patch(
        "plans_have_no_limits",
        "The jobs of plans pass without limits.",
        "client/plan_enqueue.py",
        "        if builder.has_gates and node.signature is not None:\n",
        "        if builder.has_gates and node.signature is None:\n",
        GATES,
    ),
    one_patch(
        "by_hand_is_ignored",
        "New gates have the numbers of the code, whatever was set by hand.",
        RULE,
        "    if place.choices and (choice",
        "    if not place.choices and (choice",
        RULES,
        RECORDS,
    ),
    one_patch(
        "code_wins_over_the_hand",
        "A deploy undoes what was set by hand.",
        "client/limit_store.py",
        "        if name not in manual and (old",
        "        if (old",
        RECORDS,
    ),
    one_patch(
        "newest_code_is_for_new_gates_only",
        "A deploy does not change gates that exist.",
        "client/limit_store.py",
        "            await change_gates(store, new.gates, new.choice)\n",
        "            pass\n",
        RECORDS,
    ),
    one_patch(
        "only_a_thousand_gates_change",
        "A change of a limit with more keys is not finished.",
        "client/limit_store.py",
        ".gates[0] >= ROWS_MAX:",
        ".gates[0] > ROWS_MAX:",
        RECORDS,
    ),
    one_patch(
        "leader_does_not_compare",
        "A gate with old numbers keeps them.",
        "maintenance/limit_keeper.py",
        "for limit in await self.read()]",
        "for limit in await self.read() if not limit]",
        RECORDS,
    ),
    one_patch(
        "queues_have_no_limits",
        "What was set for a queue limits nothing.",
        ENQUEUE,
        "        if not self._queue_gates:\n",
        "        if self._queue_gates:\n",
        RECORDS,
    ),
    one_patch(
        "lost_estimate_comes_back",
        "A job whose worker died gets the estimate of that attempt back.",
        SPENDING,
        "    keeps_estimate = attempt.claim.lost > 0",
        "    keeps_estimate = attempt.claim.lost > 9",
        BUDGETS,
    ),
    one_patch(
        "retry_at_once_gets_the_estimate_back",
        "An attempt that follows at once has no estimate reserved.",
        SPENDING,
        "        keeps_estimate = True  # the next",
        "        keeps_estimate = False  # the next",
        BUDGETS,
    ),
    one_patch(
        "failures_spend_nothing",
        "What a failed attempt has spent is not settled.",
        "worker/error_counts.py",
        "            if event.settles:\n",
        "            if event.settles and not event.error_type:\n",
        BUDGETS,
    ),
    one_patch(
        "passed_limit_is_named",
        "`durio why` names a limit that the job has passed, because others wait for it.",
        "client/explain_limits.py",
        "    for name in mine.gates[mine.gates.index(mine.before) :]:\n",
        "    for name in mine.gates:\n",
        REASONS,
    ),
)
