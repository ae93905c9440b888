"""Move a live installation to another store: drain, freeze, copy, verify, place, open.

The source accepts jobs until it is frozen, and workers finish the jobs that they run. A
frozen store cannot change, so the copy is complete. The queues of the target stay closed
until all jobs have arrived and were compared: no job runs before that, and none runs in
both stores. Plans go along as what they are made of: jobs, records, logs and entries.

Every step leaves marks (ports/move.py) and begins by reading them. After a mover was
killed, at any point, the next one continues from the marks.
"""

import hashlib
import importlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from durio.app.connect import is_in_memory, masked, module_of
from durio.app.move_verify import (
    Comparison,
    compare_batch,
    compare_job,
    digest_bytes,
    job_digest,
)
from durio.model.errors import OperatingError, UsageError
from durio.model.ids import id_text
from durio.model.plan_names import ended_log, failed_log
from durio.model.quantities import counted, format_duration
from durio.ports.clock import Clock
from durio.ports.move import (
    FIRST_KEYS,
    MOVED_TABLES,
    ActiveWorkers,
    Counts,
    ExportJobs,
    ImportJobs,
    ImportProgress,
    JobDigest,
    JobRow,
    KeyRow,
    MovedRow,
    MovedTable,
    MoveMark,
    StoreMetadata,
    row_key,
)
from durio.ports.store import Store
from durio.ports.upkeep import DeadOnThisHost, ExpiredLeases, Orphans
from durio.ports.worker_protocol import too_old

FROM, TO = "durio.stores.sqlite", "durio.stores.postgres"
BATCH = 1000
POLL_SECONDS = 0.2
RESCUED_MAX = 1000
NAMED_MAX = 5

# Called with step, done, total.
ReportProgress = Callable[[str, int, int], None]


class MoveFailed(OperatingError):
    """A move cannot continue; no job was lost, and the marks say how far it is."""

    code = "move_failed"


class MoveStatus(NamedTuple):
    """The number of jobs to move, and how far the move is."""

    mark: MoveMark | None
    import_progress: ImportProgress | None
    jobs: Counts
    active_workers: ActiveWorkers

    @property
    def total(self) -> int:
        return total(self.jobs)

    @property
    def is_over(self) -> bool:
        """Whether the move was completed before."""
        return (
            self.mark is not None
            and self.mark.stage == "moved"
            and self.import_progress is not None
            and self.import_progress.stage == "open"
        )


def check_stores(source: str, target: str) -> None:
    """Refuse a pair of stores that cannot be moved, before anything is opened."""
    for url, package, way in ((source, FROM, "away from"), (target, TO, "to")):
        if module_of(url) != f"{package}.store" or is_in_memory(url):
            raise UsageError(
                f"jobs cannot be moved {way} {masked(url)}",
                cure="A move goes from a file, sqlite:///jobs.db, to postgresql://...",
            )


def export_jobs_from(store: Store) -> ExportJobs:
    """Return the export of a store that `check_stores` has accepted."""
    return importlib.import_module(f"{FROM}.export_jobs").export_jobs_from(store)


def import_jobs_into(store: Store) -> ImportJobs:
    """Return the import of a store that `check_stores` has accepted."""
    return importlib.import_module(f"{TO}.import_jobs").import_jobs_into(store)


