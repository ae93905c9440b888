"""Rules of a commit that every store applies: bounds, and which results are conflicts."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from durio.model.errors import InvalidName, UsageError, WrongTransaction
from durio.model.ids import id_text
from durio.model.job import NewJob
from durio.model.tx import Joinable
from durio.ports.commit import ROWS_MAX, Committed, Conflict, Effects
from durio.ports.control import AuditNote
from durio.ports.enqueue import Enqueued
from durio.ports.records import (
    NAME_BYTES_MAX,
    RECORD_BYTES_MAX,
    Put,
    Record,
    can_name_record,
)


class CommitRefused(Exception):
    """A condition does not hold: the store rolls back and returns the conflict."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict)
        self.conflict = conflict


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
        except CommitRefused as refused:
            return Committed([], [], refused.conflict)

    async def write_commit(
        self, request: CommitRequest, tx: Joinable | None
    ) -> Committed:
        """Write everything or raise CommitRefused; a store overrides this."""
        raise NotImplementedError


def check_effects(effects: Effects, *, in_caller_tx: bool) -> None:
    """Refuse effects that no store can write, before anything is written."""
    rows = len(effects.jobs) + len(effects.puts)
    if rows > ROWS_MAX:
        raise UsageError(
            f"a commit of {rows} jobs and records is too large",
            cure=f"Split it: one transaction takes at most {ROWS_MAX}.",
        )
    check_puts(effects.puts)
    if not in_caller_tx:
        return
    for put in effects.puts:
        if put.body is None or put.if_version != 0:
            raise WrongTransaction(
                f"the record {put.name!r} would be changed in the transaction of tx",
                cure="There records can only be created (if_version=0): a change would "
                "keep others waiting until tx is committed.",
            )


def check_puts(puts: Sequence[Put]) -> None:
    """Check names, sizes and times, and that each record is put once."""
    seen: set[tuple[str, str]] = set()
    for put in puts:
        check_record_name(put.kind)
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
        raise CommitRefused(Conflict("record", put.name, standing))


def check_jobs(
    jobs: Sequence[NewJob], answers: Sequence[Enqueued], *, all_new: bool
) -> None:
    """Refuse a full queue, and a key that another job holds."""
    for job, answer in zip(jobs, answers, strict=True):
        if answer.full is not None and not answer.created:
            full = answer.full
            raise CommitRefused(Conflict("full", full.lane, full=full))
        # If the result is the job's own id, the job is already stored, and this commit is a
        # repeat.
        is_other = answer.id != job.id
        if answer.conflict or (all_new and is_other):
            raise CommitRefused(Conflict("key", id_text(answer.id)))
