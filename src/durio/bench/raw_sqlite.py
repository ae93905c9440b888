"""The bare driver on SQLite: the same rows in the same table and indexes, without Durio.

A loop around apsw shows the most that this disk allows; the engine is compared with it.
It inserts, claims and finishes rows in batches, in the store's own schema and with its
settings. One transaction finishes a batch and claims the next. The statements are the
simplest ones with the same fences.
"""

from pathlib import Path
from typing import Any, NamedTuple

import apsw

from durio.host.clock import HostClock
from durio.stores.sqlite.schema import SETTINGS, migrations

BATCH = 200
CHECKPOINT_PAGES = 4000
LANE, TASK = "bench:default", "bench.nothing"
WORKER = 1
RANK, READY = 4, 2
RESULT_SECONDS, KEPT_SECONDS = 3600.0, 7 * 86400.0

INSERT = """
insert into job (id, queue, rank, state, task, payload, created_at)
values (?, ?, ?, ?, ?, ?, ?) on conflict (id) do nothing returning id
"""
CLAIM = """
update job set state = 3, worker = ?1, claim_no = claim_no + 1, started_at = ?4
where seq in (
  select seq from job where state = 2 and queue = ?2 order by rank, seq limit ?3
)
returning id, claim_no, task, payload
"""
FINISH = """
update job set state = 4, worker = null, finished_at = ?4, result = ?5,
  result_until = ?6, gone_at = ?7
where id = ?1 and claim_no = ?2 and worker = ?3 and state = 3 returning id
"""


class RawRates(NamedTuple):
    """Jobs per second."""

    cycle: float  # inserted, claimed and finished
    drain: float  # claimed and finished


def measure_raw_sqlite(path: Path, jobs: int, synchronous: str) -> RawRates:
    """Measure one pass on a new file."""
    clock = HostClock()
    loop = RawSqliteLoop(path, synchronous, clock)
    began = clock.monotonic()
    loop.insert(jobs)
    inserted = clock.monotonic()
    finished = loop.drain()
    ended = clock.monotonic()
    loop.db.close()
    if finished != jobs:
        raise AssertionError(f"the bare driver finished {finished} of {jobs} jobs")
    return RawRates(jobs / (ended - began), jobs / (ended - inserted))


class RawSqliteLoop:
    """The shortest program that does the same work on the same table as the store."""

    def __init__(self, path: Path, synchronous: str, clock: HostClock) -> None:
        self.clock = clock
        self.pages = 0
        # apsw does not type its rows.
        self.db: Any = apsw.Connection(str(path), statementcachesize=128)
        # auto_vacuum comes before journal_mode, after which SQLite ignores it without an
        # error.
        first = ("auto_vacuum=incremental", "journal_mode=wal")
        for pragma in (*first, *SETTINGS, f"synchronous={synchronous}"):
            self.db.execute(f"pragma {pragma}").fetchall()
        for step in migrations():
            self.db.execute(step.text)
        self.db.set_wal_hook(self.note_pages)  # also switches automatic checkpoints off

    def note_pages(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self.pages = pages
        return apsw.SQLITE_OK

    def insert(self, jobs: int) -> None:
        for start in range(0, jobs, BATCH):
            now = self.clock.now()
            rows = [self.row(n, now) for n in range(start, min(start + BATCH, jobs))]
            self.db.execute("begin immediate")
            self.db.executemany(INSERT, rows).fetchall()
            self.commit()

    def row(self, number: int, now: float) -> tuple[Any, ...]:
        payload = b"[[%d],{}]" % number
        return (self.clock.new_id(), LANE, RANK, READY, TASK, payload, now)

    def drain(self) -> int:
        """Finish a batch and claim the next until no job is left; return the count."""
        claimed: list[tuple[Any, ...]] = []
        finished = 0
        while True:
            now = self.clock.now()
            self.db.execute("begin immediate")
            kept = (now + RESULT_SECONDS, now + KEPT_SECONDS)
            rows = [(row[0], row[1], WORKER, now, b"0", *kept) for row in claimed]
            finished += len(self.db.executemany(FINISH, rows).fetchall())
            claimed = self.db.execute(CLAIM, (WORKER, LANE, BATCH, now)).fetchall()
            self.commit()
            if not claimed:
                return finished

    def commit(self) -> None:
        """Commit; checkpoint a long write-ahead log, as the store does."""
        self.db.execute("commit")
        if self.pages > CHECKPOINT_PAGES:
            self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
