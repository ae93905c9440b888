"""Store final jobs, and remove them when their retention ends.

`hist` holds done jobs with the common retention. They are removed by dropping the partition
of a whole day. `kept` holds all other final jobs: dead, cancelled, done with a retention of
their own, and done with a key whose window is longer.

A deleted row leaves a dead version behind; a dropped partition leaves nothing, even while
an old transaction is open. The partitions of today and the next two days are created in
advance. `hist_default` takes jobs that finish while a partition is missing. A role that may
not change the tables deletes row by row instead.

Changes of partitions wait at most 200 ms for their locks; then the next turn tries again.
"""

from datetime import date

from durio.model.errors import StoreError
from durio.model.settings import DAY
from durio.stores.postgres.audit import prune_audit
from durio.stores.postgres.connections import LockWait
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.driver import DEADLOCK, LOCKED, NO_RIGHT, UNIQUE_VIOLATION
from durio.stores.postgres.logs import prune_logs
from durio.stores.postgres.records import prune_records
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

EPOCH = date(1970, 1, 1).toordinal()
PARTITION_PREFIX = "hist_d"


def partition_name(day: int) -> str:
    """Return a name such as `hist_d20270115`; days are counted from 1970-01-01."""
    return f"{PARTITION_PREFIX}{date.fromordinal(EPOCH + day):%Y%m%d}"


def day_of_partition(name: str) -> int | None:
    """Return the day of a partition; None if the name is not that of a day."""
    digits = name.removeprefix(PARTITION_PREFIX)
    if not name.startswith(PARTITION_PREFIX) or len(digits) != len("20270115"):
        return None
    try:
        return date.fromisoformat(digits).toordinal() - EPOCH
    except ValueError:
        return None


READ_PARTITIONS = statement("read_partitions")
MEASURE_PARTITION = statement("measure_partition")
CREATE_PARTITION = statement("create_partition")
LOCK_DEFAULT_PARTITION = statement("lock_default_partition")
MOVE_TO_PARTITION = statement("move_to_partition")
ATTACH_PARTITION = statement("attach_partition")
COUNT_PARTITION = statement("count_partition")
DROP_PARTITION = statement("drop_partition")
SHORT_WAIT = "set local lock_timeout = '200ms'"
SHORT_WORK = "set local statement_timeout = '5s'"  # for a scan of the default partition

DAYS_AHEAD = 2
REST_SECONDS = 600.0
SOON_SECONDS = 10.0  # pause after a lock that was not free
DEFAULT_PARTITION = "hist_default"
# A larger day is not counted before it is dropped, because counting would take too long.
COUNTED_MAX = 100_000
MOVED_BYTES_MAX = 64 * 1024 * 1024
# A lock was not free, another process was faster, or the default partition was filled.
RETRY_STATES = frozenset(
    {LOCKED, DEADLOCK, UNIQUE_VIOLATION, "42P07", "42P17", "23514", "42P01"}
)
STATEMENT_TIMEOUT = "57014"


async def maintain_partitions(context: PostgresContext) -> int:
    """Create missing partitions and drop old ones; return about how many jobs were removed."""
    days, clock = context.process.partitions, context.clock
    if clock.monotonic() < days.next_at:
        return 0
    rows = await context.connections.read(READ_PARTITIONS, context.connections.now)
    now, days.may_change = rows[0][0], bool(rows[0][1])
    days.next_at = clock.monotonic() + REST_SECONDS
    if not days.may_change:
        return 0
    known = {day_of_partition(name): jobs for _, _, name, jobs in rows}
    known.pop(None, None)  # the default partition
    try:
        return await change_partitions(context, known, now)
    except StoreError as error:
        state = error.values.get("state")
        if state in RETRY_STATES:
            days.next_at = clock.monotonic() + SOON_SECONDS
        elif state == NO_RIGHT:  # another role owns the table
            days.may_change = False
        elif state != STATEMENT_TIMEOUT:
            raise
        return 0


