"""Copy the rows of ended jobs until a store holds millions, spread over 30 days.

The copies differ in their ids, which grow with their times, and in the numbers of their
deaths. A tenth of all jobs is dead. The counters of dead letters and the groups of errors
count the copies too.
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from msgspec.structs import replace

from benchmarks.dashboard_workload import (
    APP_NAME,
    DAY,
    DAYS,
    KNOWN_FRAMES,
    WORKERS,
    Workload,
)
from benchmarks.postgres_target import Ask
from durio.client.error_groups import list_groups
from durio.model.effects import Effects
from durio.model.error_groups import group_put
from durio.stores.postgres.finished_jobs import create_partition
from durio.stores.postgres.store import PostgresStore

CHUNK = 100_000
LATEST_SECONDS = 600.0  # the newest copy is this old
FAR = 10 * DAY  # until the lease of a copied worker ends
MIXER = 7919  # a prime: neighbours are copies of different jobs


class Share(NamedTuple):
    """A state, its part of all jobs, and its table on PostgreSQL."""

    state: int
    part: float
    table: str


SHARES = (Share(4, 0.88, "hist"), Share(6, 0.02, "kept"), Share(5, 0.1, "kept"))


class Spread(NamedTuple):
    """Where the copies lie in time: copy n is at `start + n * step`."""

    start: float
    step: float


def spread_of(total: int) -> Spread:
    start = time.time() - DAYS * DAY
    return Spread(start, (DAYS * DAY - LATEST_SECONDS) / max(1, total))


# --- PostgreSQL

# Ids in our format: milliseconds since the epoch, then chance.
POSTGRES_VALUES = {
    "id": """(lpad(to_hex((c.at * 1000)::int8), 12, '0') || '7' ||
      substr(c.chance, 1, 3) || '8' || substr(c.chance, 4, 15))::uuid""",
    "created_at": "c.at",
    "started_at": "c.at + 0.5",
    "finished_at": "c.at + 2.5",
    "run_at": "null",
    "result_until": "case when t.result is not null then c.at + 3600 end",
    "gone_at": f"c.at + {DAYS + 5} * {DAY}::float8",
    "ukey": "null",
    "died_no": "case when t.state = 5 then $6::int8 + c.n + 1 end",
}
POSTGRES_COPY = """
insert into {{schema}}.{table} ({columns})
select {values}
from (
  select n, $3::float8 + n * $4::float8 as at, md5(concat(n, ' ', $5::text, ' ', $6::int8)) as chance
  from generate_series($1::int8, $2::int8) as n
) as c
join {{schema}}.seed as t on t.place = c.n * {mixer} % (select count(*) from {{schema}}.seed)
order by c.n
"""
POSTGRES_SEEDS = """
create table {{schema}}.seed as
select *, row_number() over (order by id) - 1 as place
from {{schema}}.{table} where state = {state}
"""
POSTGRES_COLUMNS = """
select attname::text from pg_attribute
where attrelid = ('{schema}.' || $1::text)::regclass and attnum > 0 and not attisdropped
order by attnum
"""
POSTGRES_WORKERS = """
insert into {{schema}}.worker ({columns})
select {values} from (select * from {{schema}}.worker order by id desc limit 1) as w,
  generate_series(1, $2::int8)
