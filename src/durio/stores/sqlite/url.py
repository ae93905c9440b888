"""`sqlite:///file.db`, `sqlite:////absolute/file.db`, `sqlite:///:memory:`, `?options`."""

import os
from urllib.parse import parse_qsl, unquote

from durio.model.errors import InvalidURL
from durio.model.names import did_you_mean
from durio.model.settings import Settings
from durio.ports.clock import Clock
from durio.stores.sqlite.store import SqliteStore

OPTIONS = {
    "synchronous": ("full", "normal"),
    "life": ("on", "off"),
    "driver": ("apsw", "stdlib"),
}


def store_at(
    url: str, clock: Clock, settings: Settings, folder: str = ""
) -> SqliteStore:
    """The SQLite store that the URL names, not opened yet; a path is from `folder`."""
    where, _, query = url.partition("?")
    prefix = "sqlite:///"
    if not where.lower().startswith(prefix) or len(where) == len(prefix):
        raise InvalidURL(
            f"{url!r} names no file",
            cure="Use sqlite:///file.db, sqlite:////absolute/file.db or "
            "sqlite:///:memory:, with three slashes or four.",
        )
    path = unquote(where[len(prefix) :])
    options = _options(url, query)
    return SqliteStore(
        None if path == ":memory:" else os.path.join(folder, path),  # noqa: PTH118
        clock,
        synchronous="normal" if options.get("synchronous") == "normal" else "full",
        life=options.get("life") != "off",
        retention=settings.retention,
        driver="stdlib" if options.get("driver") == "stdlib" else "apsw",
    )


def _options(url: str, query: str) -> dict[str, str]:
    found = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in found.items():
        allowed = OPTIONS.get(name)
        if allowed is None:
            raise InvalidURL(
                f"{url!r}: there is no option {name!r}",
                cure=f"Options: {', '.join(OPTIONS)}.{did_you_mean(name, OPTIONS)}",
            )
        if value not in allowed:
            raise InvalidURL(
                f"{url!r}: {name} cannot be {value!r}",
                cure=f"Use {' or '.join(allowed)}.",
            )
    return found
