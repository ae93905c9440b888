"""SQL lives in files: one statement each, named by its verb, read once at import."""

from importlib.resources import files

FOLDER = files("durio.stores.sqlite").joinpath("sql")


def statement(name: str) -> str:
    """The text of `sql/<name>.sql`."""
    return FOLDER.joinpath(f"{name}.sql").read_text(encoding="utf-8")
