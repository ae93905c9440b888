"""What one transaction writes beside an outcome, or by itself.

These are jobs, records, entries of logs, and changes of gates.
"""

from collections.abc import Sequence
from typing import NamedTuple

from durio.model.gate import GateChange
from durio.model.job import NewJob


class Put(NamedTuple):
    """A record to write or to delete."""

    kind: str
    name: str
    body: bytes | None  # None: delete
    if_version: int | None = None  # 0: only if there is none; None: unconditionally
    due_at: float | None = None  # seconds since 1970, by the store's clock
    ttl_seconds: float | None = None  # None: kept until it is deleted


class NewEntry(NamedTuple):
    """An entry before it is appended to a log."""

    body: bytes | None
    tag: int = 0
    uid: str | None = (
        None  # a log takes one entry with this id; a second one is ignored
    )


class Append(NamedTuple):
    """Entries for the end of a log, which is created if it does not exist."""

    log: str
    entries: Sequence[NewEntry]
    ttl_seconds: float | None = None  # the whole log may be deleted then; None: never


class Extend(NamedTuple):
    """A job that waits for a log waits for this many more entries.

    A cancelled job waits for them if it is retried. A job that is ready or running, done or
    dead, or that never waited, is a conflict.
    """

    job: bytes
    by: int


class Effects(NamedTuple):
    """What one transaction writes."""

    jobs: Sequence[NewJob] = ()
    puts: Sequence[Put] = ()
    appends: Sequence[Append] = ()
    extends: Sequence[Extend] = ()
    gates: Sequence[GateChange] = ()


def joined(*parts: Effects) -> Effects:
    """Return all of these effects together, in this order."""
    if len(parts) == 1:
        return parts[0]
    return Effects(
        [job for each in parts for job in each.jobs],
        [put for each in parts for put in each.puts],
        [append for each in parts for append in each.appends],
        [extend for each in parts for extend in each.extends],
        [gate for each in parts for gate in each.gates],
    )
