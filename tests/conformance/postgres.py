"""PostgreSQL as a subject of the conformance suite: an empty schema for every promise.

The schema is created once. Before each promise its tables are emptied, which takes a few
milliseconds, where creating them takes about a hundred.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from durio.ports.clock import Clock
from durio.ports.store import Store
from durio.stores.postgres import schema_status
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.driver import Connector, DriverError, PostgresLocation
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.scratch_schema import empty_schema
from durio.stores.postgres.store import PostgresStore
from tests.conformance.subject import Opener, Subject

HELD_PLACES = """
select p.gate, count(*)
from {schema}.job as b cross join lateral {schema}.places_1(b.ties, b.held) as p
where b.held is not null group by p.gate
"""
FORGET = "delete from {schema}.worker where id = $1::int4"


@dataclass
class PostgresFault:
    """Fails the nth statement of the next write on the store's connections."""

    connections: Connections
    left: int = 0
    met: bool = False

    def arm(self, nth: int) -> None:
        self.left, self.met = nth, False
        self.connections.on_statement = self.look

    def disarm(self) -> bool:
        self.connections.on_statement = None
        return self.met

    def look(self, statement: str) -> None:
        # Statements that clean up after the fault succeed.
        if self.met or self.left <= 0:
            return
        self.left -= 1
        if self.left == 0:
            self.met = True
            raise DriverError(f"planted at: {statement[:60]}", state="53100")
        if statement == "commit":
            self.left = 0  # the write is over; what follows is another one


def fault(store: Store) -> PostgresFault:
    assert isinstance(store, PostgresStore)
    return PostgresFault(store.context.connections)


async def count_places(store: Store) -> dict[str, int]:
    """Return how many jobs hold a place, by gate; those that are deferred are free."""
    assert isinstance(store, PostgresStore)
    return dict(await store.context.connections.read(HELD_PLACES))


async def forget_worker(store: Store, worker: int) -> None:
    assert isinstance(store, PostgresStore)
    await store.context.connections.write_one(FORGET, worker)


@dataclass
class ScratchSchema:
    """One schema in one server, used for one promise after the other."""

    url: str
    location: PostgresLocation = field(init=False)

    def __post_init__(self) -> None:
        self.location = location_from_url(self.url)
        schema_status.migrate(self.url)

    def clear(self) -> None:
        """Empty every table, and restart the sequences."""
        asyncio.run(self.empty())

    async def empty(self) -> None:
        """Do what `clear` does, on a loop that runs."""
        place = replace(self.location, prepared=False)
        connection = await Connector(place, lambda _text: None).connect()
        try:
            await empty_schema(connection, self.location.schema)
        finally:
            await connection.close()

    def opener(self) -> Opener:
        """Return a function that opens one more store on the same schema."""

        @asynccontextmanager
        async def open_store(clock: Clock) -> AsyncGenerator[Store]:
            store = PostgresStore(self.location, clock, injected=clock)
            await store.open()
            try:
                yield store
            finally:
                await store.close()

        return open_store

    def subject(self) -> Subject:
        """Return the subject for the suite."""
        return Subject(
            open_store=self.opener(),
            open_second=self.opener(),
            fault=fault,
            forget_worker=forget_worker,
            sees_deaths_here=True,
            count_places=count_places,
            has_transactions=True,
        )
