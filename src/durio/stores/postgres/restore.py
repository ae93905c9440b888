"""Dead letters from elsewhere: as they were, without a key, and dead."""

from collections.abc import Sequence

import msgspec

from durio.model.ids import ids_in_words
from durio.model.job import Record
from durio.model.names import namespace_of
from durio.stores.postgres.audit import storable, write_down
from durio.stores.postgres.statements import statement
from durio.stores.postgres.tally import NUMBER_DEATHS, next_deaths
from durio.stores.postgres.transaction import Transaction

MAKE_LANES = statement("control_make_lanes")
RESTORE_JOB = statement("control_restore")

INT2_MAX, INT4_MAX = 2**15 - 1, 2**31 - 1

_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


async def restore(tx: Transaction, records: Sequence[Record], by: str) -> int:
    """Insert those that are not stored; they stay as long as the dead of today."""
    now = await tx.now()
    await tx.rows(MAKE_LANES, sorted({record.lane for record in records}))
    of_apps: dict[str, list[bytes]] = {}
    for r in sorted(records, key=lambda record: record.id):
        ended = now if r.finished_at is None else r.finished_at
        if await tx.rows(
            RESTORE_JOB,
            *(r.id, r.lane, r.rank, r.task, r.payload),
            *(
                within(n, INT4_MAX)
                for n in (r.retried, r.losses, r.snoozed, r.claim_no)
            ),
            within(r.lost, INT2_MAX),
            *(r.opts, errors_of(r.errors)),
            *(r.created_at, r.started_at, ended, now + tx.retention.dead_seconds),
            None if r.reason is None else storable(r.reason),
        ):
            of_apps.setdefault(namespace_of(r.lane), []).append(r.id)
    ids = [job_id for some in of_apps.values() for job_id in some]
    if ids:
        first = await next_deaths(tx, len(ids))
        await tx.rows(NUMBER_DEATHS, ids, list(range(first, first + len(ids))))
    for namespace, some in sorted(of_apps.items()):
        await write_down(tx, namespace, by, "restore", ids_in_words(some), len(some))
    return len(ids)


def within(number: int, most: int) -> int:
    """A counter that its column can hold."""
    return max(0, min(number, most))


def errors_of(stored: bytes | None) -> list[bytes] | None:
    """A JSON list, element by element; what is none is kept as one damaged error."""
    if stored is None:
        return None
    try:
        return [bytes(error) for error in _list_decoder.decode(stored)] or None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [stored]
