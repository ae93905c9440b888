"""Random operations on PostgreSQL and on the model, compared after every step.

Beside them, other transactions lock the heads of logs, callers write in transactions that
commit late or roll back, and tasks end in transactions of their own. So entries are deferred,
and appended by a later call.
"""

from dataclasses import dataclass, field
from functools import partial

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from durio.model.effects import Append, Effects
from durio.model.errors import LeaseLost
from durio.model.job import NewJob
from durio.model.logs import ANY_END, OnEnd, Wait
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.store import Store
from durio.stores.postgres.store import PostgresStore
from tests.conformance.model_logs import ModelEntry, new_entries
from tests.conformance.model_store import RESULT
from tests.conformance.postgres import ScratchSchema
from tests.conformance.twins import (
    KINDS,
    Twins,
    any_log,
    any_one,
    appends,
    ends,
    new_append,
)

MAKE_HEAD = "insert into durio.log (name) values (%s) on conflict do nothing"
LOCK_HEAD = "select 1 from durio.log where name = %s for update"
CALLERS_MAX = 2

Connection = psycopg.AsyncConnection[tuple[object, ...]]


@dataclass
class Caller:
    """A transaction that a caller has open."""

    connection: Connection
    began: int  # number of the step
    entries: list[tuple[str, ModelEntry]] = field(default_factory=list)
    jobs: list[NewJob] = field(default_factory=list)


