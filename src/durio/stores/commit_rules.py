"""Rules of a commit that every store applies: bounds, and which results are conflicts."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from durio.model.effects import Append, Effects, Put
from durio.model.errors import InvalidName, UsageError, WrongTransaction
from durio.model.gate import check_gate_changes, check_gates
from durio.model.ids import id_text
from durio.model.job import NewJob
from durio.model.tx import Joinable
from durio.ports.commit import ROWS_MAX, Committed
from durio.ports.conflicts import Conflict, EffectsRefused
from durio.ports.control import AuditNote
from durio.ports.enqueue import Enqueued
from durio.ports.logs import ENTRY_BYTES_MAX, LOG_NAME_BYTES_MAX, ON_END_MAX
from durio.ports.records import (
    NAME_BYTES_MAX,
    RECORD_BYTES_MAX,
    Record,
    can_name_record,
    is_storable,
)


class CommitRequest(NamedTuple):
    """The arguments of `Commit.commit`."""

    effects: Effects
    all_new: bool
    enters: bool
    note: AuditNote | None


class CheckedCommit:
    """Checks a commit before it begins, and returns the condition that failed."""

    async def commit(
        self,
        effects: Effects,
        *,
        tx: Joinable | None = None,
        all_new: bool = False,
        enters: bool = False,
        note: AuditNote | None = None,
    ) -> Committed:
        check_effects(effects, in_caller_tx=tx is not None)
        try:
            request = CommitRequest(effects, all_new, enters, note)
            return await self.write_commit(request, tx)
        except EffectsRefused as refused:
            return Committed([], [], refused.conflict)

    async def write_commit(
        self, request: CommitRequest, tx: Joinable | None
    ) -> Committed:
        """Write everything or raise EffectsRefused; a store overrides this."""
        raise NotImplementedError


def rows_of(effects: Effects) -> int:
    """Return how many jobs, records, entries and gates these effects write."""
    entries = sum(len(append.entries) for append in effects.appends)
    others = len(effects.puts) + len(effects.extends) + len(effects.gates)
    return len(effects.jobs) + others + entries


def check_effects(effects: Effects, *, in_caller_tx: bool) -> None:
    """Refuse effects that no store can write, before anything is written."""
    rows = rows_of(effects)
    if rows > ROWS_MAX:
        raise UsageError(
            f"a commit of {rows} jobs, records, entries and gates is too large",
            cure=f"Split it: one transaction takes at most {ROWS_MAX}.",
        )
    check_puts(effects.puts)
    check_appends(effects.appends)
    check_ties(effects.jobs)
    check_gate_changes(effects.gates)
    if not in_caller_tx:
        return
    if effects.extends or effects.gates:
        what = (
            "a wait would be extended" if effects.extends else "a gate would be changed"
        )
        raise WrongTransaction(
            f"{what} in the transaction of tx",
            cure="There jobs, records and entries can only be created.",
        )
    for put in effects.puts:
        if put.body is None or put.if_version != 0:
            raise WrongTransaction(
                f"the record {put.name!r} would be changed in the transaction of tx",
                cure="There records can only be created (if_version=0): a change would "
                "keep others waiting until tx is committed.",
            )


def check_puts(puts: Sequence[Put]) -> None:
    """Check names, sizes and times, and that each record is put once."""
    for kind in {put.kind for put in puts}:
        check_record_name(kind)
    seen: set[tuple[str, str]] = set()
    for put in puts:
        check_record_name(put.name)
        check_time(put.name, "due_at", put.due_at)
        check_time(put.name, "ttl_seconds", put.ttl_seconds)
        size = 0 if put.body is None else len(put.body)
        if size > RECORD_BYTES_MAX:
            raise UsageError(
                f"the record {put.name!r} of {size} bytes is too large",
                cure=f"A record holds at most {RECORD_BYTES_MAX} bytes.",
            )
        if put[:2] in seen:
            raise UsageError(
                f"the record {put.name!r} is written twice in one transaction",
                cure="Write it once.",
            )
        seen.add(put[:2])


def check_appends(appends: Sequence[Append]) -> None:
    """Check the names of logs, the ids of entries, and sizes."""
    for append in appends:
        check_log_name(append.log)
        check_time(append.log, "ttl_seconds", append.ttl_seconds)
        for entry in append.entries:
            if entry.uid is not None:
                check_log_name(entry.uid)
            size = 0 if entry.body is None else len(entry.body)
            if size > ENTRY_BYTES_MAX:
                raise UsageError(
                    f"an entry of {size} bytes for the log {append.log!r} is too large",
                    cure=f"An entry holds at most {ENTRY_BYTES_MAX} bytes.",
                )


def check_ties(jobs: Sequence[NewJob]) -> None:
    """Check what jobs wait for, what they append when they end, and their gates.

    Jobs of one plan share most logs: each name is checked once.
    """
    names = {job.wait.log for job in jobs if job.wait is not None}
    for job in jobs:
        if len(job.on_end) > ON_END_MAX:
            raise UsageError(
                f"job {id_text(job.id)} has {len(job.on_end)} entries for its end",
                cure=f"A job has at most {ON_END_MAX}.",
            )
        for end in job.on_end:
            names.add(end.log)
        if job.gates:
            check_gates(job.gates)
    for name in names:
        check_log_name(name)


def check_log_name(name: str) -> None:
    """Check the name of a log, or the id of an entry: text of 1 to 128 bytes."""
    if not is_storable(name) or not 0 < len(name.encode()) <= LOG_NAME_BYTES_MAX:
        raise InvalidName(
            f"{name[:80]!r} cannot name a log or an entry",
            cure=f"Use 1 to {LOG_NAME_BYTES_MAX} bytes of valid text without NUL.",
        )


def check_record_name(name: str) -> None:
    """Check a kind or a name: text of 1 to 512 bytes without NUL."""
    if not can_name_record(name):
        raise InvalidName(
            f"{name[:80]!r} cannot name a record",
            cure=f"Use 1 to {NAME_BYTES_MAX} bytes of valid text without NUL.",
        )


def check_time(name: str, field: str, seconds: float | None) -> None:
    """Refuse NaN, which stores keep differently, and numbers that no clock reaches."""
    if seconds is not None and not math.isfinite(seconds):
        raise UsageError(
            f"the record {name!r} cannot have {field}={seconds}",
            cure="Use a finite number, or None.",
        )


def check_version(put: Put, standing: Record | None) -> None:
    """Refuse a put whose condition does not hold for the stored record."""
    version = 0 if standing is None else standing.version
    if put.if_version is not None and put.if_version != version:
        raise EffectsRefused(Conflict("record", put.name, standing))


def check_jobs(
    jobs: Sequence[NewJob], answers: Sequence[Enqueued], *, all_new: bool
) -> None:
    """Refuse a full queue, and a key that another job holds."""
    for job, answer in zip(jobs, answers, strict=True):
        if answer.full is not None and not answer.created:
            full = answer.full
            raise EffectsRefused(Conflict("full", full.lane, full=full))
        # If the result is the job's own id, the job is already stored, and this commit is a
        # repeat.
        is_other = answer.id != job.id
        if answer.conflict or (all_new and is_other):
            raise EffectsRefused(Conflict("key", id_text(answer.id), job=job))
