"""The PostgreSQL store: any number of hosts, one truth, as the sum of its capabilities."""

from durio.model.errors import StoreUnavailable
from durio.model.settings import RetentionSettings
from durio.ports.clock import Clock
from durio.ports.store import Stall, Wake
from durio.stores.postgres.bell import DEAF, HEARS, Bell
from durio.stores.postgres.browse import PostgresBrowse
from durio.stores.postgres.control import PostgresControl
from durio.stores.postgres.desk import Desk
from durio.stores.postgres.driver import Place
from durio.stores.postgres.ears import Ears
from durio.stores.postgres.enqueue import PostgresEnqueue
from durio.stores.postgres.exchange import PostgresExchange
from durio.stores.postgres.finish import PostgresFinish
from durio.stores.postgres.fork import forget_forks, watch_forks
from durio.stores.postgres.lease import PostgresLease
from durio.stores.postgres.lines import Lines
from durio.stores.postgres.live import PostgresLive
from durio.stores.postgres.local import local_of
from durio.stores.postgres.opening import Opening, Warn
from durio.stores.postgres.same import where_is
from durio.stores.postgres.schema import (
    MigrationStatus,
    check_complete,
    migration_status,
)
from durio.stores.postgres.transactions import PostgresTransactions
from durio.stores.postgres.upkeep import PostgresUpkeep


def in_silence(_text: str) -> None:
    """Nobody wants to know."""


class PostgresStore(
    PostgresEnqueue,
    PostgresExchange,
    PostgresFinish,
    PostgresLease,
    PostgresUpkeep,
    PostgresControl,
    PostgresBrowse,
    PostgresLive,
    PostgresTransactions,
):
    """Every method may be awaited from any event loop of the process."""

    def __init__(
        self,
        place: Place,
        clock: Clock,
        *,
        injected: Clock | None = None,
        retention: RetentionSettings | None = None,
        warn: Warn = in_silence,
    ) -> None:
        """A store at that place.

        `clock` is this process's, for pauses and waits; due times, ages and leases go by
        the server's, or by `injected` where a test wants to say what time it is.
        """
        self._place = place
        self._clock = clock
        self._injected = injected
        self._retention = retention or RetentionSettings()
        self.warn = warn
        self._desk: Desk | None = None

    @property
    def desk(self) -> Desk:
        """The parts of the open store."""
        if self._desk is None:
            raise StoreUnavailable(
                f"{self._place.shown} is not open", cure="Await `open()` first."
            )
        return self._desk

    async def open(self) -> None:
        """Connect and check the schema; an older one is for `durio migrate`."""
        if self._desk is not None:
            return
        desk = self._new_desk()
        try:
            check_complete(await desk.lines.read_many(migration_status), self._place)
            await desk.ears.look()
            desk.local.where = await where_is(desk)
        except BaseException:
            await desk.lines.close()
            raise
        if self._desk is not None:  # somebody else was quicker
            await desk.lines.close()
            return
        self._desk = desk
        watch_forks(self)

    async def close(self) -> None:
        """Answer what waits, then close."""
        desk, self._desk = self._desk, None
        if desk is None:
            return
        forget_forks(self)
        await desk.ears.close()
        await desk.bell.close()
        await desk.lines.close()
        desk.local.close()

    async def wait(self, worker: int, timeout_seconds: float) -> Wake:
        """Until somebody rings this worker, or the time is over."""
        return await self.desk.bell.wait(worker, timeout_seconds)

    def stall(self) -> Stall | None:
        """No writer waits for all others here."""
        return None

    async def migration_status(self) -> MigrationStatus:
        """Which migrations this schema has."""
        return await self.desk.lines.read_many(migration_status)

    def _new_desk(self) -> Desk:
        lines = Lines(
            Opening(self._place, self.warn),
            self._clock,
            self._injected,
            self._retention,
        )
        bell = Bell(
            lines,
            self._clock,
            self._place.schema,
            notify=self._place.notify,
            changed=lambda hears: self.warn(HEARS if hears else DEAF),
        )
        lines.ring = bell.ring
        return Desk(
            clock=self._clock,
            injected=self._injected,
            retention=self._retention,
            place=self._place,
            lines=lines,
            bell=bell,
            local=local_of(
                self._clock,
                self._injected,
                self.warn,
                is_split=self._place.is_split,
            ),
            ears=Ears(lines, self._clock, bell, self._place.schema),
        )

    def after_fork_in_child(self) -> None:
        """Connections and ears are the parent's; ours are opened when they are needed."""
        if self._desk is not None:
            self._desk.lines.forget()
            self._desk.bell.forget()
            self._desk.ears.forget()
            self._desk.local.close()
