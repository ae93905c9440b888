"""Conditions of a write that did not hold."""

from typing import Literal, NamedTuple

from durio.model.job import NewJob
from durio.ports.enqueue import Full
from durio.ports.records import Record


class Conflict(NamedTuple):
    """The first condition that did not hold: nothing was written."""

    # record: it has another version; full: a queue has no room, or is closed; key: another
    # job holds the idempotency key; job_ended: a job cannot wait longer (`Extend`).
    what: Literal["record", "full", "key", "job_ended"]
    name: str  # name of the record or lane, or the id of the job
    # The stored record, so that a repeat recognises its own write.
    record: Record | None = None
    full: Full | None = None
    job: NewJob | None = None  # key: the new job that was to have it


class EffectsRefused(Exception):
    """A condition of the effects does not hold: nothing was written."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict)
        self.conflict = conflict
