"""Jobs in callers' transactions, and transactions of their own for tasks.

A caller's jobs are written by the statements of every enqueue, on the caller's connection;
workers hear of them by a notification that its commit sends. A task's own transaction has
a connection of its own, as plain as the driver makes it, for the task's rows; the end of
the job is the last thing that is written there.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from durio.model.errors import (
    LeaseLost,
    StoreError,
    StoreUnavailable,
    UsageError,
    WrongTransaction,
)
from durio.model.ids import id_text
from durio.model.job import NewJob
from durio.model.outcome import Outcome, with_progress
from durio.model.tx import SQLALCHEMY, Joinable, tx_kind
from durio.ports.enqueue import Enqueued
from durio.ports.transactions import OwnTransaction
from durio.stores.postgres.alchemy import guest_in_sqlalchemy
from durio.stores.postgres.at_once import enqueue_at_once
from durio.stores.postgres.blocks import mark_of
from durio.stores.postgres.bounds import enter_later
from durio.stores.postgres.desk import AtDesk, Desk
from durio.stores.postgres.driver import Connection, DriverError, Row
from durio.stores.postgres.enqueue import complete, enqueue_with_care
from durio.stores.postgres.finish import record
from durio.stores.postgres.foreign import Guest, failed, guest_of
from durio.stores.postgres.host import HOSTS, Host, ended_by_hand
from durio.stores.postgres.line import check_commit
from durio.stores.postgres.lines import AGAIN, PAUSE_SECONDS, TRIES, Patience
from durio.stores.postgres.opening import IN_TRANSACTION
from durio.stores.postgres.same import (
    BLOCK,
    FROZEN,
    MARKED,
    SIGHT,
    check_same,
    read_only,
)
from durio.stores.postgres.sqlstate import (
    DEADLOCK,
    FAILED_TRANSACTION,
    NO_RIGHT,
    NOT_SERIALIZABLE,
    READ_ONLY,
)
from durio.stores.postgres.statements import Filled, statement
from durio.stores.postgres.transaction import Transaction
from durio.stores.postgres.translate import translated

T = TypeVar("T")

MAKE_LANES = statement("control_make_lanes")
RING_INSIDE = statement("ring_inside")
CONSTRAINTS = "23"
TURNED_DOWN = frozenset({NOT_SERIALIZABLE, DEADLOCK})


class PostgresTransactions(AtDesk):
    """Writing in transactions of others."""

    async def enqueue_in(self, tx: Joinable, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write these jobs in a transaction that the caller has open."""
        desk, kind = self.desk, tx_kind(tx)
        try:
            if kind in SQLALCHEMY:
                guest = await guest_in_sqlalchemy(tx, kind)
            else:
                guest = guest_of(tx, kind)
            lines = GuestLines(desk, guest)
            theirs = await check_same(desk, lines, may_wait=kind.is_async)
            is_frozen = theirs[SIGHT] == FROZEN
            if kind.is_async:
                await make_lanes(desk, jobs)
            return await enqueue_on(desk, lines, jobs, is_frozen=is_frozen)
        except DriverError as error:
            raise told_caller(error, desk) from error
        except StoreError as error:
            cause = error.__cause__
            if isinstance(cause, DriverError):
                raise told_caller(cause, desk) from cause
            raise

    async def begin(self, worker: int, *, is_sync: bool = False) -> OwnTransaction:
        """A transaction for a task of this worker, on a connection of its own."""
        if is_sync:
            raise UsageError(
                "a sync task has no transaction of its own on PostgreSQL: its connection "
                "would belong to the worker's event loop",
                cure="Make it `async def` and use `async with ctx.transaction()`.",
            )
        own = PostgresOwnTransaction(self.desk, worker)
        try:
            await own.begin()
        except BaseException:
            await own.roll_back()
            raise
        return own


# --- in a caller's transaction


async def make_lanes(desk: Desk, jobs: Sequence[NewJob]) -> None:
    """Queues that nobody has used before, by a transaction of our own.

    In the caller's, everybody else with a job for them would wait until that is over; so it
    will be where our own line fails now.
    """
    news = sorted({job.lane for job in jobs} - desk.known_lanes)
    if news:
        with suppress(StoreError):
            patience = Patience.ONE_TURN
            await desk.lines.write_one(MAKE_LANES, news, patience=patience)
            desk.known_lanes.update(news)


