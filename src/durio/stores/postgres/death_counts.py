"""Counting the dead: once for every death, by queue, task and type of error.

Deaths are rare: a job that does not die pays nothing. Each has a number that only grows,
by which a bulk act knows the dead it was counted for from those who died later. The row
that gives the numbers is locked until the commit, so that they follow the order of the
commits: whoever sees a number sees every death before it. It is the last lock but those
of the tallies and the audit, and whoever has it waits for nobody.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from durio.model.names import namespace_of
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

NEXT_DEATHS = statement("next_death_number")
NUMBER_DEATHS = statement("number_death")
FIND_KINDS = statement("find_death_counts")
COUNT_KINDS = statement("count_death_rows")
ADD_DEATHS = statement("upsert_death_counts")

KINDS_MAX = 10_000
OTHER_KIND = "other"
TYPE_CHARS_MAX = 200

DeathKind = tuple[str, str, str]  # lane, task, type of error

_fields_decoder = msgspec.json.Decoder(dict[str, Any])


async def count_deaths(tx: PostgresTransaction, ids: Sequence[bytes]) -> None:
    """These have just become dead: they are in `kept`, with errors and reason in place."""
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
    """The number of the first of so many; nobody else gets any until the commit."""
    return await tx.value(NEXT_DEATHS, deaths) - deaths + 1


def error_type(error: bytes | None, reason: str | None) -> str:
    """What a job died of; an error that is no JSON must not keep it from dying."""
    named = error_fields(error).get("type")
    return ((reason or "") if named is None else without_nul(named))[:TYPE_CHARS_MAX]


def error_fields(error: bytes | None) -> dict[str, Any]:
    """A stored error as data; a damaged one says nothing."""
    try:
        return _fields_decoder.decode(error or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def without_nul(value: Any) -> str:
    """As text that the database takes: it has no NUL."""
    return str(value).replace("\0", "")


async def add_deaths(tx: PostgresTransaction, deaths: Counter[DeathKind]) -> None:
    """To their kinds; beyond the bound, new ones go to a kind that says less."""
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


def bounded_kind(kind: DeathKind, kinds: int) -> DeathKind:
    """Under which kind a death that was never seen is counted, when there are so many."""
    lane, task, _ = kind
    if kinds > 2 * KINDS_MAX:
        return f"{namespace_of(lane)}:{OTHER_KIND}", OTHER_KIND, OTHER_KIND
    return (lane, task, OTHER_KIND) if kinds > KINDS_MAX else kind


def kind_columns(kinds: Sequence[DeathKind]) -> tuple[list[str], list[str], list[str]]:
    """Kinds as the arrays that a statement takes."""
    lanes, tasks, types = zip(*kinds, strict=True)
    return list(lanes), list(tasks), list(types)
