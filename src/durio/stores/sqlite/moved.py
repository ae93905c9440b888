"""The word by which a file says that its jobs are on their way to another store."""

from typing import Any

import apsw
import msgspec

from durio.model.errors import StoreMoved
from durio.ports.move import Mark
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.statements import statement

READ_MARK = statement("move_read_mark")

_mark_decoder = msgspec.json.Decoder(dict[str, str])

WORD = "durio: the jobs of this file go to "


def said(to: str) -> str:
    """What a trigger raises: departure.py makes them."""
    return f"{WORD}{to}"


def heard(error: apsw.Error, path: str | None) -> StoreMoved | None:
    """The error of whoever wanted to write there; None: it is about something else."""
    _, word, to = str(error).partition(WORD)
    if not word:
        return None
    return moved_to(path, to)


def moved_to(path: str | None, to: str) -> StoreMoved:
    """What is said of jobs that are not here any more, or not for long."""
    return StoreMoved(
        f"{path}: its jobs are moving, or have moved, to {to}; nothing was written",
        cure=f"Use that store: DURIO_URL={to} (with its password), or --store. While the "
        "move is under way it takes no jobs either: try again.",
        path=path,
        to=to,
    )


def read_mark(db: Database) -> Mark | None:
    """The move that the jobs of this file are on, if there is one."""
    body = db.value(READ_MARK)
    if body is None:
        return None
    told = _mark_decoder.decode(body)
    stage: Any = told["stage"]
    return Mark(told["id"], told["to"], stage)


def refuse_to_wait(db: Database, path: str | None) -> None:
    """Jobs that have moved for good end elsewhere."""
    mark = read_mark(db)
    if mark is not None and mark.stage == "moved":
        raise moved_to(path, mark.to)