async def enqueue_on(
    desk: Desk, lines: "GuestLines", jobs: Sequence[NewJob], *, is_frozen: bool
) -> list[Enqueued]:
    """By the statements of every enqueue, but on this connection."""
    theirs = replace(
        desk,
        lines=cast("Any", lines),
        bell=cast("Any", lines),
        is_users=True,
        is_frozen=is_frozen,
        known_lanes=set(desk.known_lanes),  # what is new there may be rolled back
        guarded_lanes=set(),
    )
    calls = (len(jobs),)
    answers = await enqueue_at_once(theirs, jobs, calls)
    if answers is None:
        stored = await enqueue_with_care(theirs, jobs, calls, again=False)
    else:
        if is_frozen:
            told = zip(jobs, answers, strict=True)
            new = Counter(job.lane for job, is_in in told if is_in and is_in.created)
            await enter_later(lines, new)
        stored = await complete(theirs, jobs, answers)
    payloads = desk.bell.payloads_inside(lines.rung)
    if payloads:
        await lines.rows(RING_INSIDE, desk.bell.channel, payloads)
    return stored


class GuestLines:
    """What an enqueue asks of the store's lines and of its bell, on one connection."""

    def __init__(self, desk: Desk, guest: Guest) -> None:
        self.now = desk.lines.now
        self.rung: dict[str, int] = {}
        self._desk = desk
        self._guest = guest
        self._filled = Filled(desk.place.schema)

    def ring(self, lanes: dict[str, int], _workers: object) -> None:
        """Later, and by the commit of the caller."""
        self.rung |= lanes

    async def rows(self, sql: str, *args: Any) -> Sequence[Row]:
        """One statement, with its errors as the driver has them."""
        return await self._guest.rows(self._filled[sql], args)

    async def write_one(
        self,
        sql: str,
        *args: Any,
        patience: Patience = Patience.LONG,  # noqa: ARG002 - that of their connection
    ) -> Sequence[Row]:
        """One statement."""
        try:
            return await self.rows(sql, *args)
        except DriverError as error:
            raise translated(error, self._desk.place) from error

    async def write(
        self,
        work: Callable[[Transaction], Awaitable[T]],
        *,
        patience: Patience = Patience.LONG,  # noqa: ARG002
    ) -> T:
        """Several; whatever raises undoes them, and nothing else of the caller's."""
        tx = transaction_on(self._desk, self._guest)
        try:
            await self._guest.run("savepoint durio")
            try:
                answer = await work(tx)
                for call in tx.before_commit:
                    await call()
            except BaseException:
                with suppress(DriverError):
                    await self._guest.run("rollback to savepoint durio")
                raise
            await self._guest.run("release savepoint durio")
        except DriverError as error:
            raise translated(error, self._desk.place) from error
        self.rung |= tx.rung_lanes
        return answer


def transaction_on(desk: Desk, guest: Guest) -> Transaction:
    """What operations see of a connection that is not the store's."""
    return Transaction(
        cast("Connection", guest),
        Filled(desk.place.schema),
        desk.lines.now,
        desk.lines.look,
        desk.retention,
    )


def told_caller(error: DriverError, desk: Desk) -> Exception:
    """What a caller hears of a failure in its own transaction."""
    if error.lost:
        return StoreUnavailable(
            f"{desk.place.shown}: the connection of tx was lost, and its transaction with "
            f"it ({error.text})",
            cure="Do the whole transaction again, on another connection.",
            state=error.state,
        )
    if error.state in TURNED_DOWN:
        return StoreUnavailable(
            f"{desk.place.shown}: another transaction was in the way of tx ({error.text})",
            cure="Roll it back, and do the whole transaction again.",
            state=error.state,
        )
    if error.state == NO_RIGHT:
        refused = translated(error, desk.place)
        refused.cure = (
            "Say `reset role` before the enqueue, where the transaction has another role "
            f"than its connection. {refused.cure}"
        )
        return refused
    return told(error, desk)


