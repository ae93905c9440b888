"""Bugs about bounded queues."""

from tests.mutants.planting import Mutant, Patch, Promises, Seeds, Tests

BOUNDS = "stores/sqlite/bounds.py"

PLANTED = (
    Mutant(
        "bound_off_by_one",
        "A queue bounded to five jobs accepts six.",
        (
            Patch(
                BOUNDS,
                "guard.depth + jobs <= guard.limit",
                "guard.depth + jobs <= guard.limit + 1",
            ),
        ),
        (Promises("bounds.a_bound_is_exact"),),
    ),
    Mutant(
        "counter_leaks_by_one",
        "Each batch of claims is counted as one job fewer than it took.",
        (
            Patch(
                "stores/sqlite/exchange.py",
                "subtract_from_depth(tx, lane, len(some))",
                "subtract_from_depth(tx, lane, len(some) - 1)",
            ),
        ),
        (Seeds(),),
    ),
    Mutant(
        "bound_ignored_for_a_batch",
        "A batch is accepted where there is room for one job.",
        (
            Patch(
                BOUNDS,
                "    full = refusal_of(tx, lane, jobs)",
                "    full = refusal_of(tx, lane, min(jobs, 1))",
            ),
            Patch(
                BOUNDS,
                "refusal_of(tx, lane, count)",
                "refusal_of(tx, lane, min(count, 1))",
            ),
        ),
        (Promises("bounds.a_call_enters_whole_or_not_at_all"),),
    ),
    Mutant(
        "one_job_enters_a_full_queue",
        "On PostgreSQL one job enters a queue that another process has bounded.",
        (
            Patch(
                "stores/postgres/sql/enqueue.sql",
                "    where q.name = :lane::text\n",
                "    where q.name = :lane::text and false\n",
            ),
        ),
        (Tests("tests/unit/stores/test_postgres_enqueue.py"),),
    ),
    Mutant(
        "one_job_stored_after_its_repeat",
        "On PostgreSQL a late first try stores a job whose repeat has already run.",
        (
            Patch(
                "stores/postgres/sql/enqueue.sql",
                "{came_second}(array[:id::uuid])",
                "false",
            ),
        ),
        (Tests("tests/e2e/test_postgres_late_tries.py"),),
    ),
)
