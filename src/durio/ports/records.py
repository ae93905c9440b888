"""The interface for records: small documents by kind and name.

A record has a version, and may have a due time and an expiry. `Commit` and `Lease.register`
write records. An expired record is absent for reads, lists and `if_version=0`; upkeep
deletes its row.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from durio.model.errors import UsageError

RECORD_BYTES_MAX = 64 * 1024
NAME_BYTES_MAX = 512  # maximum of a kind, and of a name

LAST_CHARACTER = "\U0010ffff"
BEFORE_SURROGATES, AFTER_SURROGATES = "\ud7ff", "\ue000"
# Greater than every name: a name of 512 bytes has at most 128 of this character.
BEYOND_ALL_NAMES = LAST_CHARACTER * (NAME_BYTES_MAX // 4 + 1)


class Record(NamedTuple):
    """A record as it is stored."""

    kind: str
    name: str
    body: bytes
    due_at: float | None
    # From one counter of the store: a name that is deleted and created again never gets an
    # old version.
    version: int


class Due(NamedTuple):
    """Records that are due."""

    records: list[Record]
    # Time until the next record is due. 0: more records are due; None: no other has a due
    # time.
    next_due_seconds: float | None
    now: float = 0.0  # the time of the store; 0 for a kind that no record can have


class Records(Protocol):
    """Reads records.

    A kind or a name cannot contain NUL or a lone surrogate. A read that asks for one, or a
    list with such a prefix or `after`, finds nothing.
    """

    async def records(self, kind: str, names: Sequence[str]) -> list[Record]:
        """Return the records with these names, in this order; absent ones are left out."""
        ...

    async def list_records(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 200
    ) -> list[Record]:
        """Return records of a kind in the order of their names, compared as bytes.

        `prefix`: only names that begin with it. `after`: only names greater than this one;
        pass the last name of a page to get the next page.
        """
        ...

    async def due_records(self, kind: str, *, limit: int) -> Due:
        """Return records that are due by the store's clock, the longest overdue first.

        Raises UsageError for a limit below 1.
        """
        ...


async def store_time(store: Records, kind: str) -> float:
    """Return the time of the store, by which records of this kind are due.

    Write due times by it: the wall clock of a process may be minutes ahead or behind.
    """
    return (await store.due_records(kind, limit=1)).now


def is_storable(*texts: str) -> bool:
    """Whether every store can keep these texts: they have no NUL and no lone surrogates."""
    try:
        return b"\0" not in "".join(texts).encode()
    except UnicodeEncodeError:
        return False


def can_name_record(text: str) -> bool:
    """Whether a record may have this kind or name."""
    return is_storable(text) and 0 < len(text.encode()) <= NAME_BYTES_MAX


def names_from(prefix: str) -> tuple[str, str]:
    """Return the first name with this prefix, and the first name after all of these."""
    stem = prefix.rstrip(LAST_CHARACTER)
    if not stem:
        return prefix, BEYOND_ALL_NAMES
    last = stem[-1]
    following = AFTER_SURROGATES if last == BEFORE_SURROGATES else chr(ord(last) + 1)
    return prefix, stem[:-1] + following


def check_due_limit(limit: int) -> None:
    if limit < 1:
        raise UsageError(
            f"at most {limit} records cannot be read",
            cure="Give a limit of 1 or more.",
        )


def due_of(records: Sequence[Record], now: float, limit: int) -> Due:
    """Build the result from `limit` + 1 records in the order of their due times."""
    due = [r for r in records[:limit] if r.due_at is not None and r.due_at <= now]
    following = records[len(due)].due_at if len(records) > len(due) else None
    return Due(due, None if following is None else max(0.0, following - now), now)
