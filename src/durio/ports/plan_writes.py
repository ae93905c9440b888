"""The writes of one plan: all at once, or a large one in several commits.

A large plan begins with its record, marked as not whole: the leader finds its jobs by it if
the writer dies. Each commit also writes that record, so that nothing is written any more
once the leader has given the plan up. The last one marks the plan as whole and lets its
first jobs start. Jobs that may be refused are in the first commit: then nothing is stored.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from durio.model.effects import Append, Effects, NewEntry, Put
from durio.model.ids import id_text
from durio.model.job import NewJob
from durio.model.plan_record import (
    WRITTEN_SECONDS_MAX,
    PlanRecord,
    dump_record,
    plan_kind,
    shape_entries,
    shape_log,
)
from durio.ports.clock import Clock
from durio.ports.commit import ROWS_MAX
from durio.ports.records import Records, store_time

CHUNK_JOBS = ROWS_MAX - 1  # and the record
FIRST_ROWS = ROWS_MAX - 2  # and the record, and that of a key


def refusable_first(jobs: Sequence[NewJob]) -> list[NewJob]:
    """Return jobs with keys and one of each queue before the others."""
    by_lane = {job.lane: job.id for job in reversed(jobs)}
    first = [job for job in jobs if job.key or job.id == by_lane[job.lane]]
    known = {job.id for job in first}
    return [*first, *(job for job in jobs if job.id not in known)]


async def store_clock(
    store: Records, namespace: str, clock: Clock
) -> Callable[[], float]:
    """Return a function that returns the time of the store, which is read once."""
    since = await store_time(store, plan_kind(namespace)) - clock.monotonic()
    return lambda: since + clock.monotonic()


class PlanWrites:
    """The writes of a plan whose jobs are encoded."""

    def __init__(
        self,
        namespace: str,
        plan_id: bytes,
        record: PlanRecord,
        jobs: Sequence[NewJob],
        go: str | None,
    ) -> None:
        self.namespace = namespace
        self.id = plan_id
        self.jobs = jobs if go is None else refusable_first(jobs)
        self.go = go  # the log that its first jobs wait for; None: it is not large
        # A shape that is too long for the record is in a log.
        parts = [NewEntry(part) for part in shape_entries(record.shape)]
        self._appends = [Append(shape_log(namespace, plan_id), parts)] if parts else []
        self.record = replace(record, shape=None) if parts else record
        self._first_jobs = max(0, FIRST_ROWS - len(parts))

    def at_once(self, puts: Sequence[Put] = ()) -> Effects:
        """Return the one commit of a plan that is not large, with other records."""
        return Effects(self.jobs, [self._put(self.record, 0), *puts], self._appends)

    def first(self, now: float, puts: Sequence[Put] = ()) -> Effects:
        """Return the first commit of a large plan, with other records."""
        unfinished = [self._unfinished(now, 0), *puts]
        return Effects(self.jobs[: self._first_jobs], unfinished, self._appends)

    def chunks(self) -> Iterator[Sequence[NewJob]]:
        """Yield the jobs of each further commit but the last."""
        for at in range(self._first_jobs, len(self.jobs), CHUNK_JOBS):
            yield self.jobs[at : at + CHUNK_JOBS]

    def chunk(self, jobs: Sequence[NewJob], now: float, version: int) -> Effects:
        """Return the commit of these jobs, if the record still has this version."""
        return Effects(jobs, [self._unfinished(now, version)])

    def last(self, version: int, puts: Sequence[Put] = ()) -> Effects:
        """Return the last commit, which lets the plan start, with other records."""
        starts = Append(self.go or "", [NewEntry(b"")])
        return Effects((), [self._put(self.record, version), *puts], [starts])

    def _unfinished(self, now: float, version: int) -> Put:
        put = self._put(replace(self.record, is_whole=False), version)
        return put._replace(due_at=now + WRITTEN_SECONDS_MAX)

    def _put(self, record: PlanRecord, version: int) -> Put:
        kind, name = plan_kind(self.namespace), id_text(self.id)
        return Put(kind, name, dump_record(record), if_version=version)
