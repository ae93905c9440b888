"""Complete the commands in cures, so that they name the App or its store.

A store does not know the App, so the command in its error lacks the flags. They are added
here, and the command can be pasted.
"""

import os
import re
import sys
from collections.abc import Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from durio.app.configuration import Configuration
from durio.app.connect import absolute_url, is_in_memory, masked
from durio.model.errors import StoreError
from durio.ports.store import Store

# Commands that errors and the doctor advise, up to where flags for the store belong.
COMMAND = re.compile(
    r"durio (?:migrate|(?:jobs|plans) (?:show|retry) [0-9a-f-]{36}|(?:jobs|plans) ls"
    r"|jobs (?:run|cancel) [0-9a-f-]{36}|jobs rename [\w.:-]++ [\w.:-]++|why [0-9a-f-]{36}"
    r"|worker(?= -q|$)|workers stack \d++"
    r"|dead (?:ls|retry)"
    r"|schedules (?:ls|(?:show|resume|rm|reset|edit) [\w.:-]++)"
    r"|breakers reset [\w.:-]++"
    r"|queues resume [\w.:-]++|limits (?:show|reset) [\w.:*'-]++"
    r"|limits set [\w.:*'-]++(?: \d++(?:\.\d++)?+(?:/[\d.]*+[smhd])?+)++"
    r")(?! --(?:app|store))"
)
UNQUOTED = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
SECRET = "***"  # noqa: S105 - what is shown in its place
MAIN = "__main__"
# Where Apps were found, because a search looks at every loaded module.
PATHS: "WeakKeyDictionary[object, str | None]" = WeakKeyDictionary()


class StoreUser(Protocol):
    """The part of an App that says which store it uses and what names that store."""

    origin: str | None
    configuration: Configuration

    @property
    def url(self) -> str: ...

    @property
    def folder(self) -> str: ...


async def open_store(store: Store, app: StoreUser) -> None:
    """Open a store; the cure of an error names this App's store."""
    try:
        await store.open()
    except StoreError as error:
        error.cure = with_flags(error.cure, app)
        raise


def with_flags(text: str, app: StoreUser) -> str:
    """Return the cure with flags for the store of this App after its commands."""
    if COMMAND.search(text) is None or is_in_memory(app.url):
        return text
    flags = store_flags(app)
    note = f"\nPut the password in place of {SECRET}." if SECRET in flags else ""
    return COMMAND.sub(lambda found: found[0] + flags, text) + note


def store_flags(app: StoreUser) -> str:
    """Return flags that name the store, each after a space; empty if none are needed."""
    known = app.configuration
    path = app.origin
    if path is None and known.origin("url").kind == "code":
        path = path_of(app)
    flags = "" if path is None else f" --app {path}"
    is_typed = app.url != known.url or known.origin("url").kind == "code"
    if app.url != known.url or (path is None and is_typed):
        flags += f" --store {quoted(masked(absolute_url(app.url, app.folder)))}"
    return flags


def quoted(text: str) -> str:
    """Quote text for a shell, as `shlex.quote` does, without its import."""
    if UNQUOTED.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


def path_of(app: object) -> str | None:
    """Return `module:attribute` of an App that is a global of a loaded module."""
    if app not in PATHS:
        PATHS[app] = found_path(app)
    return PATHS[app]


def found_path(app: object) -> str | None:
    # A value may be None, which blocks the import, or any other object.
    loaded = [
        (name, getattr(module, "__dict__", {}))
        for name, module in list(sys.modules.items())
    ]
    # The program last: it may import the App from its module, and would run again.
    for module, values in sorted(loaded, key=lambda each: each[0] == MAIN):
        for name, value in list(values.items()):
            if value is app and (place := importable_name(module, values)):
                return f"{place}:{name}"
    return None


def importable_name(module: str, values: Mapping[str, Any]) -> str | None:
    """Return the name by which another process can import a module; None: it cannot."""
    if module != MAIN:
        return module
    folder, file = os.path.split(str(values.get("__file__") or ""))
    try:
        is_here = os.path.abspath(folder) == os.getcwd()  # noqa: PTH100, PTH109
    except OSError:  # the current folder was deleted
        return None
    return file.removesuffix(".py") if is_here and file.endswith(".py") else None
