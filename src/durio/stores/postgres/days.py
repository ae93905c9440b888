"""The days of history: one partition each, made ahead and dropped whole.

A row that is deleted leaves a dead version behind; a day that is dropped leaves nothing,
whoever may still have an old transaction open. Today and the next two are made ahead, and
`hist_default` is the net for what comes while a day is missing. A role that may not change
the tables deletes row by row instead (history.py).

Nobody waits long for the locks: a fifth of a second, and then the next turn tries again.
"""

from durio.model.errors import StoreError
from durio.model.settings import DAY
from durio.stores.postgres.day_names import day_of, name_of
from durio.stores.postgres.desk import Desk
from durio.stores.postgres.lines import Patience
from durio.stores.postgres.sqlstate import DEADLOCK, LOCKED, NO_RIGHT, UNIQUE_VIOLATION
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

READ_DAYS = statement("hist_read_days")
DAY_SIZE = statement("hist_day_size")
MAKE_DAY = statement("hist_make_day")
LOCK_DEFAULT = statement("hist_lock_default")
MOVE_DAY = statement("hist_move_day")
ATTACH_DAY = statement("hist_attach_day")
COUNT_DAY = statement("hist_count_day")
DROP_DAY = statement("hist_drop_day")
SHORT_WAIT = "set local lock_timeout = '200ms'"
SHORT_WORK = "set local statement_timeout = '5s'"  # the net is looked through

AHEAD = 2
REST_SECONDS = 600.0
SOON_SECONDS = 10.0  # after a lock that was not free
NET = "hist_default"
# A day of more is not counted before it goes: that would take longer than all the rest.
COUNTED_MAX = 100_000
MOVED_BYTES_MAX = 64 * 1024 * 1024
# A lock that was not free, somebody who was quicker, a net that was filled meanwhile.
AGAIN = frozenset(
    {LOCKED, DEADLOCK, UNIQUE_VIOLATION, "42P07", "42P17", "23514", "42P01"}
)
TOO_LONG = "57014"


async def keep_days(desk: Desk) -> int:
    """Make what is missing, drop what is past; how many jobs went, of many about."""
    days, clock = desk.local.days, desk.clock
    if clock.monotonic() < days.next_at:
        return 0
    rows = await desk.lines.read(READ_DAYS, desk.lines.now)
    now, days.may_change = rows[0][0], bool(rows[0][1])
    days.next_at = clock.monotonic() + REST_SECONDS
    if not days.may_change:
        return 0
    known = {day_of(name): jobs for _, _, name, jobs in rows}
    known.pop(None, None)  # the net
    try:
        return await change_days(desk, known, now)
    except StoreError as error:
        state = error.values.get("state")
        if state in AGAIN:
            days.next_at = clock.monotonic() + SOON_SECONDS
        elif state == NO_RIGHT:  # somebody else's table
            days.may_change = False
        elif state != TOO_LONG:
            raise
        return 0


async def change_days(desk: Desk, known: dict[int | None, int], now: float) -> int:
    """A transaction for each day: none keeps its locks while the next one waits."""
    today = int(now // DAY)
    for day in range(today, today + AHEAD + 1):
        if day not in known:
            await desk.lines.write(
                lambda tx, day=day: make(tx, day, today), patience=Patience.ONE_TURN
            )
    last = int((now - desk.retention.done_seconds) // DAY)
    past = sorted(day for day in known if day is not None and day < last)
    went = 0
    for day in past:
        went += await desk.lines.write(
            lambda tx, day=day, about=known[day]: drop(tx, day, about),
            patience=Patience.ONE_TURN,
        )
    return went


async def make(tx: Transaction, day: int, today: int) -> None:
    """One day; jobs of it that the net has caught go where they belong, if they are few.

    Otherwise that day stays in the net, from which jobs leave row by row.
    """
    if day == today and await tx.value(DAY_SIZE, NET) > MOVED_BYTES_MAX:
        return
    steps = (SHORT_WAIT, SHORT_WORK, MAKE_DAY, LOCK_DEFAULT, MOVE_DAY, ATTACH_DAY)
    for step in steps:
        if step is not MOVE_DAY or day == today:
            await tx.rows(filled(step, day))


async def drop(tx: Transaction, day: int, about: int) -> int:
    """One day, with all that is in it; how many jobs that were."""
    await tx.rows(SHORT_WAIT)
    jobs = about
    if about < COUNTED_MAX:
        jobs = int(await tx.value(filled(COUNT_DAY, day)))
    await tx.rows(filled(DROP_DAY, day))
    return jobs


def filled(sql: str, day: int) -> str:
    """A statement about one day; names and bounds cannot be parameters there."""
    text = sql.replace("{day}", name_of(day))
    return text.replace("{first}", str(int(day * DAY))).replace(
        "{next}", str(int((day + 1) * DAY))
    )