class PostgresTwins(Twins):
    """PostgreSQL defers entries of a locked log, and of a transaction that may be long."""

    claims_by_id = True

    def __init__(self, grounds: ScratchSchema) -> None:
        super().__init__()
        self.grounds = grounds
        self.locks: dict[str, Connection] = {}
        self.callers: list[Caller] = []

    def new_store(self) -> Store:
        self.ask(self.grounds.empty())
        return PostgresStore(self.grounds.location, self.clock, injected=self.clock)

    def teardown(self) -> None:
        """When all other transactions have ended, nothing is left to append."""
        if not hasattr(self, "loop"):
            return
        try:
            for log in list(self.locks):
                self.unlock(log)
            if self.is_equal:
                self.settle()
        finally:
            for caller in self.callers:
                self.close(caller.connection)
            super().teardown()

    def connect(self) -> Connection:
        return self.ask(psycopg.AsyncConnection.connect(self.grounds.url))

    def close(self, connection: Connection) -> None:
        self.ask(connection.rollback())  # the server sees the end of a connection later
        self.ask(connection.close())

    # --- heads that others have locked

    @precondition(lambda self: not self.locks)
    @rule(log=any_log, kind=st.sampled_from(KINDS), n=any_one)
    def lock(self, log: str, kind: OutcomeKind, n: int) -> None:
        """Lock a head, and end a job that appends to its log."""
        self.enqueue_tied(log, None, [OnEnd(log, ANY_END, n % 4)], 0.0)
        connection = self.connect()
        self.ask(connection.execute(MAKE_HEAD, [log]))
        self.ask(connection.commit())
        self.ask(connection.execute(LOCK_HEAD, [log]))
        self.locks[log] = connection
        self.model.logs.locked.add(log)
        self.attempt(kind, 3, n)

    @precondition(lambda self: self.locks)
    @rule()
    def unlock_all(self) -> None:
        for log in list(self.locks):
            self.unlock(log)
        self.agree()

    def unlock(self, log: str) -> None:
        if log in self.locks:
            self.close(self.locks.pop(log))
            self.model.logs.locked.remove(log)

    @rule()
    def settle(self) -> None:
        """Everything is appended but what belongs to a locked log."""
        settled = self.ask(self.store.settle(1000))
        self.agree()
        left = {batch.log for batch in self.model.logs.batches}
        left |= {row.wait.log for row in self.model.rows_to_let_go() if row.wait}
        assert left <= self.locks.keys()
        assert (settled.next_due_seconds is None) or self.locks

    # --- transactions of callers

    def caller(self, n: int) -> Caller:
        """Return a transaction that is open, or a new one."""
        place = n % CALLERS_MAX
        if place >= len(self.callers):
            self.callers.append(Caller(self.connect(), self.model.logs.step))
        return self.callers[min(place, len(self.callers) - 1)]

    @rule(
        n=any_one,
        append=appends,
        log=st.none() | any_log,
        on_end=st.lists(ends, max_size=2, unique=True),
        is_overtaken=st.booleans(),
        commits=st.sampled_from([None, True, False]),
    )
    def write_in_caller(
        self,
        n: int,
        append: Append,
        log: str | None,
        on_end: list[OnEnd],
        *,
        is_overtaken: bool,
        commits: bool | None,  # None: later
    ) -> None:
        """Append, and perhaps enqueue a job whose wait may be over before the commit."""
        caller = self.caller(n)
        self.append_in(caller, append)
        if log is not None:
            wait = Wait(log, self.model.logs.length(log))
            job = self.new_job()._replace(wait=wait, on_end=tuple(on_end))
            (answer,) = self.ask(self.store.enqueue([job], tx=caller.connection))
            assert answer.created
            caller.jobs.append(job)
        if is_overtaken:
            self.overtake(log or append.log)
        self.agree()
        if commits is not None:
            self.end_of_caller(self.callers.index(caller), commits=commits)

    def append_in(self, caller: Caller, append: Append) -> None:
        append = self.distinct(append)
        effects = Effects(appends=[append])
        told = self.ask(self.store.commit(effects, tx=caller.connection))
        assert told.conflict is None
        caller.entries += new_entries([append])

    def overtake(self, log: str) -> None:
        """Append to a log in a transaction that began later, and commits first."""
        self.callers.append(Caller(self.connect(), self.model.logs.step))
        self.append_in(self.callers[-1], new_append(log, None))
        self.end_of_caller(len(self.callers) - 1, commits=True)
        self.unlock(log)
        self.settle()

    @precondition(lambda self: self.callers)
    @rule(n=any_one, commits=st.booleans())
    def end_of_caller(self, n: int, *, commits: bool) -> None:
        caller = self.callers.pop(n % len(self.callers))
        if commits:
            self.ask(caller.connection.commit())
            self.model.logs.write(caller.entries, caller.began)
            for job in caller.jobs:
                self.sent.append(job)
                self.model.insert_unseen(job)
        self.close(caller.connection)
        self.agree()

    # --- transactions of tasks

    @precondition(lambda self: self.claims)
    @rule(back=st.integers(1, 4), inside=appends, append=appends, commits=st.booleans())
    def end_in_transaction(
        self, back: int, inside: Append, append: Append, *, commits: bool
    ) -> None:
        """Done: what the block has appended, the job's own entries, those of effects."""
        worker, job_id, claim_no = self.claims[-back % len(self.claims)]
        block = Effects(appends=[self.distinct(inside)])
        effects = Effects(appends=[self.distinct(append)])
        own = self.ask(self.store.transaction(worker))
        self.ask(self.store.commit(block, tx=own.connection))
        if not commits:
            self.ask(own.roll_back())
            self.agree()
            return
        kind = OutcomeKind.DONE
        end = Outcome(job_id, claim_no, kind, result=RESULT, effects=effects)
        try:
            self.ask(own.commit(end))
            taken = True
        except LeaseLost:
            taken = False
        with self.model.logs.transaction() as entries:
            self.model.logs.write([*new_entries(block.appends)])
            wanted = self.model.end(worker, job_id, claim_no, kind, 0.0, effects)
        assert taken == wanted
        if taken:
            self.model.logs.write(entries, self.model.logs.step)
        self.agree()


@pytest.mark.proves("M92", "M95")
def test_twins(grounds: ScratchSchema) -> None:
    run_state_machine_as_test(
        partial(PostgresTwins, grounds),
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            phases=[Phase.generate],  # to shrink a failure would take minutes
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
