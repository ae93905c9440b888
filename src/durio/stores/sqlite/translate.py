"""Translate SQLite's errors for callers: what happened to which file, and the cure.

No caller ever sees the driver's exceptions. `unknown` is set only if the write may have
happened: SQLite could not tell whether a commit reached the disk.

This module also reads the mark of a file whose jobs move to another store, and makes the
error for a write to it.
"""

from typing import Any

import apsw
import msgspec

from durio.model.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreMoved,
    StoreReadOnly,
    StoreUnavailable,
)
from durio.ports.move import MoveMark
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.statements import statement

READ_MOVE_MARK = statement("read_move_mark")

_mark_decoder = msgspec.json.Decoder(dict[str, str])

REFUSAL_PREFIX = "durio: the jobs of this file go to "


def refusal_text(to: str) -> str:
    """Return the message of the freeze triggers, which freeze_triggers.py creates."""
    return f"{REFUSAL_PREFIX}{to}"


def moved_error_from(error: apsw.Error, path: str | None) -> StoreMoved | None:
    """Return the error for a write to a frozen file; None if `error` has another cause."""
    _, word, to = str(error).partition(REFUSAL_PREFIX)
    if not word:
        return None
    return moved_to(path, to)


def moved_to(path: str | None, to: str) -> StoreMoved:
    """Return the error for jobs that have moved or are about to."""
    return StoreMoved(
        f"{path}: its jobs are moving, or have moved, to {to}; nothing was written",
        cure=f"Use that store: DURIO_URL={to} (with its password), or --store. Until "
        "the move ends that store accepts no jobs either: try again later.",
        path=path,
        to=to,
    )


def read_mark(db: Database) -> MoveMark | None:
    """Return the move of this file's jobs; None if there is none."""
    body = db.value(READ_MOVE_MARK)
    if body is None:
        return None
    fields = _mark_decoder.decode(body)
    stage: Any = fields["stage"]
    return MoveMark(fields["id"], fields["to"], stage)


def raise_if_moved(db: Database, path: str | None) -> None:
    """Raise StoreMoved if all jobs of this file have moved."""
    mark = read_mark(db)
    if mark is not None and mark.stage == "moved":
        raise moved_to(path, mark.to)


IN_MEMORY = "the store in memory"

# By SQLite's error: our error, what happened, what to do.
MEANINGS: tuple[tuple[type[apsw.Error], type[StoreError], str, str], ...] = (
    (
        apsw.FullError,
        StoreFull,
        "{path}: no space left; nothing was written",
        "Free space on this disk; then Durio continues.",
    ),
    (
        apsw.ReadOnlyError,
        StoreReadOnly,
        "{path} can be read but not written",
        "Give this user the right to write the file and its folder.",
    ),
    (
        apsw.CorruptError,
        StoreCorrupt,
        "{path} is damaged",
        "Stop all workers, keep a copy, and restore a backup or use `.recover`.",
    ),
    (
        apsw.NotADBError,
        StoreCorrupt,
        "{path} is not a SQLite database",
        "Name another file: this one belongs to something else.",
    ),
    (
        apsw.BusyError,
        StoreUnavailable,
        "{path} is locked by another program",
        (
            "Find the program that writes to it without Durio, and let it end its "
            "transaction."
        ),
    ),
    (
        apsw.LockedError,
        StoreUnavailable,
        "{path} is locked within this process",
        "End the other transaction on this file.",
    ),
    (
        apsw.CantOpenError,
        StoreUnavailable,
        "{path} cannot be opened",
        "Check that its folder exists and that this user may write there.",
    ),
    (
        apsw.PermissionsError,
        StoreUnavailable,
        "{path} cannot be opened by this user",
        "Give this user the right to read and write the file and its folder.",
    ),
    (
        apsw.IOError,
        StoreUnavailable,
        "{path}: the disk failed",
        "See the kernel's log; check the disk and its file system.",
    ),
)


def translated(error: apsw.Error, path: str | None, *, at_commit: bool) -> StoreError:
    """Return the error for the caller of an operation that failed in SQLite."""
    place = IN_MEMORY if path is None else path
    if isinstance(error, apsw.ConstraintError) and (
        moved := moved_error_from(error, path)
    ):
        return moved
    # A failed sync leaves the commit in the log. Readers do not see it, but recovery after
    # a crash may apply it.
    unknown = at_commit and isinstance(error, apsw.IOError)
    for driver_error, ours, what, cure in MEANINGS:
        if isinstance(error, driver_error):
            text = f"{what.format(path=place)} ({error})"
            return ours(text, cure=cure, unknown=unknown, path=path)
    return StoreError(
        f"{place}: {type(error).__name__}: {error}",
        cure="This is unexpected: report it.",
        unknown=unknown,
        path=path,
    )
