"""The whole suite, chapter by chapter."""

from durio.testing.conformance import (
    browse,
    control,
    enqueue,
    exchange,
    finish,
    freed_keys,
    keys,
    lease,
    retention,
    store,
    upkeep,
)
from durio.testing.conformance.promises import Promise

CHAPTERS = (
    enqueue.chapter,
    keys.chapter,
    freed_keys.chapter,
    exchange.chapter,
    finish.chapter,
    lease.chapter,
    upkeep.chapter,
    retention.chapter,
    control.chapter,
    browse.chapter,
    store.chapter,
)
SUITE: tuple[Promise, ...] = tuple(
    promise for chapter in CHAPTERS for promise in chapter.promises
)
