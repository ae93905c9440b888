"""Bugs about plans, and about the logs, waits and records under them."""

from tests.mutants.planting import Killer, Mutant, Patch, Promises, Seeds, Tests

LAYOUT = Tests("tests/plans/test_layout.py")
RECOVERY = Tests("tests/plans/test_recovery.py")
LEADERS = Tests("tests/plans/test_leaders.py")


def planted(
    name: str, wrong: str, file: str, old: str, new: str, *killers: Killer
) -> Mutant:
    """Return a mutant of one patch."""
    return Mutant(name, wrong, (Patch(file, old, new),), killers)


PLANTED = (
    planted(
        "callback_before_the_last_member",
        "What follows a group waits for all its members but one.",
        "model/plan_layout.py",
        "Before(Wait(log, count - 1), Input(kind, log, count))",
        "Before(Wait(log, max(0, count - 2)), Input(kind, log, count))",
        Seeds(30),
    ),
    planted(
        "results_in_order_of_arrival",
        "What follows a group gets the results in the order of the ends.",
        "worker/plan_inputs.py",
        "[tagged[tag] for tag in range(members)]",
        "list(tagged.values())[:members]",
        Seeds(30),
    ),
    planted(
        "immutable_gets_an_input",
        "A node that is immutable gets the result before it.",
        "model/plan_layout.py",
        "None if is_immutable else before.input",
        "before.input",
        LAYOUT,
    ),
    planted(
        "inner_group_is_one_member",
        "A group inside a group is not unrolled.",
        "model/plan_layout.py",
        "    return not (link.is_collected or link.cancels_rest)\n",
        "    return False\n",
        LAYOUT,
    ),
    planted(
        "dependents_go_on_waiting",
        "What depends on a failed node is not cancelled.",
        "maintenance/plans.py",
        "self._cancel_dependents(plan, dependents(plan.layout, node))",
        "self._cancel_dependents(plan, [])",
        Seeds(30),
    ),
    planted(
        "only_the_next_is_cancelled",
        "What waits for a failed node through others is not cancelled.",
        "model/plan_failure.py",
        "                waiting += new\n",
        "",
        Seeds(30),
    ),
    planted(
        "rest_of_the_group_runs",
        "A group with cancel_rest lets its other members run.",
        "model/plan_failure.py",
        "if layout.scopes[scope].plan.cancels_rest:",
        "if layout.scopes[scope].plan.is_collected:",
        RECOVERY,
    ),
    planted(
        "collect_fails_the_plan",
        "A failure in a group that collects fails the plan.",
        "model/plan_failure.py",
        "return not any(scope.plan.is_collected for scope in scopes)",
        "return not [scope.plan.is_collected for scope in scopes][:0]",
        Seeds(30),
    ),
    planted(
        "join_fails_in_its_own_group",
        "A group that collects also collects the failure of its join.",
        "model/plan_layout.py",
        "scope = outside[0] if link.is_collected else self._scope",
        "scope = self._scope",
        RECOVERY,
    ),
    planted(
        "handler_for_each_failure",
        "The handler of a group runs once for each member that fails.",
        "model/plan_failure.py",
        'HandlerCall(handler, f"s{scope}", position, depth)',
        'HandlerCall(handler, f"s{scope}/{number}", position, depth)',
        LAYOUT,
    ),
    planted(
        "handler_once_for_ever",
        "A handler does not run again when a resumed plan fails again.",
        "maintenance/plans.py",
        "handler_id(plan.id, call, plan.record.resumed)",
        "handler_id(plan.id, call)",
        RECOVERY,
    ),
    planted(
        "handlers_are_forgotten",
        "The leader marks a plan as failed and enqueues no handler.",
        "maintenance/plans.py",
        "        calls = handlers(plan.layout, node)\n",
        "        calls = handlers(plan.layout, node)[:0]\n",
        Seeds(30),
    ),
    planted(
        "failure_is_skipped_after_a_conflict",
        "A leader whose plan was changed meanwhile goes on with the next failure.",
        "maintenance/plans.py",
        "                if await self._fail(job, entry.tag, short_failure(entry.body)):\n",
        "                await self._fail(job, entry.tag, short_failure(entry.body))\n"
        "                if job:\n",
        LEADERS,
    ),
    planted(
        "late_leader_cancels_a_resumed_plan",
        "A leader cancels nodes without a look at the record.",
        "maintenance/plans.py",
        "await self.store.act(some, action, effects=same)",
        "await self.store.act(some, action)",
        LEADERS,
    ),
    planted(
        "cancel_is_not_finished",
        "A cancel whose caller died stays half-way.",
        "ports/plan_sweep.py",
        "due = put._replace(due_at=now + LOOK_SECONDS)",
        "due = put",
        RECOVERY,
    ),
    planted(
        "retry_leaves_what_was_cancelled",
        "The retry of a plan runs dead nodes only.",
        "client/plan_record.py",
        "[n for n in [*cancelled[::-1], *dead] if n not in collected]",
        "[n for n in dead if n not in collected]",
        RECOVERY,
    ),
    planted(
        "one_retried_job_resumes_the_plan",
        "A plan runs again although another job of it is dead.",
        "client/plan_record.py",
        "is_resumed = plan.record.state is PlanState.FAILED and not left",
        "is_resumed = plan.record.state is PlanState.FAILED",
        RECOVERY,
    ),
    planted(
        "large_plan_starts_before_it_is_whole",
        "The first nodes of a large plan wait for nothing.",
        "model/plan_layout.py",
        "n if n.wait is not None else n._replace(wait=wait)",
        "n if n.wait is not wait else n",
        Tests("tests/unit/model/test_plan_layout.py"),
    ),
    planted(
        "own_write_is_refused",
        "A plan whose reply was lost is reported as not stored when it has begun.",
        "client/plan_enqueue.py",
        'return is_first or stored.is_whole is load_record(put.body or b"").is_whole',
        "return is_first and conflict.record.body == effects.puts[0].body",
        RECOVERY,
    ),
    # --- under plans
    planted(
        "wait_ends_the_delay",
        "A job whose wait is over is ready, although its time has not come.",
        "stores/sqlite/logs.py",
        "due = max(run_at or 0.0, tx.now + delay)",
        "due = min(run_at or 0.0, tx.now + delay)",
        Promises("waits."),
    ),
    planted(
        "jobs_finished_together_append_nothing",
        "Jobs with ties that one statement finishes leave no entries.",
        "stores/sqlite/finish.py",
        "return quick | ties.keys(), ended",
        "return quick | ties.keys(), []",
        Promises("on_end."),
    ),
    planted(
        "version_restarts",
        "A record that is deleted and created again gets an old version.",
        "stores/sqlite/migrations/0003_records.sql",
        "version integer primary key autoincrement",
        "version integer primary key",
        Promises("records."),
    ),
    planted(
        "deferred_row_applied_twice",
        "An entry that was deferred is appended two times.",
        "stores/postgres/migrations/0003_logs.sql",
        "    from applied as a\n    union all\n",
        "    from applied as a cross join generate_series(1, 2)\n    union all\n",
        Tests("tests/e2e/test_postgres_logs.py"),
    ),
)
