"""SQL lives in files: one statement each, named by its verb, read once at import.

`{schema}` stands for the schema's quoted name. It is filled where a statement meets a
connection (lines.py), once per text: several stores of a process may differ in it.
"""

from importlib.resources import files

FOLDER = files("durio.stores.postgres").joinpath("sql")
SCHEMA = "{schema}"


def statement(name: str) -> str:
    """The text of `sql/<name>.sql`, with `{schema}` still in it."""
    return FOLDER.joinpath(f"{name}.sql").read_text(encoding="utf-8")


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


class Filled(dict[str, str]):
    """Each statement with the name of one schema in it, made at its first use."""

    def __init__(self, schema: str) -> None:
        super().__init__()
        self.schema = quoted(schema)

    def __missing__(self, sql: str) -> str:
        """Fill it; a plain replace, for SQL has braces of its own."""
        filled = self[sql] = sql.replace(SCHEMA, self.schema)
        return filled
