"""The store's SQL, read once at import from `sql/`: one file per capability."""

from durio.model.job import JOB_COLUMNS, Claim, StoredJob
from durio.stores.statement_files import COLUMN_NAMES, column_list, read_statements

NAMES = {**COLUMN_NAMES, "lane": "queue", "errors": "cast(errors as blob)"}
AS_TEXT = {"payload": "cast(payload as text)", "opts": "cast(opts as text)"}
PARTS = {
    "claim": column_list(Claim._fields[2:], NAMES),  # after id and claim_no
    "claim_as_json": column_list(Claim._fields[2:], {**NAMES, **AS_TEXT}),
    "stored": column_list(StoredJob._fields, {**NAMES, "state": "{shown_state}"}),
    "job": column_list(
        JOB_COLUMNS, {**NAMES, "state": "{moved_state}", "run_at": "{moved_run_at}"}
    ),
}
STATEMENTS = read_statements("durio.stores.sqlite", "?", PARTS)


def statement(name: str) -> str:
    """Return the text of the statement under `-- name: <name>`."""
    return STATEMENTS[name]
