"""A URL names a store: the small table from scheme to the module that opens it.

Stores are loaded by name on first use, so that `import durio` loads no driver.
"""

import importlib
from types import ModuleType
from urllib.parse import unquote, urlsplit

from durio.model.errors import InvalidURL
from durio.model.names import did_you_mean
from durio.model.settings import Settings
from durio.ports.clock import Clock
from durio.ports.store import Store

DEFAULT_URL = "sqlite:///durio.db"
STORES = {"sqlite": "durio.stores.sqlite.url"}


def connect(url: str, clock: Clock, settings: Settings) -> Store:
    """The store behind a URL, not opened yet."""
    return importlib.import_module(module_of(url)).store_at(url, clock, settings)


def survey_of(url: str) -> ModuleType:
    """What looks at this kind of store from outside, without opening it for work."""
    room = module_of(url).rpartition(".")[0]
    return importlib.import_module(f"{room}.survey")


def module_of(url: str) -> str:
    """The module that opens a URL's store."""
    check_text(url)
    module = STORES.get(scheme_of(url))
    if module is None:
        raise InvalidURL(
            f"no store knows the URL {masked(url)!r}",
            cure=f"Use sqlite:///file.db.{did_you_mean(scheme_of(url), STORES)}",
        )
    return module


def check_text(url: str) -> None:
    """No file and no server has a name with a NUL, or with half a character."""
    try:
        fine = isinstance(url, str) and "\0" not in unquote(url) and url.encode()
    except UnicodeEncodeError:
        fine = False
    if not fine:
        raise InvalidURL(
            f"{str(url)[:80]!r} cannot be the URL of a store",
            cure="Give text such as sqlite:///jobs.db.",
        )


def scheme_of(url: str) -> str:
    """What stands before `://`."""
    return url.partition("://")[0].lower() if "://" in url else url.partition(":")[0]


def masked(url: str) -> str:
    """A URL without its password, for people and logs."""
    try:
        parts = urlsplit(url)
        if parts.password is None:
            return url
    except ValueError:
        return url.partition("://")[0] + "://..."
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username}:***@{host}").geturl()
