"""What the store asks of a driver: one connection, its answers, its failures.

SQL has `$1`, `$2` ... for every driver, each cast where it stands. Ids are 16 bytes on
our side and `uuid` on the server's. No exception of a driver leaves its adapter: there
is only `DriverError`, and translate.py says what it means.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

# Indexable and iterable like a tuple; some drivers have a type of their own for it.
Row = tuple[Any, ...]
# Who hears a channel: gets the payload, on the loop of the connection.
Hear = Callable[[str], None]
ID_CAST = re.compile(r"\$(\d+)::uuid\b(\[\])?")


class DriverError(Exception):
    """The server refused something, or cannot be reached any more.

    `state` is PostgreSQL's five letters, empty when the server said nothing. `lost` says
    that the connection is gone: what was under way may have happened or not, unless it
    was `unsent`.
    """

    def __init__(
        self,
        text: str,
        *,
        state: str = "",
        detail: str = "",
        lost: bool = False,
        unsent: bool = False,
    ) -> None:
        super().__init__(text)
        self.was_open = True  # False: it happened while connecting
        self.text = text
        self.state = state
        self.detail = detail
        self.lost = lost
        self.unsent = unsent


@dataclass(frozen=True, slots=True)
class Place:
    """Where a database is, how to enter it, and how we use it there."""

    dsn: str  # what drivers understand: our own options are taken out of it
    shown: str  # for people: without the password
    schema: str = "durio"
    driver: str = "asyncpg"
    notify: bool = True
    is_split: bool = False  # exchange by keys, for servers that have no row addresses
    prepared: bool | None = None  # None: unless something pools connections in between
    connect_seconds: float = 10.0
    call_seconds: float = 30.0
    settings: Mapping[str, str] = field(default_factory=dict[str, str])


class Connection(Protocol):
    """One connection of one event loop; one call at a time.

    A call that is cancelled leaves it in an unknown state: terminate it.
    """

    @property
    def pid(self) -> int:
        """The process that the other side says it is."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether it is known to be of no more use."""
        ...

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """One statement and all of its rows; its own transaction unless one is begun."""
        ...

    async def run(self, sql: str) -> str:
        """Statements without parameters, in one round trip; what the last one did."""
        ...

    async def listen(self, channel: str, hear: Hear) -> None:
        """Hear this channel from now on, also while nothing is asked."""
        ...

    async def unlisten(self, channel: str) -> None:
        """No more."""
        ...

    async def close(self) -> None:
        """Say goodbye, a bounded time."""
        ...

    def terminate(self) -> None:
        """Cut it at once, whatever is under way."""
        ...

    def abandon(self, *, inherited: bool) -> None:
        """Forget it without its event loop, which is gone or another process's.

        One that is `inherited` hears no word of it: the other process still uses it.
        """
        ...


class Driver(Protocol):
    """Makes connections."""

    async def connect(
        self, place: Place, settings: Mapping[str, str], *, prepared: bool
    ) -> Connection:
        """A new one, with these settings of the server for its whole life.

        `prepared`: statements may be kept prepared on the server.
        """
        ...


@lru_cache(maxsize=1000)
def ids_in(sql: str) -> tuple[tuple[int, bool], ...]:
    """Which parameters of a statement are ids, from 0, and whether they are lists."""
    found = {int(number) - 1: bool(many) for number, many in ID_CAST.findall(sql)}
    return tuple(found.items())
