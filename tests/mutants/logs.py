"""Bugs about the logs, waits and records under plans."""

from tests.mutants.planting import Mutant, Patch, Promises, Tests, one_patch

LATE_COMMITS = Tests(
    "tests/e2e/test_postgres_logs.py::test_entries_of_an_older_transaction_that_commits_later"
)

RANDOM = Tests("tests/conformance/test_random_postgres.py")


def on_postgres(promise: str) -> Tests:
    """Return one promise of the conformance suite, on PostgreSQL."""
    return Tests(
        f"tests/conformance/test_postgres.py::test_promise[postgres-{promise}]"
    )


PLANTED = (
    one_patch(
        "running_job_is_cancelled_aloud",
        "A job that runs when it is cancelled quietly appends its failure.",
        "stores/sqlite/job_actions.py",
        "        mark_quiet(tx, job_id, action.reason)\n",
        "        pass\n",
        Promises("on_end."),
    ),
    one_patch(
        "wait_ends_the_delay",
        "A job whose wait is over is ready, although its time has not come.",
        "stores/sqlite/logs.py",
        "due = max(run_at or 0.0, tx.now + delay)",
        "due = min(run_at or 0.0, tx.now + delay)",
        Promises("waits."),
    ),
    one_patch(
        "jobs_finished_together_append_nothing",
        "Jobs with ties that one statement finishes leave no entries.",
        "stores/sqlite/finish.py",
        "return quick | ties.keys(), ended",
        "return quick | ties.keys(), EndedTies([], [])",
        Promises("on_end."),
    ),
    one_patch(
        "version_restarts",
        "A record that is deleted and created again gets an old version.",
        "stores/sqlite/migrations/0003_records.sql",
        "version integer primary key autoincrement",
        "version integer primary key",
        Promises("records."),
    ),
    one_patch(
        "deferred_row_applied_twice",
        "An entry that was deferred is appended two times.",
        "stores/postgres/migrations/0006_log_heads.sql",
        "    from applied as a\n    union all\n",
        "    from applied as a cross join generate_series(1, 2)\n    union all\n",
        Tests("tests/e2e/test_postgres_logs.py"),
    ),
    one_patch(
        "only_the_first_job_of_a_call_waits",
        "Of several blocked jobs that are stored together, one waits and the rest hang.",
        "stores/sqlite/enqueue.py",
        "insert_waits(tx, [job for job in new if job.id in blocked])",
        "insert_waits(tx, [job for job in new if job.id in blocked][:1])",
        Promises("waits."),
    ),
    # --- the same on PostgreSQL
    one_patch(
        "postgres_death_appends_nothing",
        "A job that dies appends no entries to its logs.",
        "stores/postgres/exit.py",
        "        if ties is not None:\n",
        "        if ties is not None and state != DEAD:\n",
        on_postgres("on_end.dead_appends_the_error"),
    ),
    one_patch(
        "postgres_once_is_ignored",
        "A job that is done appends an entry although the log has one of its tag.",
        "stores/postgres/migrations/0003_logs.sql",
        "case when (x.ending ->> 3)::bool then",
        "case when (x.ending ->> 3)::bool and false then",
        on_postgres("on_end.a_log_takes_one_entry_of_a_tag_if_asked"),
    ),
    one_patch(
        "postgres_quiet_is_ignored",
        "A job that is done quietly appends its entries.",
        "stores/postgres/finish.py",
        "        if ties is not None and not outcome.is_quiet:\n",
        "        if ties is not None:\n",
        on_postgres("on_end.a_quiet_end_appends_nothing"),
    ),
    one_patch(
        "postgres_wait_ends_the_delay",
        "A job whose wait is over is ready, although its time has not come.",
        "stores/postgres/migrations/0006_log_heads.sql",
        "greatest(f.run_at, moment + f.delay) as due",
        "least(f.run_at, moment + f.delay) as due",
        on_postgres("waits.a_delay_begins_when_the_wait_ends"),
    ),
    one_patch(
        "postgres_later_waiters_forgotten",
        "When one log has many waiters, those of the next log are not marked.",
        "stores/postgres/migrations/0006_log_heads.sql",
        "    where g.name = any(locked) and (",
        "    where g.name = locked[1] and (",
        on_postgres("waits.nobody_is_left_when_many_wait"),
    ),
    one_patch(
        "postgres_version_restarts",
        "A record that is deleted and created again gets an old version.",
        "stores/postgres/migrations/0002_records.sql",
        "version int8 generated always as identity,",
        "version int8 not null default 1,",
        on_postgres("records.a_version_is_never_used_again"),
    ),
    one_patch(
        "plain_append_lets_nobody_go",
        "An append without ids, deferred rows or an expiry ends no waits.",
        "stores/postgres/migrations/0006_log_heads.sql",
        "  return coalesce(is_over, false);\n",
        "  return false;\n",
        on_postgres("waits.a_job_is_blocked_until_the_log_is_longer"),
    ),
    one_patch(
        "deferred_rows_are_read_from_too_late",
        "Rows of a transaction that commits late are left out of its log.",
        "stores/postgres/migrations/0006_log_heads.sql",
        "select count(*), pg_snapshot_xmin(pg_current_snapshot()) into removed",
        "select count(*), pg_snapshot_xmax(pg_current_snapshot()) into removed",
        LATE_COMMITS,
    ),
    one_patch(
        "trimmed_log_begins_again",
        "A log whose entries are all deleted has the length 0.",
        "stores/postgres/sql/logs.sql",
        "    and g.length <= :before::int8\n",
        "    and g.length < :before::int8 and false\n",
        on_postgres("logs.a_trimmed_log_keeps_its_offsets"),
    ),
    one_patch(
        "wait_in_a_transaction_is_forgotten",
        "A job of a caller's transaction waits on, although its log grew meanwhile.",
        "stores/postgres/sql/logs.sql",
        "  as u (log, tag, ttl, state, job, uid, body, place)\norder by u.place\n",
        "  as u (log, tag, ttl, state, job, uid, body, place)\nwhere u.tag is not null\n",
        Tests("tests/e2e/test_postgres_logs.py"),
    ),
    # --- the order of entries
    Mutant(
        "effects_before_own_entry",
        "A job appends the entries of its effects before its own.",
        (
            Patch(
                "stores/sqlite/finish.py",
                "        settle_ends(tx, ended)\n        return is_taken\n",
                "        from durio.stores.sqlite.logs import write_appends\n"
                "        if is_taken:\n"
                "            write_appends(tx, outcome.effects.appends)\n"
                "        settle_ends(tx, ended)\n        return is_taken\n",
            ),
            Patch(
                "stores/sqlite/finish.py",
                "outcome.effects._replace(extends=(), gates=())",
                "outcome.effects._replace(extends=(), gates=(), appends=())",
            ),
        ),
        (Promises("on_end.the_own_entry"),),
    ),
    one_patch(
        "deferred_rows_in_reverse",
        "Entries that were deferred are appended from the last to the first.",
        "stores/postgres/migrations/0006_log_heads.sql",
        "row_number() over (order by a.xid, a.seq) as place",
        "row_number() over (order by a.xid desc, a.seq desc) as place",
        RANDOM,
    ),
    one_patch(
        "settle_lets_nobody_go",
        "Jobs whose wait a deferred entry has ended are blocked for ever.",
        "stores/postgres/migrations/0003_logs.sql",
        "end_waits_1(held.locked, room, now_)",
        "end_waits_1('{}', room, now_)",
        RANDOM,
    ),
)
