"""Bugs that make `durio why` say too little, too much, or read too many rows."""

from tests.mutants.planting import Promises, Tests, one_patch

WAITING = "client/explain_waiting.py"
EXPLAIN = "client/explain.py"
RULES = Tests("tests/unit/client/test_explain.py")

PLANTED = (
    one_patch(
        "place_in_line_without_priority",
        "Jobs of a higher priority are not counted as before a job.",
        "stores/sqlite/sql/browse.sql",
        "other.queue = mine.queue and other.rank < mine.rank",
        "other.queue = mine.queue and other.rank < 0",
        Promises("browse.the_place_in_line"),
    ),
    one_patch(
        "place_in_line_unbounded",
        "All jobs before a job are counted.",
        "stores/sqlite/sql/browse.sql",
        "      and other.seq < mine.seq\n  where mine.id = :id\n  limit :limit\n",
        "      and other.seq < mine.seq\n  where mine.id = :id\n  limit :limit * 1000\n",
        Promises("browse.the_place_in_line"),
    ),
    one_patch(
        "old_worker_lacks_every_task",
        "A worker of an older release, which lists no tasks, seems to have none.",
        "ports/browse.py",
        "tasks is None or known_as(task, tasks) is not None",
        "known_as(task, tasks or ()) is not None",
        RULES,
    ),
    one_patch(
        "paused_job_is_in_line",
        "A job of a paused queue seems to be the next.",
        WAITING,
        "if not taking or (facts.lane is not None and facts.lane.paused):",
        "if not taking:",
        RULES,
    ),
    one_patch(
        "lost_worker_seems_to_run",
        "A job whose worker is lost seems to run.",
        "client/explain_rules.py",
        "elif worker.lease_seconds_left <= 0:",
        "elif worker.lease_seconds_left < -1e9:",
        RULES,
    ),
    one_patch(
        "why_stops_at_the_nearest_job",
        "A job far behind in a chain does not name the job that holds it.",
        EXPLAIN,
        "    for number in (*direct, *further):",
        "    for number in direct:",
        RULES,
    ),
    one_patch(
        "ended_jobs_of_a_group_count_as_left",
        "Jobs that have ended are counted among those that are waited for.",
        WAITING,
        "left = [each for each in plan.parents if not each.is_ended]",
        "left = [each for each in plan.parents if not each.has_failed]",
        RULES,
    ),
)
