"""Counts of deaths by queue, task and type of error.

Deaths are rare, and a job that does not die costs nothing here. Each death has an
increasing number, so that a bulk action can skip jobs that died after it began. The row
that gives the numbers stays locked until the commit. So numbers follow the order of
commits: a transaction that sees a number sees every earlier death. Only the counts and the
audit log are locked after this row, so its holder never waits for another transaction.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from durio.stores.job_rules import TYPE_CHARS_MAX, DeathKind, bounded_kind
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

NEXT_DEATHS = statement("next_death_number")
NUMBER_DEATHS = statement("number_death")
FIND_KINDS = statement("find_death_counts")
COUNT_KINDS = statement("count_death_rows")
ADD_DEATHS = statement("upsert_death_counts")

_fields_decoder = msgspec.json.Decoder(dict[str, Any])


async def count_deaths(tx: PostgresTransaction, ids: Sequence[bytes]) -> None:
    """Number and count jobs that have just died.

    They are in `kept`, with errors and reason.
    """
    if not ids:
        return
    first = await next_deaths(tx, len(ids))
    numbers = list(range(first, first + len(ids)))
    rows = await tx.rows(NUMBER_DEATHS, list(ids), numbers)
    deaths: Counter[DeathKind] = Counter()
    for lane, task, error, reason in rows:
        deaths[lane, task, error_type(error, reason)] += 1
    await add_deaths(tx, deaths)


async def next_deaths(tx: PostgresTransaction, deaths: int) -> int:
    """Reserve this many numbers and return the first.

    Other transactions wait for the commit.
    """
    return await tx.value(NEXT_DEATHS, deaths) - deaths + 1


def error_type(error: bytes | None, reason: str | None) -> str:
    """Return the type of the error, or the reason if the error names none or is damaged."""
    named = error_fields(error).get("type")
    return ((reason or "") if named is None else without_nul(named))[:TYPE_CHARS_MAX]


def error_fields(error: bytes | None) -> dict[str, Any]:
    """Decode a stored error; a damaged one has no fields."""
    try:
        return _fields_decoder.decode(error or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def without_nul(value: Any) -> str:
    """Convert the value to text without NUL, which the database does not store."""
    return str(value).replace("\0", "")


async def add_deaths(tx: PostgresTransaction, deaths: Counter[DeathKind]) -> None:
    """Add to the counts; beyond KINDS_MAX, new kinds are counted as a less specific one."""
    known = await tx.rows(FIND_KINDS, *kind_columns(sorted(deaths)))
    new = deaths.keys() - {(lane, task, kind) for lane, task, kind in known}
    kinds = await tx.value(COUNT_KINDS) if new else 0
    added: Counter[DeathKind] = Counter()
    for kind, jobs in sorted(deaths.items()):
        added[bounded_kind(kind, kinds) if kind in new else kind] += jobs
        kinds += kind in new
    rows = sorted(added.items())
    jobs = [count for _, count in rows]
    await tx.rows(ADD_DEATHS, *kind_columns([kind for kind, _ in rows]), jobs)


def kind_columns(kinds: Sequence[DeathKind]) -> tuple[list[str], list[str], list[str]]:
    lanes, tasks, types = zip(*kinds, strict=True)
    return list(lanes), list(tasks), list(types)
