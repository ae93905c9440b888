"""Checks of a PostgreSQL store for `durio doctor`; they write nothing.

One connection serves all checks: the first check opens it, the last one closes it. If the
server cannot be reached, that is the only finding.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from durio.model.errors import DurioError
from durio.model.finding import Finding, error, fine, warning
from durio.model.ids import id_made_at
from durio.model.quantities import format_duration
from durio.model.settings import DAY
from durio.ports.browse import moment_in_words
from durio.ports.clock import Clock
from durio.stores.postgres.driver import (
    PLANNER,
    PREPARED_ELSEWHERE,
    Connection,
    Connector,
    DriverError,
    PostgresLocation,
    Row,
    time_limit,
)
from durio.stores.postgres.finished_jobs import day_of_partition, partition_name
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.schema import migration_status
from durio.stores.postgres.statements import SchemaStatements, quoted, statement
from durio.stores.postgres.task_connection import schema_tag
from durio.stores.postgres.transaction import ReadTransaction
from durio.stores.postgres.translate import GRANTS, SLOTS, translated


@dataclass(slots=True)
class Probe:
    """The connection for all checks; None if the server could not be reached."""

    location: PostgresLocation
    connector: Connector = field(init=False)
    warnings: list[str] = field(default_factory=list[str])
    connection: Connection | None = None

    def __post_init__(self) -> None:
        self.connector = Connector(self.location, self.warnings.append)

    async def rows(self, sql: str, *args: Any) -> list[Row]:
        """Run one statement in a read-only transaction; no rows without a connection."""
        connection = self.connection
        if connection is None:
            return []
        async with self._translating():
            await connection.run(self.connector.begin("begin read only"))
            try:
                reading = ReadTransaction(
                    connection, SchemaStatements(self.location.schema)
                )
                return list(await reading.rows(sql, *args))
            finally:
                with suppress(DriverError):
                    await connection.run("rollback")

    async def connect(self) -> None:
        async with self._translating():
            self.connection = await self.connector.connect()

    async def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(DriverError):
                await connection.close()

    @asynccontextmanager
    async def _translating(self) -> AsyncGenerator[None, None]:
        try:
            async with time_limit(self.location.call_seconds):
                yield
        except DriverError as failure:
            raise translated(failure, self.location) from failure


READ_SERVER = statement("read_server")
READ_MISSING_RIGHTS = statement("read_missing_rights")
READ_SETTINGS = statement("read_settings")
COUNT_CONNECTIONS = statement("count_connections")
READ_DAYS = statement("read_partitions")
IS_DEFAULT_USED = statement("is_default_partition_used")
READ_DEAD_ROWS = statement("read_dead_rows")
FIND_OLDEST_SNAPSHOT = statement("find_oldest_snapshot")
READ_CLOCK = statement("read_clock")
READ_MOVES = statement("read_moves")
FIND_TASK_TRANSACTIONS = statement("find_task_transactions")
NOTIFY = "select pg_notify($1::text, $2::text)"

CALL_SECONDS_MAX = 5.0
NOTIFY_SECONDS_MAX = 1.0
PREPARED_TRIES = 5
FREE_LOW = 10  # free connections; a worker process needs two
DEAD_ROWS_MAX = 100_000
OLD_SECONDS_MAX = 300.0
OLD_AGE_MAX = 1_000_000  # age in transactions, used if the age in seconds is unknown
CLOCK_SECONDS_MAX = 1.0
CHANNEL = "durio_doctor"
NAMED_MAX = 5
# Values of ports.move.ImportStage at which the queues accept no jobs.
CLOSED_STAGES = ("arriving", "opening", "shut")

# Settings that must be on: what may be lost otherwise, and whether all databases are at
# risk.
DURABILITY = {
    "fsync": ("a power cut may corrupt the whole database", True),
    "full_page_writes": ("a power cut may leave half-written pages", True),
    "synchronous_commit": ("a crash may lose the most recent jobs", False),
}

_mark_decoder = msgspec.json.Decoder(dict[str, Any])

Findings = AsyncIterator[Finding]
Check = Callable[[], Findings]


def checks(url: str, clock: Clock) -> dict[str, Check]:
    """Return all checks of this store by name; `store_at` has accepted the URL."""
    given = location_from_url(url)
    seconds = min(given.call_seconds, CALL_SECONDS_MAX)
    probe = Probe(replace(given, call_seconds=seconds))
    asked: Mapping[str, Callable[..., Findings]] = {
        "store.place": reachable,
        "store.schema": schema,
        "store.rights": rights,
        "store.writable": writable,
        "store.blocks": task_transactions,
        "store.durability": durability,
        "store.connections": connections,
        "store.pooler": pooler,
        "store.listen": listen,
        "store.planner": planner,
        "store.history": finished_jobs,
        "store.dead_rows": dead_rows,
        "store.horizon": horizon,
        "store.move": moves,
    }
    found: dict[str, Check] = {
        name: partial(check, probe) for name, check in asked.items()
    }
    return found | {"store.clock": partial(clocks, probe, clock)}


# --- connecting


async def reachable(probe: Probe) -> Findings:
    """Check that the server answers and that its version is supported."""
    await probe.connect()
    version, user = (await probe.rows(READ_SERVER))[0][:2]
    text = f"{probe.location.shown}: PostgreSQL {version}, as {user}"
    yield fine("store.place", text)


async def pooler(probe: Probe) -> Findings:
    """Check that a pooler, if there is one, keeps prepared statements."""
    name, connection = "store.pooler", probe.connection
    if connection is None:
        return
    if not probe.connector.is_pooled:
        yield fine(name, "no pooler between here and the server")
        return
    if probe.location.prepared is not True:
        yield fine(name, "behind a pooler: prepared statements are off")
        return
    try:
        for _ in range(PREPARED_TRIES):
            await connection.rows("select 1", ())
    except DriverError as failure:
        if failure.state not in PREPARED_ELSEWHERE:
            raise translated(failure, probe.location) from failure
        fix = "Take ?prepared=on out of the URL, or give PgBouncer 1.21 or later a "
        fix += "max_prepared_statements above 0."
        yield error(name, f"it loses prepared statements: {failure.text}", fix)
        return
    yield fine(name, "behind a pooler that keeps prepared statements")


async def listen(probe: Probe) -> Findings:
    """Check that a notification from another connection arrives."""
    name, connection = "store.listen", probe.connection
    if connection is None:
        return
    if not probe.location.notify:
        yield fine(name, "notify=off: workers poll for jobs")
        return
    received = asyncio.Event()
    payload = f"{connection.pid}"

    def on_notification(text: str) -> None:
        if text == payload:
            received.set()

    try:
        async with asyncio.timeout(NOTIFY_SECONDS_MAX):
            await connection.listen(CHANNEL, on_notification)
            await notify(probe, payload)
            await received.wait()
            await connection.unlisten(CHANNEL)
    except (TimeoutError, DriverError) as failure:
        yield listen_failed(probe, failure)
    else:
        yield fine(name, "LISTEN and NOTIFY work: workers wake up at once")


def listen_failed(probe: Probe, failure: TimeoutError | DriverError) -> Finding:
    """Return the finding for a missing notification; a pooler is the likely cause."""
    text, fix = "does not work here", "Let workers connect without a pooler in "
    fix += "transaction mode, or leave it so."
    why = (
        failure.text if isinstance(failure, DriverError) else "no notification arrived"
    )
    if isinstance(failure, DriverError) and not probe.connector.is_pooled:
        text = text if failure.was_open else "was not tried: it takes two connections"
        fix = translated(failure, probe.location).cure
    text = f"LISTEN {text} ({why}); without it workers poll every 0.25 s"
    return warning("store.listen", text, fix)


async def notify(probe: Probe, payload: str) -> None:
    """Notify from another connection: a pooler could return our own payload with a reply."""
    other = await probe.connector.connect()
    try:
        await other.rows(NOTIFY, (CHANNEL, payload))
    finally:
        await other.close()


async def planner(probe: Probe) -> Findings:
    """Check that the planner settings that hot statements rely on are in effect."""
    name, rows = "store.planner", await probe.rows(READ_SETTINGS, list(PLANNER))
    if not rows:
        return
    others = [name for name, value in rows if value != PLANNER[name]]
    if others:
        text = f"a pooler does not pass on {', '.join(others)}"
        fix = "; ".join(
            f"alter role ROLE set {name} = {PLANNER[name]}" for name in others
        )
        yield warning(name, text, f"{fix};")
    else:
        yield fine(name, "query plans use the indexes")


async def clocks(probe: Probe, clock: Clock) -> Findings:
    """Compare the clocks: producers set due times, the server sets leases and ages.

    This is the last check. It closes the connection.
    """
    before = clock.now()
    try:
        rows = await probe.rows(READ_CLOCK)
    finally:
        await probe.close()
    if not rows:
        return
    after = clock.now()
    ahead = rows[0][0] - (before + after) / 2
    name, text = "store.clock", f"the server's clock is {abs(ahead):.2f} s "
    text += "ahead of ours" if ahead > 0 else "behind ours"
    if abs(ahead) > CLOCK_SECONDS_MAX + (after - before):
        fix = "Run an NTP client on both hosts: jobs with `at` run early or late."
        yield warning(name, text, fix)
    else:
        yield fine(name, text)


# --- schema and rights


async def schema(probe: Probe) -> Findings:
    """Check that this release and the schema fit each other."""
    name, connection = "store.schema", probe.connection
    if connection is None:
        return
    reading = ReadTransaction(connection, SchemaStatements(probe.location.schema))
    try:
        seen = await migration_status(reading)
    except DriverError as failure:
        trouble = translated(failure, probe.location)
        yield error(name, trouble.what, trouble.cure)
        return
    if seen.newer:
        text = f"newer than this code: {', '.join(seen.newer)}"
        yield error(name, text, "Upgrade durio here.")
    elif seen.changed:
        text = f"its migrations differ from this release: {', '.join(seen.changed)}"
        yield error(name, text, "Use the release that made it, or another schema.")
    elif seen.waiting:
        how = "older than this code" if seen.applied else "no schema yet"
        text = f"{how}: {', '.join(seen.waiting)} not applied"
        yield error(name, text, "Run: durio migrate")
    else:
        yield fine(name, f"{probe.location.schema}: {seen.applied[-1]}")


async def rights(probe: Probe) -> Findings:
    """Check that this role may read and write every table and call every function."""
    name, rows = (
        "store.rights",
        await probe.rows(READ_MISSING_RIGHTS, probe.location.schema),
    )
    if not rows:
        return
    lacking = [(thing, right) for thing, right in rows if right is not None]
    if lacking:
        text = ", ".join(f"{right} on {thing}" for thing, right in lacking[:NAMED_MAX])
        more = len(lacking) - NAMED_MAX
        text += f" and {more} more" if more > 0 else ""
        role = (await probe.rows(READ_SERVER))[0][1]
        names = {"name": quoted(probe.location.schema), "role": quoted(role)}
        yield error(name, f"this role lacks {text}", GRANTS.format(**names))
    else:
        yield fine(name, "this role may read and write every table")


async def writable(probe: Probe) -> Findings:
    """Check that the server is no replica and default_transaction_read_only is off."""
    rows = await probe.rows(READ_SERVER)
    if not rows:
        return
    _, _, is_replica, is_read_only = rows[0]
    name = "store.writable"
    if is_replica:
        fix = "Name the primary, or several hosts and ?target_session_attrs=read-write."
        yield error(name, "this server is a replica: it accepts no writes", fix)
    elif is_read_only:
        fix = "alter role ROLE reset default_transaction_read_only;"
        yield error(name, "default_transaction_read_only is on", fix)
    else:
        yield fine(name, "it accepts writes")


async def task_transactions(probe: Probe) -> Findings:
    """Find tasks' own transactions that this login role could not terminate."""
    for role, count in await probe.rows(
        FIND_TASK_TRANSACTIONS, schema_tag(probe.location.schema)
    ):
        text = f"{count} transactions of tasks are of the role {role}: this one could "
        text += "not end them if their worker dies, and their locks would stay"
        fix = "Let all workers log in by one role, or: grant pg_signal_backend to ROLE;"
        yield warning("store.blocks", text, fix)


