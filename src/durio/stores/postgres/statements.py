"""The SQL of this store: one file per capability below `sql/`, read once at import.

The planner takes a table that was empty at its last analyze for a table of one row, however
full it is now. It then assumes that a scan of the whole table costs as little as an index
probe. A join `a.id = b.id` lets it choose the scan. `a.id = any(array[b.id])` does not: no
order of rows helps such a join, so only an index probe for each row of `b` is left. In a
key of several columns it is enough to write the first column so. Other forms that always
give an index probe are `id = any(array(select ...))`, a lateral subquery with `offset 0`,
and a subquery as a value. `exists` does not, because the planner may turn it into a join.
tests/conformance/test_postgres_plans.py checks the plans.

`{schema}` stands for the quoted name of the schema. connections.py fills it in, once per
text, because several stores of a process may use different schemas.
"""

from durio.model.job import COMMON_COLUMNS, JOB_COLUMNS
from durio.stores.statement_files import column_list, read_statements

SCHEMA = "{schema}"
PARTS = {"common": column_list(COMMON_COLUMNS), "job": column_list(JOB_COLUMNS)}
STATEMENTS = read_statements("durio.stores.postgres", "$", PARTS)


def statement(name: str) -> str:
    """Return the text of a statement, with `{schema}` still in it."""
    return STATEMENTS[name]


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier, whatever characters it contains."""
    return '"' + name.replace('"', '""') + '"'


class SchemaStatements(dict[str, str]):
    """The SQL statements for one schema, each built on first use."""

    def __init__(self, schema: str) -> None:
        super().__init__()
        self.schema = quoted(schema)

    def __missing__(self, sql: str) -> str:
        """Insert the schema's name with `replace`, because SQL has braces of its own."""
        filled = self[sql] = sql.replace(SCHEMA, self.schema)
        return filled
