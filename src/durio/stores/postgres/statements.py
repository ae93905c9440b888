"""SQL lives in files: one statement each, named by its verb, read once at import.

What two statements must do alike, to the letter, is a part: `{done}` stands for
`sql/parts/done.sql` in both.

A table that was empty when the server last counted is one row to its planner, until it
counts again: as cheap to walk through as to look into by a key, however full it is by now.
`a.id = b.id` gives it that choice. `a.id = any(array[b.id])` does not: no order of rows
serves it, so that nothing is left but one look into the index for each `b`. In a key of
several columns the first one is enough. Neither do `id = any(array(select ...))`, a lateral
subquery with `offset 0`, and a subquery as a value, where `exists` may become a join.
tests/conformance/test_postgres_plans.py sees to it.

`{schema}` stands for the schema's quoted name. It is filled where a statement meets a
connection (lines.py), once per text: several stores of a process may differ in it.
"""

from importlib.resources import files

FOLDER = files("durio.stores.postgres").joinpath("sql")
SCHEMA = "{schema}"
PARTS = ("done",)


def statement(name: str) -> str:
    """The text of `sql/<name>.sql` with its parts, and `{schema}` still in it."""
    text = FOLDER.joinpath(f"{name}.sql").read_text(encoding="utf-8")
    for part in PARTS:
        if f"{{{part}}}" in text:
            found = FOLDER.joinpath("parts", f"{part}.sql").read_text(encoding="utf-8")
            text = text.replace(f"{{{part}}}", found.rstrip())
    return text


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


class SchemaStatements(dict[str, str]):
    """Each statement with the name of one schema in it, made at its first use."""

    def __init__(self, schema: str) -> None:
        super().__init__()
        self.schema = quoted(schema)

    def __missing__(self, sql: str) -> str:
        """Fill it; a plain replace, for SQL has braces of its own."""
        filled = self[sql] = sql.replace(SCHEMA, self.schema)
        return filled
