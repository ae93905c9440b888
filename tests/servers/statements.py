"""Names of the PostgreSQL store's statements, by capability."""

import re

from tests.checkout import ROOT

FOLDER = ROOT / "src/durio/stores/postgres/sql"


def names_in(*capabilities: str) -> list[str]:
    """Return the statements of these files below `sql/`."""
    names: list[str] = []
    for capability in capabilities:
        text = (FOLDER / f"{capability}.sql").read_text(encoding="utf-8")
        names += re.findall(r"^-- name: (\w+)", text, re.MULTILINE)
    return names
