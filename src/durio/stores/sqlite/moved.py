"""The word by which a file says that its jobs are on their way to another store."""

import apsw

from durio.model.errors import StoreMoved

WORD = "durio: the jobs of this file go to "


def said(to: str) -> str:
    """What a trigger raises: departure.py makes them."""
    return f"{WORD}{to}"


def heard(error: apsw.Error, path: str | None) -> StoreMoved | None:
    """The error of whoever wanted to write there; None: it is about something else."""
    _, word, to = str(error).partition(WORD)
    if not word:
        return None
    return StoreMoved(
        f"{path}: its jobs are moving, or have moved, to {to}; nothing was written",
        cure=f"Use that store: DURIO_URL={to} (with its password), or --store. While the "
        "move is under way it takes no jobs either: try again.",
        path=path,
        to=to,
    )