"""


async def fill_postgres(store: PostgresStore, ask: Ask, jobs: int) -> None:
    """Copy ended jobs into `hist` and `kept`."""
    today = int(time.time() // DAY)
    for day in range(today - DAYS - 1, today):
        await store.context.connections.write(
            lambda tx, day=day: create_partition(tx, day, today)
        )
    for share in SHARES:
        await copy_postgres(ask, share, int(jobs * share.part))
    ((dead,),) = await ask("select count(*) from {schema}.kept where state = 5")
    await ask(
        "update {schema}.tally set dead = case when lane = '' then $1::int8 "
        "else dead * $1::int8 / (select dead from {schema}.tally where lane = '') end",
        dead,
    )
    await ask("vacuum analyze")


async def copy_postgres(ask: Ask, share: Share, total: int) -> None:
    """Copy the jobs of one state."""
    names = await columns_of(ask, share.table)
    await ask(POSTGRES_SEEDS.format(table=share.table, state=share.state))
    await ask("alter table {schema}.seed add primary key (place)")
    await ask("analyze {schema}.seed")
    ((deaths,),) = await ask("select coalesce(max(dead), 0) from {schema}.tally")
    sql = POSTGRES_COPY.format(
        table=share.table,
        columns=", ".join(names),
        values=", ".join(POSTGRES_VALUES.get(name, f"t.{name}") for name in names),
        mixer=MIXER,
    )
    start, step = spread_of(total)
    for first in range(0, total, CHUNK):
        last = min(first + CHUNK, total) - 1
        await ask(sql, first, last, start, step, str(share.state), deaths)
    await ask("drop table {schema}.seed")


async def columns_of(ask: Ask, table: str) -> list[str]:
    return [name for (name,) in await ask(POSTGRES_COLUMNS, table)]


async def add_workers_postgres(ask: Ask) -> None:
    """Add live workers of other hosts: rows of the one that lives."""
    names = [name for name in await columns_of(ask, "worker") if name != "id"]
    values = ["expires_at + $1::float8" if n == "expires_at" else n for n in names]
    sql = POSTGRES_WORKERS.format(columns=", ".join(names), values=", ".join(values))
    await ask(sql, FAR, WORKERS)


# --- SQLite

SQLITE_VALUES = {
    "seq": "null",
    "id": "unhex(printf('%012x', cast(c.at * 1000 as integer)) || '7' || "
    "substr(c.chance, 1, 3) || '8' || substr(c.chance, 4, 15))",
    "created_at": "c.at",
    "started_at": "c.at + 0.5",
    "finished_at": "c.at + 2.5",
    "died_at": "case when t.state = 5 then c.at + 2.5 end",
    "run_at": "null",
    "result_until": "case when t.result is not null then c.at + 3600 end",
    "gone_at": f"c.at + {(DAYS + 5) * DAY}",
    "ukey": "null",
    "died_no": "case when t.state = 5 then :deaths + c.n + 1 end",
}
SQLITE_COPY = """
insert into job ({columns})
select {values}
from (
  with recursive numbers (n) as (
    select :first union all select n + 1 from numbers where n < :last
  )
  select n, :start + n * :step as at, lower(hex(randomblob(16))) as chance from numbers
) as c
cross join seed as t on t.place = c.n * {mixer} % (select count(*) from seed)
"""


def database_at(path: Path) -> Any:
    """Connect to the file; the types of the driver name none for blobs."""
    db: Any = apsw.Connection(str(path))
    db.pragma("busy_timeout", 60_000)
    return db


def fill_sqlite(path: Path, jobs: int) -> None:
    """Copy ended jobs in the one table, all states in the order of their times."""
    db = database_at(path)
    names = [row[1] for row in db.execute("pragma table_info(job)")]
    values = ", ".join(SQLITE_VALUES.get(name, f"t.{name}") for name in names)
    sql = SQLITE_COPY.format(columns=", ".join(names), values=values, mixer=MIXER)
    ((deaths,),) = db.execute("select coalesce(max(dead), 0) from tally")
    steps = max(1, jobs // CHUNK)
    for step in range(steps):
        for share in SHARES:
            total = int(jobs * share.part)
            db.execute("drop table if exists temp.seed")
            db.execute(
                "create temp table seed as select *, "
                "row_number() over (order by seq) - 1 as place "
                "from (select * from job where state = ? order by seq limit 5000)",
                (share.state,),
            )
            db.execute("create unique index temp.seed_place on seed (place)")
            start, distance = spread_of(total)
            given = {"start": start, "step": distance, "deaths": deaths}
            given["first"] = total * step // steps
            given["last"] = total * (step + 1) // steps - 1
            db.execute(sql, given)
    db.execute("drop table temp.seed")
    ((dead,),) = db.execute("select count(*) from job where died_at is not null")
    db.execute(
        "update tally set dead = iif(queue = '', ?, dead * ? / ?)",
        (dead, dead, deaths),
    )
    db.pragma("wal_checkpoint(truncate)")
    db.close()


def add_workers_sqlite(path: Path) -> None:
    """Add live workers of other hosts: rows of the one that lives."""
    db = database_at(path)
    names: list[str] = [row[1] for row in db.execute("pragma table_info(worker)")]
    changed = {"id": "null", "expires_at": f"expires_at + {FAR}", "has_life": "0"}
    values = ", ".join(changed.get(name, name) for name in names)
    for _ in range(WORKERS):
        db.execute(
            f"insert into worker ({', '.join(names)}) "  # noqa: S608 - our columns
            f"select {values} from worker order by expires_at limit 1"
        )
    db.close()


# --- both


async def count_copied_errors(load: Workload) -> None:
    """Let the groups of errors count the copies of their jobs."""
    store = await load.app.store()
    groups = [
        each
        for each in await list_groups(store, APP_NAME)
        if each.group.frames != KNOWN_FRAMES
    ]
    counted = sum(each.dead for each in await store.tallies(APP_NAME))
    factor = max(1, counted // max(1, sum(each.group.dead for each in groups)))
    for each in groups:
        group = each.group
        more = replace(group, failed=group.failed * factor, dead=group.dead * factor)
        put = group_put(APP_NAME, each.fingerprint, more, each.version)
        await store.commit(Effects(puts=[put]))