@dataclass
class Mover:
    """One run of a move, which an earlier run may have begun."""

    source: ExportJobs
    target: ImportJobs
    to: str  # the target's URL, without its password
    store: Store  # the source: without workers, the mover must rescue its jobs
    target_store: Store
    clock: Clock
    report: ReportProgress

    # --- before

    async def status(self) -> MoveStatus:
        """Read both marks; raises MoveFailed if the jobs are moving to another store."""
        mark = await self.source.mark()
        progress = None if mark is None else await self.target.progress(mark.id)
        if mark is not None and progress is None and mark.to != self.to:
            raise MoveFailed(
                f"{self.source.name}: its jobs are being moved to {mark.to} already, "
                f"not to {self.to}",
                cure="Name that store, or undo the move with --back-out.",
            )
        jobs = await self.source.counts()
        return MoveStatus(mark, progress, jobs, await self.source.active_workers())

    async def check(self, status: MoveStatus) -> None:
        """Raise MoveFailed unless the target may receive these jobs."""
        mark, progress = status.mark, status.import_progress
        if progress is not None and progress.stage == "leaving":
            raise MoveFailed(
                f"{self.source.name}: the move to {self.to} is being undone",
                cure="Finish that first: run the command again with --back-out.",
            )
        if progress is not None:
            return
        if mark is not None and mark.stage == "moved":
            raise MoveFailed(
                f"{self.source.name} has moved to {mark.to}, which has no record of "
                "the move",
                cure="If it was restored from a backup: --back-out reopens the file.",
            )
        there = await self.target.counts(list(status.jobs))
        if total(there):
            named = ", ".join(name for name in there if there[name])
            raise MoveFailed(
                f"{self.to} has {counted(total(there), 'job')} of {named} already",
                cure="Move to another database or schema, or delete them there.",
            )

    # --- moving

    async def move(self, *, drain_seconds: float, by: str) -> Comparison | None:
        """Continue from the marks to the end; None if the move was already complete."""
        status = await self.status()
        await self.check(status)
        if status.is_over:
            return None
        mark = await self.drain_and_freeze(drain_seconds, by)
        metadata = await self.source.metadata()
        progress = await self.target.progress(mark.id)
        comparison: Comparison | None = None
        if progress is None or progress.stage == "arriving":
            await self.require_workers(metadata)
            await self.target.begin(mark.id, self.source.name, metadata)
            total_jobs = total(await self.source.counts())
            await self.copy(mark.id, total_jobs)
            comparison = await self.verify(mark.id, total_jobs)
            stage = (await self.progress(mark.id)).stage
            if comparison.differences and stage == "open":
                return None  # another mover finished it, and the jobs run there
            if stage == "arriving":
                self.refuse_differences(comparison)
        await self.place(mark.id)
        await self.target.open(mark.id, metadata)
        await self.source.set_stage(mark.id, "moved")
        return comparison

    async def drain_and_freeze(self, drain_seconds: float, by: str) -> MoveMark:
        """Wait until no worker and no running job is left, then freeze the source.

        The target's queues are closed first: producers that can no longer write to the
        source may switch to the target, and their jobs must not overtake the moved jobs
        and keys. Raises TimeoutError after `drain_seconds`.
        """
        new = MoveMark(self.clock.new_id().hex(), self.to, "draining")
        mark = await self.source.mark()
        if mark is None or mark.stage == "draining":
            await self.require_workers(await self.source.metadata())
            mark = await self.source.drain(new, by=by)
            metadata = (await self.source.metadata())._replace(deaths=0)
            await self.target.begin(mark.id, self.source.name, metadata)
        deadline = self.clock.monotonic() + drain_seconds
        while (active := await self.try_freeze(mark.id)) is not None:
            self.report("draining", active.running, active.workers)
            if self.clock.monotonic() >= deadline:
                raise TimeoutError(
                    f"{counted(active.workers, 'worker')} with "
                    f"{counted(active.running, 'running job')} are left "
                    f"after {format_duration(drain_seconds)}; {self.source.name} "
                    "accepts no new workers: run the move again, or undo it with "
                    "--back-out"
                )
            await self.clock.sleep(POLL_SECONDS)
        return mark

    async def require_workers(self, metadata: StoreMetadata) -> None:
        """Let no worker into the target that knows too little; raises WorkersTooOld."""
        for namespace, protocol in metadata.protocols:
            old = await self.target_store.require_protocol(namespace, protocol)
            if old:
                raise too_old(old, protocol)

    async def try_freeze(self, move: str) -> ActiveWorkers | None:
        """Rescue the jobs of dead workers, because no worker does it; then try to freeze."""
        for scope in (DeadOnThisHost(), ExpiredLeases(), Orphans()):
            await self.store.rescue(RESCUED_MAX, scope)
        return await self.source.freeze(move)

    async def copy(self, move: str, total_jobs: int) -> None:
        """Copy rows, jobs, then keys, each from the position that the target has recorded."""
        progress = await self.progress(move)
        for table in MOVED_TABLES:
            after = progress.tables[table]
            while rows := await self.source.rows(move, table, after, BATCH):
                await self.target.take_rows(move, table, after, rows)
                after = (await self.progress(move)).tables[table]
        done = total(await self.target.counts(list(await self.source.counts())))
        self.report("copying", done, total_jobs)
        while jobs := await self.source.jobs(move, progress.seq, BATCH):
            await self.target.take_jobs(move, progress.seq, jobs)
            progress = await self.progress(move)
            done += len(jobs)
            self.report("copying", done, total_jobs)
        while keys := await self.source.keys(move, progress.key, BATCH):
            await self.target.take_keys(move, progress.key, keys)
            progress = await self.progress(move)

    async def progress(self, move: str) -> ImportProgress:
        """Return how far the target is; raise MoveFailed if the move was undone."""
        progress = await self.target.progress(move)
        if progress is None:
            raise MoveFailed(
                "another process has undone this move",
                cure="See `durio audit ls`, then start the move again.",
            )
        return progress

    async def place(self, move: str) -> None:
        """Give the rows their own names, but for the logs that the leader reads.

        These are placed when the target opens: then the leader handles failures.
        """
        names = [failed_log, ended_log]
        last_logs = [log(app) for app in await self.source.counts() for log in names]
        while await self.target.place_rows(move, last_logs):
            pass

    # --- comparing

    async def verify(self, move: str, total_jobs: int) -> Comparison:
        """Compare every row, job and key of the source with the target."""
        comparison = Comparison()
        ours, theirs = hashlib.sha256(), hashlib.sha256()
        for table in MOVED_TABLES:
            async for batch in self.rows(move, table):
                both = await compare_batch(comparison, self.target, move, table, batch)
                ours.update(both[0])
                theirs.update(both[1])
        async for rows in self.jobs(move):
            now = await self.target.now()
            found = await self.target.digests([row.id for row in rows])
            there: dict[bytes, list[JobDigest]] = {}
            for digest in found:
                there.setdefault(digest.id, []).append(digest)
            for row in rows:
                digest = job_digest(row)
                other = compare_job(comparison, row, there.get(row.id, []), now)
                ours.update(digest_bytes(digest))
                theirs.update(digest_bytes(other))
            comparison.jobs += len(rows)
            self.report("verifying", comparison.jobs, total_jobs)
        async for keys in self.keys(move):
            await self.compare_keys(comparison, keys)
        counted = await self.target.counts(list(await self.source.counts()))
        comparison.other_jobs = total(counted) - (comparison.jobs - comparison.pruned)
        comparison.digest = theirs.hexdigest()
        if comparison.digest != ours.hexdigest() and not comparison.differences:
            comparison.differences.append("the digests differ")
        return comparison

    async def compare_keys(
        self, comparison: Comparison, keys: Sequence[KeyRow]
    ) -> None:
        """Check that every key has the same holder; an expired key may be missing."""
        now = await self.target.now()
        held = {
            key[0]: key for key in await self.target.held_keys([key[0] for key in keys])
        }
        for key in keys:
            there, until = held.get(key[0]), key[4]
            is_over = there is None and until is not None and until <= now
            if there != key and not is_over:
                comparison.differences.append(
                    f"the key of job {id_text(key[1])} is not there"
                )
        comparison.keys += len(keys)

    def refuse_differences(self, comparison: Comparison) -> None:
        if comparison.differences:
            named = "; ".join(comparison.differences[:NAMED_MAX])
            raise MoveFailed(
                f"{len(comparison.differences)} differences between {self.source.name} and "
                f"{self.to}: {named}",
                cure="Both stores stay closed. Undo the move with --back-out, and "
                "report this.",
            )

    async def jobs(self, move: str) -> AsyncIterator[list[JobRow]]:
        after = 0
        while rows := await self.source.jobs(move, after, BATCH):
            yield rows
            after = rows[-1].seq

    async def rows(self, move: str, table: MovedTable) -> AsyncIterator[list[MovedRow]]:
        after = FIRST_KEYS[table]
        while rows := await self.source.rows(move, table, after, BATCH):
            yield rows
            after = row_key(table, rows[-1])

    async def keys(self, move: str) -> AsyncIterator[list[KeyRow]]:
        after = b""
        while keys := await self.source.keys(move, after, BATCH):
            yield keys
            after = keys[-1][0]

    # --- undoing

    async def back_out(self, *, by: str) -> int:
        """Remove the jobs from the target and reopen the source; return how many."""
        status = await self.status()
        mark, progress = status.mark, status.import_progress
        if mark is None:
            raise UsageError(
                f"{self.source.name}: no move of its jobs has begun",
                cure="There is nothing to undo.",
            )
        if progress is not None and progress.stage in ("opening", "open", "shut"):
            raise self.opened(mark, progress)
        has_come = await self.target.abort(mark.id, self.source.name)
        mark = await self.source.mark() or mark
        if has_come and mark.stage != "draining":  # while draining, nothing is copied
            await self.remove_all(mark.id, status.total)
        if has_come:
            await self.target.remove_metadata(mark.id, await self.source.metadata())
        await self.source.unfreeze(mark.id, by=by)
        return status.total

    def opened(self, mark: MoveMark, progress: ImportProgress) -> MoveFailed:
        """Return the error for undoing a move whose target has been opened."""
        cure = f"Use that store: DURIO_URL={self.to} (with its password)."
        if mark.stage != "moved" or progress.stage != "open":
            cure = "Finish it: run the move again without --back-out."
        return MoveFailed(
            f"{self.source.name}: its jobs have moved to {self.to}, which is open: "
            "the move cannot be undone",
            cure=cure,
            path=self.source.name,
            to=self.to,
        )

    async def remove_all(self, move: str, jobs: int) -> None:
        """Remove all rows, jobs and keys of the source from the target."""
        done = 0
        await self.target.remove_rows(move)
        async for rows in self.jobs(move):
            await self.target.remove(move, [row.id for row in rows])
            done += len(rows)
            self.report("backing out", done, jobs)
        async for keys in self.keys(move):
            await self.target.release(move, keys)


# --- counting


def total(counts: Counts) -> int:
    return sum(jobs for states in counts.values() for jobs in states.values())