# --- server settings


async def durability(probe: Probe) -> Findings:
    """Check that an acknowledged commit is on disk."""
    name, rows = "store.durability", await probe.rows(READ_SETTINGS, list(DURABILITY))
    off = [setting for setting, value in rows if value == "off"]
    for setting in off:
        cost, is_error = DURABILITY[setting]
        fix = f"alter system set {setting} = on; select pg_reload_conf();"
        make = error if is_error else warning
        yield make(name, f"{setting} is off: {cost}", fix)
    if rows and not off:
        yield fine(name, ", ".join(f"{setting} {value}" for setting, value in rows))


async def connections(probe: Probe) -> Findings:
    """Check that the server has free connections."""
    rows = await probe.rows(COUNT_CONNECTIONS)
    if not rows:
        return
    used, most, ours = rows[0]
    name, text = "store.connections", f"{used} of {most} in use, {ours} by this role"
    if most - used < FREE_LOW:
        yield warning(name, text, SLOTS)
    else:
        yield fine(name, text)


# --- contents


async def finished_jobs(probe: Probe) -> Findings:
    """Check that today and tomorrow have a partition.

    Without one, finished jobs are not dropped by the day.
    """
    try:
        rows = await probe.rows(READ_DAYS, None)
        is_used = bool(await probe.rows(IS_DEFAULT_USED))
    except DurioError:
        return  # no schema or no rights, which other checks report
    if not rows:
        return
    name, today = "store.history", int(rows[0][0] // DAY)
    known = {day_of_partition(row[2]) for row in rows} - {None}
    missing = [partition_name(d) for d in (today, today + 1) if d not in known]
    text = f"{len(known)} days"
    if not missing and not is_used:
        yield fine(name, text)
    elif is_used:
        text += ", and jobs in hist_default: they leave row by row"
        fix = "Let a worker whose role owns the schema run: it makes the days ahead."
        yield warning(name, text, fix)
    else:
        yield fine(name, f"{text}; a worker makes {', '.join(missing)}")


async def dead_rows(probe: Probe) -> Findings:
    """Check that lane tables have few dead row versions, so that vacuum keeps claims fast."""
    try:
        rows = await probe.rows(READ_DEAD_ROWS)
    except DurioError:
        return
    if not rows:
        return
    name = "store.dead_rows"
    text = ", ".join(f"{lane} {dead:,}" for lane, dead, _ in sorted(rows))
    if max(row[1] for row in rows) > DEAD_ROWS_MAX:
        schema_name = SchemaStatements(probe.location.schema).schema
        lanes = ", ".join(f"{schema_name}.{row[0]}" for row in sorted(rows))
        fix = f"End old transactions (store.horizon), then: vacuum {lanes};"
        yield warning(name, f"dead row versions: {text}", fix)
    else:
        yield fine(name, f"dead row versions: {text}")


async def horizon(probe: Probe) -> Findings:
    """Check that no transaction is so old that vacuum cannot remove row versions."""
    if probe.connection is None:
        return
    rows = await probe.rows(FIND_OLDEST_SNAPSHOT)
    name = "store.horizon"
    if not rows:
        yield fine(name, "no transaction keeps old row versions alive")
        return
    kind, who, what, seconds, age = rows[0]
    for_long = f"for {format_duration(seconds)}, " if seconds is not None else ""
    text = f"{kind} {who} ({what}): {for_long}{age or 0:,} transactions"
    too_old = (seconds or 0.0) > OLD_SECONDS_MAX
    if too_old or (seconds is None and (age or 0) > OLD_AGE_MAX):
        fix = "End it; set idle_in_transaction_session_timeout. Until then claims "
        fix += "become slower."
        yield warning(name, f"old row versions are kept alive by {text}", fix)
    else:
        yield fine(name, f"the oldest: {text}")


async def moves(probe: Probe) -> Findings:
    """Find queues that are closed until a move has ended."""
    try:
        rows = await probe.rows(READ_MOVES)
    except DurioError:
        return
    for move, body in rows:
        mark = _mark_decoder.decode(body)
        if mark["stage"] not in CLOSED_STAGES:
            continue
        began, origin = moment_in_words(id_made_at(bytes.fromhex(move))), mark["from"]
        text = (
            f"a move from {origin}, begun {began}, is not finished: its queues are "
            "closed"
        )
        fix = (
            f"Where that file is: durio move sqlite:///{origin} {probe.location.shown} "
        )
        fix += "goes on with it (with its password); --back-out takes it back."
        yield warning("store.move", text, fix)
