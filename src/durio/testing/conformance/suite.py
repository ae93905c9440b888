"""The whole suite, chapter by chapter."""

from durio.testing.conformance import (
    bounds,
    browse,
    bulk,
    control,
    declared_bounds,
    enqueue,
    exchange,
    finish,
    freed_keys,
    guilt,
    hands,
    keys,
    lease,
    live,
    orders,
    retention,
    store,
    transactions,
    upkeep,
)
from durio.testing.conformance.promises import Promise

CHAPTERS = (
    enqueue.chapter,
    keys.chapter,
    freed_keys.chapter,
    exchange.chapter,
    finish.chapter,
    guilt.chapter,
    lease.chapter,
    upkeep.chapter,
    retention.chapter,
    control.chapter,
    hands.chapter,
    bulk.chapter,
    orders.chapter,
    browse.chapter,
    live.chapter,
    store.chapter,
    bounds.chapter,
    declared_bounds.chapter,
    transactions.chapter,
)
SUITE: tuple[Promise, ...] = tuple(
    promise for chapter in CHAPTERS for promise in chapter.promises
)
