"""Where the bench measures: fresh stores, one after another, and the bare driver beside."""

from pathlib import Path
from typing import Any, NamedTuple, Protocol

import apsw

from durio.cli.bare import Bare, measure_bare
from durio.model.errors import InvalidURL


class Spent(NamedTuple):
    """What a server has spent so far, on everything that it does."""

    wal_bytes: float
    commits: float
    dead_tuples: float  # row versions that were left behind: updated or deleted


class Ground(Protocol):
    """One kind of store, as the bench uses it."""

    async def fresh(self) -> str:
        """The URL of a store without jobs, as far as there is one."""
        ...

    async def bare(self, jobs: int) -> Bare:
        """What the driver alone reaches there."""
        ...

    async def spent(self) -> Spent | None:
        """What the server has spent until now; None: there is no server."""
        ...

    async def facts(self) -> dict[str, Any]:
        """Which engine this is, and how it is set up."""
        ...

    async def leave(self) -> None:
        """Remove what was made."""
        ...


class SqliteGround:
    """New files in a folder, or one file that somebody named."""

    def __init__(self, folder: Path, url: str | None) -> None:
        if url is not None and ":memory:" in url:
            raise InvalidURL(
                f"{url} lives in one process; the bench starts another",
                cure="Name a file: sqlite:///bench.db.",
            )
        self._folder = folder
        self._url = url
        self._files = 0

    async def fresh(self) -> str:
        """The store that was named, or another new file."""
        return self._url or f"sqlite:///{self._next('bench')}"

    async def bare(self, jobs: int) -> Bare:
        """On a file of its own, as durable as the store."""
        asked = self._url or ""
        synchronous = "normal" if "synchronous=normal" in asked else "full"
        return measure_bare(self._next("bare"), jobs, synchronous)

    async def spent(self) -> Spent | None:
        """There is no server."""
        return None

    async def facts(self) -> dict[str, Any]:
        """The library."""
        return {"sqlite": apsw.sqlite_lib_version()}

    async def leave(self) -> None:
        """The folder goes with the bench; a file that was named stays."""

    def _next(self, name: str) -> Path:
        self._files += 1
        return self._folder / f"{name}-{self._files}.db"
