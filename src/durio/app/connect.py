"""Map a URL's scheme to the module of its store.

Store modules are imported by name on first use, so that `import durio` loads no driver.
"""

import importlib
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Literal

from durio.model.errors import InvalidURL, UsageError
from durio.model.names import did_you_mean
from durio.model.settings import Settings
from durio.ports.clock import Clock
from durio.ports.store import Store

DEFAULT_URL = "sqlite:///durio.db"
# Matches up to the last @: a password may contain characters that should be quoted.
PASSWORD = re.compile(r"^([^:/?#]+://[^:/?#@]*):.*@", re.DOTALL)
SECRETS = re.compile(r"(?i)([?&](?:\w*password|\w*secret|\w*token|passwd)=)[^&#]*")
STORES = {
    "sqlite": "durio.stores.sqlite.store",
    "postgresql": "durio.stores.postgres.store",
    "postgres": "durio.stores.postgres.store",
}
FILE_SCHEME = "sqlite"
LOADING: list[str] = []  # scripts that a child process is loading for their tasks


def connect(
    url: str,
    clock: Clock,
    settings: Settings,
    folder: str = "",
    *,
    sets_time: bool = False,
) -> Store:
    """Return the store of a URL, not opened yet; its paths are relative to `folder`.

    With `sets_time` a server also compares due times with `clock`, not with its own time.
    """
    if LOADING:
        raise UsageError(
            f"{LOADING[-1]} uses its store or starts a worker when it is imported; "
            "child processes import it too, for tasks with process=True",
            cure='Move that code below: if __name__ == "__main__":',
        )
    return importlib.import_module(module_of(url)).store_at(
        url, clock, settings, folder, sets_time=sets_time
    )


@contextmanager
def loading(script: str) -> Generator[None, None, None]:
    """Refuse `connect` while a script is loaded again, because it must only declare tasks."""
    LOADING.append(script)
    try:
        yield
    finally:
        LOADING.pop()


def store_module(
    url: str, name: Literal["schema_status", "checks", "scratch_schema"]
) -> ModuleType:
    """Return a module of this kind of store, for use without an open store."""
    package = module_of(url).rpartition(".")[0]
    return importlib.import_module(f"{package}.{name}")


def module_of(url: str) -> str:
    check_text(url)
    module = STORES.get(scheme_of(url))
    if module is None:
        is_name = url.isidentifier()  # App("shop"), as Celery("shop")
        raise InvalidURL(
            f"unknown kind of store: {masked(url)!r}",
            cure="Use sqlite:///file.db or postgresql://user:password@host/database."
            f"{did_you_mean(scheme_of(url), STORES)}"
            + (f' For the name of an App write App(name="{url}").' if is_name else ""),
        )
    return module


def check_text(url: str) -> None:
    """Refuse a URL that is not text, contains a NUL or cannot be encoded as UTF-8."""
    try:
        holds_nul = "\0" in url or "%00" in url
        fine = isinstance(url, str) and not holds_nul and url.encode()
    except (UnicodeEncodeError, TypeError):
        fine = False
    if not fine:
        raise InvalidURL(
            f"{str(url)[:80]!r} cannot be the URL of a store",
            cure="Give text such as sqlite:///jobs.db.",
        )


def is_server(url: str) -> bool:
    """Return whether the store is a server, which unrelated programs may share."""
    return scheme_of(url) in STORES and scheme_of(url) != FILE_SCHEME


def current_folder() -> str:
    """Return the base of relative paths, kept in case the process changes its directory."""
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib costs an import
    except OSError:  # the folder was deleted, so only absolute paths work
        return ""


def absolute_url(url: str, folder: str) -> str:
    """Return the URL with an absolute path; other URLs are returned unchanged."""
    scheme, _, path = url.partition(":///")
    if scheme.lower() != FILE_SCHEME or path.startswith("/") or is_in_memory(url):
        return url
    quoted = folder.replace("%", "%25").replace("?", "%3F")
    return f"{scheme}:///{quoted}/{path.removeprefix('./')}"


def is_in_memory(url: str) -> bool:
    """Whether the jobs are lost when the process ends."""
    return isinstance(url, str) and url.partition("?")[0].endswith(":///:memory:")


def scheme_of(url: str) -> str:
    return url.partition("://")[0].lower() if "://" in url else url.partition(":")[0]


def masked(url: str) -> str:
    """Return a URL without its password, for people and logs."""
    return SECRETS.sub(r"\1***", PASSWORD.sub(r"\1:***@", url))
