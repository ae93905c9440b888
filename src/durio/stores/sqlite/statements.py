"""The store's SQL, read once at import from `sql/`: one file per capability."""

from durio.stores.statement_files import read_statements

STATEMENTS = read_statements("durio.stores.sqlite", "?")


def statement(name: str) -> str:
    """The text of the statement under `-- name: <name>`."""
    return STATEMENTS[name]