async def change_partitions(
    context: PostgresContext, known: dict[int | None, int], now: float
) -> int:
    """Use one transaction per day, so that none keeps its locks while the next one waits."""
    today = int(now // DAY)
    for day in range(today, today + DAYS_AHEAD + 1):
        if day not in known:
            await context.connections.write(
                lambda tx, day=day: create_partition(tx, day, today),
                lock_wait=LockWait.ONE_TURN,
            )
    last = int((now - context.retention.done_seconds) // DAY)
    past = sorted(day for day in known if day is not None and day < last)
    went = 0
    for day in past:
        went += await context.connections.write(
            lambda tx, day=day, about=known[day]: drop_partition(tx, day, about),
            lock_wait=LockWait.ONE_TURN,
        )
    return went


async def create_partition(tx: PostgresTransaction, day: int, today: int) -> None:
    """Create the partition of a day.

    Move its jobs from the default partition, if they are few. If they are many, the day
    stays in the default partition, where jobs are deleted row by row.
    """
    if (
        day == today
        and await tx.value(MEASURE_PARTITION, DEFAULT_PARTITION) > MOVED_BYTES_MAX
    ):
        return
    steps = (
        SHORT_WAIT,
        SHORT_WORK,
        CREATE_PARTITION,
        LOCK_DEFAULT_PARTITION,
        MOVE_TO_PARTITION,
        ATTACH_PARTITION,
    )
    for step in steps:
        if step is not MOVE_TO_PARTITION or day == today:
            await tx.rows(partition_statement(step, day))


async def drop_partition(tx: PostgresTransaction, day: int, about: int) -> int:
    """Drop a day with its jobs, `about` by estimate; return how many there were."""
    await tx.rows(SHORT_WAIT)
    jobs = about
    if about < COUNTED_MAX:
        jobs = int(await tx.value(partition_statement(COUNT_PARTITION, day)))
    await tx.rows(partition_statement(DROP_PARTITION, day))
    return jobs


def partition_statement(sql: str, day: int) -> str:
    """Insert a day into a statement: names and bounds cannot be parameters."""
    text = sql.replace("{day}", partition_name(day))
    return text.replace("{first}", str(int(day * DAY))).replace(
        "{next}", str(int((day + 1) * DAY))
    )


PRUNE_AGED = statement("prune_aged")
PRUNE_DEAD = statement("prune_dead")
NEXT_BUCKET = statement("next_bucket")
PRUNE_BUCKET = statement("prune_bucket")
PRUNE_DONE = statement("prune_done")
PRUNE_DEFAULT = statement("prune_default_partition")
PRUNE_KEYS = statement("prune_keys")
PRUNE_REPEATED = statement("prune_repeated")

ID_TIME_BYTES = 6
SMALL_PARTITION_BYTES = 8 * 1024 * 1024


async def prune_rows(
    tx: PostgresTransaction, limit: int, dead_count: int, *, drops_days: bool
) -> int:
    """Delete by age and by count, and keys whose window is over: `limit` rows in total.

    Old audit lines, expired records and logs, and notes of repeated enqueues are deleted
    too, but the result does not count them.
    """
    now = await tx.now()
    await prune_audit(tx, limit)
    await prune_records(tx, limit)
    await prune_logs(tx, limit)
    await tx.rows(PRUNE_REPEATED, now, limit)
    went = await deleted_rows(tx, PRUNE_AGED, now, limit)
    went += await deleted_rows(tx, PRUNE_DEAD, now, limit - went, dead_count)
    bucket = await tx.value(NEXT_BUCKET, "")
    while bucket is not None and went < limit:
        went += await deleted_rows(tx, PRUNE_BUCKET, bucket, limit - went, now)
        bucket = await tx.value(NEXT_BUCKET, bucket)
    went += await prune_done(tx, limit - went, drops_days=drops_days)
    return went + await deleted_rows(tx, PRUNE_KEYS, now, limit - went)


async def prune_done(tx: PostgresTransaction, limit: int, *, drops_days: bool) -> int:
    """Delete done jobs row by row.

    If days can be dropped, jobs of a large day wait for that, up to one day longer. Jobs of
    a small day, and those in the default partition, are deleted when they are due.
    """
    old = await tx.now() - tx.retention.done_seconds
    by_row = PRUNE_DONE
    if drops_days:
        size = await tx.value(MEASURE_PARTITION, partition_name(int(old // DAY)))
        by_row = PRUNE_DONE if (size or 0) < SMALL_PARTITION_BYTES else PRUNE_DEFAULT
    return await deleted_rows(tx, by_row, old, limit, last_id_of(old))


async def deleted_rows(tx: PostgresTransaction, sql: str, *values: object) -> int:
    """Run a delete; return how many rows it deleted."""
    return len(await tx.rows(sql, *values))


def last_id_of(moment: float) -> bytes:
    """Return the last id of a moment; ids begin with their time in milliseconds.

    A job ends after its id was made, so only ids up to this one need to be read.
    """
    at = min(max(int(moment * 1000), 0), (1 << 8 * ID_TIME_BYTES) - 1)
    return at.to_bytes(ID_TIME_BYTES) + b"\xff" * (16 - ID_TIME_BYTES)
