"""The whole suite, chapter by chapter."""

from tests.conformance import (
    bounds,
    browse,
    bulk,
    commit,
    control,
    crashed_children,
    declared_bounds,
    enqueue,
    exchange,
    freed_keys,
    job_actions,
    keys,
    lease,
    live,
    many_jobs,
    outcomes,
    records,
    renames,
    retention,
    store,
    transactions,
    upkeep,
    worker_commands,
)
from tests.conformance.promises import Promise

CHAPTERS = (
    enqueue.chapter,
    keys.chapter,
    freed_keys.chapter,
    exchange.chapter,
    many_jobs.chapter,
    outcomes.chapter,
    crashed_children.chapter,
    lease.chapter,
    upkeep.chapter,
    retention.chapter,
    control.chapter,
    job_actions.chapter,
    renames.chapter,
    bulk.chapter,
    worker_commands.chapter,
    browse.chapter,
    records.chapter,
    commit.chapter,
    live.chapter,
    store.chapter,
    bounds.chapter,
    declared_bounds.chapter,
    transactions.chapter,
)
SUITE: tuple[Promise, ...] = tuple(
    promise for chapter in CHAPTERS for promise in chapter.promises
)
