"""Writes operators' actions to the audit log, in the transaction of the action itself."""

from collections.abc import Mapping, Sequence

from durio.ports.control import Acted, Action, AuditEntry, AuditNote
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

INSERT_AUDIT = statement("insert_audit")
ADD_TO_AUDIT = statement("add_to_audit")
PRUNE_AUDIT = statement("prune_audit")

AUDIT_LINES_MAX = 10_000


async def write_audit_line(
    tx: PostgresTransaction, entry: AuditEntry, *, add_to_line: int | None = None
) -> int:
    """Write one line and return its number.

    A later step of a bulk action passes the number of the action's line as `add_to_line`,
    and its jobs are added to that line. If the line has been pruned, the step gets a line
    of its own.
    """
    now = await tx.now()
    if add_to_line is not None and await tx.rows(
        ADD_TO_AUDIT, add_to_line, now, entry.jobs
    ):
        return add_to_line
    texts = [storable(v) if isinstance(v, str) else v for v in entry.cut()]
    return await tx.value(INSERT_AUDIT, now, *texts)


async def write_audit_note(
    tx: PostgresTransaction,
    note: AuditNote,
    action: Action,
    acted: Sequence[Acted],
    lanes: Mapping[bytes, str],
) -> int | None:
    """Write all lines of a note; return the number of the line that later calls add to."""
    line = note.line
    for entry in note.entries(action, acted, lanes):
        line = await write_audit_line(tx, entry, add_to_line=note.line)
    return line if note.target else None


def storable(text: str) -> str:
    """Drop NUL and replace lone surrogates: the database does not store them."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


async def prune_audit(tx: PostgresTransaction, limit: int) -> None:
    """Delete all but the newest AUDIT_LINES_MAX lines, at most `limit` at a time."""
    await tx.rows(PRUNE_AUDIT, AUDIT_LINES_MAX, limit)