def told_task(error: DriverError, desk: Desk) -> Exception:
    """What a task hears of a failure at the end of its own."""
    if error.state in TURNED_DOWN and not error.lost:
        return StoreUnavailable(
            f"{desk.place.shown}: another transaction was in the way of ctx.transaction(); "
            f"nothing was written ({error.text})",
            cure="Nothing to do while it has retries left: the next attempt does it all "
            "again. Short blocks meet others less often, and those at READ COMMITTED "
            "only in deadlocks.",
            state=error.state,
        )
    if error.state == NO_RIGHT:
        return WrongTransaction(
            "the role that the block has now may not write the end of the job: "
            f"{error.text}",
            cure="Say `reset role`, or `reset session authorization`, before the block's "
            "end: that is written by the role of the store's URL.",
        )
    return told(error, desk)


def told(error: DriverError, desk: Desk) -> Exception:
    """What both hear."""
    if error.state == FAILED_TRANSACTION:
        return failed()
    if error.state == READ_ONLY:
        return read_only()
    if error.state.startswith(CONSTRAINTS) and error.state not in AGAIN:
        return WrongTransaction(
            f"the transaction breaks a rule of your tables: {error.text}",
            cure="It was rolled back: see the constraint, and whether it is deferred.",
        )
    return translated(error, desk.place)


# --- a task's own


class PostgresOwnTransaction:
    """One transaction on a connection that is closed with it."""

    def __init__(self, desk: Desk, worker: int) -> None:
        self._desk = desk
        self._worker = worker
        self._host: Host = HOSTS[desk.place.driver]()
        self._is_over = False

    @property
    def connection(self) -> Any:
        """The driver's connection."""
        return self._host.connection

    async def begin(self) -> None:
        """Connect and begin."""
        desk = self._desk
        try:
            mark = mark_of(desk.place.schema, self._worker)
            prepared = not desk.lines.is_pooled
            await self._host.begin(desk.place, mark, prepared=prepared)
        except DriverError as error:
            error.was_open = False
            raise translated(error, desk.place) from error

    async def commit(self, outcome: Outcome) -> None:
        """Record the outcome, then commit."""
        desk, is_sent = self._desk, False
        try:
            async with asyncio.timeout(desk.place.call_seconds):
                async with self._host.held() as guest:
                    theirs = await check_same(desk, GuestLines(desk, guest))
                    if theirs[BLOCK] != MARKED:
                        raise ended_by_hand()
                    again = AGAIN
                    if theirs[SIGHT] == FROZEN:  # it sees no later state: nor would it
                        again -= {NOT_SERIALIZABLE}
                    await self._record(guest, outcome, again)
                    is_sent = True
                    check_commit(await guest.run("commit"))
        except DriverError as error:
            if is_sent and error.lost and not error.unsent:
                raise translated(error, desk.place, unknown=True) from error
            raise told_task(error, desk) from error
        except TimeoutError:
            raise StoreUnavailable(
                f"{desk.place.shown}: no answer within {desk.place.call_seconds:g} s",
                cure="See what the server does.",
                unknown=is_sent,
            ) from None
        finally:
            await self._end()

    async def _record(
        self, guest: Guest, outcome: Outcome, again: Collection[str]
    ) -> None:
        """Write the end; from its own beginning where others made that necessary."""
        await guest.run(f"{IN_TRANSACTION.lstrip('; ')}; savepoint durio")
        clock = self._desk.clock
        for tried in range(1, TRIES + 1):
            tx = transaction_on(self._desk, guest)
            try:
                recorded = await record(tx, self._worker, with_progress(outcome))
                if recorded.rejected:
                    raise LeaseLost(
                        f"job {id_text(outcome.id)} has another owner: its transaction "
                        "is rolled back",
                        cure="Nothing was written; whoever has the job now does its work.",
                    )
                for call in tx.before_commit:
                    await call()
            except DriverError as error:
                if error.lost or error.state not in again or tried == TRIES:
                    raise
                await guest.run("rollback to savepoint durio")
            else:
                return
            jitter = 0.5 + clock.random()
            await clock.sleep(PAUSE_SECONDS * jitter * 2 ** (tried - 1))

    async def roll_back(self) -> None:
        """Close the connection: what it has not committed is gone."""
        await self._end()

    async def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            await self._host.end()
