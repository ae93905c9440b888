"""The audit of what operators do, written in the transaction that does it."""

from collections.abc import Mapping, Sequence

from durio.ports.control import Acted, Action, AuditNote
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

INSERT_AUDIT = statement("insert_audit")
ADD_TO_AUDIT = statement("add_to_audit")
PRUNE_AUDIT = statement("prune_audit")

AUDIT_LINES_MAX = 10_000
WHO_CHARS_MAX = 200
TARGET_CHARS_MAX = 1000


async def write_audit_line(
    tx: PostgresTransaction,
    namespace: str,
    who: str,
    verb: str,
    target: str,
    jobs: int = 0,
    *,
    add_to_line: int | None = None,
) -> int:
    """Write one line and return its number.

    A later step of one bulk action passes the action's line as `add_to_line`: its jobs are
    added there. Where that line has been pruned, it gets a line of its own.
    """
    now = await tx.now()
    if add_to_line is not None and await tx.rows(ADD_TO_AUDIT, add_to_line, now, jobs):
        return add_to_line
    who, target = storable(who)[:WHO_CHARS_MAX], storable(target)[:TARGET_CHARS_MAX]
    return await tx.value(INSERT_AUDIT, now, namespace, who, verb, target, jobs)


async def write_audit_note(
    tx: PostgresTransaction,
    note: AuditNote,
    action: Action,
    acted: Sequence[Acted],
    lanes: Mapping[bytes, str],
) -> int | None:
    """All lines of a note; the number of the line that later calls add to."""
    line = note.line
    for entry in note.entries(action, acted, lanes):
        line = await write_audit_line(tx, *entry, add_to_line=note.line)
    return line if note.target else None


def storable(text: str) -> str:
    """Drop NUL and replace lone surrogates: the database does not store them."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


async def prune_audit(tx: PostgresTransaction, limit: int) -> None:
    """Delete all but the newest AUDIT_LINES_MAX lines, at most `limit` at a time."""
    await tx.rows(PRUNE_AUDIT, AUDIT_LINES_MAX, limit)
