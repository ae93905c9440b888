"""Random operations on SQLite and on the model, compared after every step."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from durio.model.effects import Effects, Put
from durio.model.job import BLOCKED, DEAD, READY, SCHEDULED, NewJob
from durio.model.keys import debounce, replace, while_active, while_waiting, window
from durio.model.outcome import OutcomeKind
from durio.ports.browse import Query
from durio.ports.control import ACTION_OF_VERB
from durio.ports.store import Store
from durio.stores.sqlite.store import SqliteStore
from tests.bulk_actions import run_bulk
from tests.conformance.scene import LANE, TASK, key
from tests.conformance.twins import KINDS, RECORDS, Twins, any_one

POLICIES = [
    None,
    while_waiting,
    while_active,
    window(3600.0),
    replace,
    debounce(5.0),
    debounce(5.0, 8.0),
]
DEPTH = f"select depth from queue where name = '{LANE}'"  # noqa: S608 - a constant


class SqliteTwins(Twins):
    """SQLite, with keys, bounds, records, bulk actions and retention.

    Every entry is appended in the transaction that writes it.
    """

    def new_store(self) -> Store:
        return SqliteStore(None, self.clock)

    def agree(self) -> None:
        super().agree()
        if self.model.bound is not None:
            assert isinstance(self.store, SqliteStore)
            reader = self.store.context.reader
            depth = self.ask(reader.read(lambda db: db.value(DEPTH)))
            assert depth == self.model.depth()

    @rule(bound=st.sampled_from([None, 3, 6]))
    def declare(self, bound: int | None) -> None:
        self.ask(self.store.declare({LANE: bound}))
        self.model.bound = bound
        self.agree()

    @rule(
        policy=st.sampled_from(POLICIES),
        text=st.sampled_from("ab"),
        payload=st.sampled_from([b"1", b"2"]),
        rank=st.integers(0, 9),
        delay=st.sampled_from([0.0, 0.0, 3.0, 60.0]),
    )
    def enqueue(self, policy: Any, text: str, payload: bytes, **fields: Any) -> None:
        claim = None if policy is None else key(policy, payload, text)
        job = NewJob(
            id=self.clock.new_id(),
            lane=LANE,
            rank=fields["rank"],
            task=TASK,
            payload=payload,
            delay_seconds=fields["delay"],
            key=claim,
        )
        self.send(job)

    @rule(count=st.integers(1, 3))
    def enqueue_plain(self, count: int) -> None:
        for _ in range(count):
            self.send(self.new_job())

    @precondition(lambda self: self.sent)
    @rule(n=any_one)
    def enqueue_again(self, n: int) -> None:
        self.send(self.sent[n % len(self.sent)], again=True)

    @rule(
        put=st.builds(
            Put,
            st.just(RECORDS),
            st.sampled_from("xy"),
            st.sampled_from([b"1", b"2", None]),
            st.sampled_from([None, 0, -1]),  # -1: the version as it stands
            ttl_seconds=st.sampled_from([None, 2.0, 9.0]),
            due_at=st.sampled_from([None, 0.0, 5e9]),
        ),
        policy=st.sampled_from([None, while_active, window(3600.0)]),
        payload=st.sampled_from([b"1", b"2"]),
        has_job=st.booleans(),
    )
    def commit(self, put: Put, policy: Any, payload: bytes, *, has_job: bool) -> None:
        standing = self.model.records.get(put.name)
        if put.if_version == -1:
            put = put._replace(
                if_version=9**9 if standing is None else standing.version
            )
        claim = None if policy is None else key(policy, payload, "a")
        job = self.new_job()._replace(payload=payload, key=claim)
        self.sent += [job] if has_job else []
        effects = Effects([job] if has_job else [], [put])
        told = self.ask(self.store.commit(effects))
        what = None if told.conflict is None else told.conflict.what
        assert what == self.model.commit(job if has_job else None, put)
        if told.conflict is None:
            (version,) = told.versions
            newest = max((r.version for r in self.model.records.values()), default=0)
            assert version > newest or (put.body is None and version == 0)
            self.model.put(put, version)
        found = self.ask(self.store.list_records(RECORDS))
        assert {record.name: (record.version, record.body) for record in found} == {
            name: (record.version, record.body)
            for name in self.model.records
            if (record := self.model.record(name)) is not None
        }
        self.agree()

    @precondition(lambda self: self.claims)
    @rule(kind=st.sampled_from(KINDS))
    def reclaim(self, kind: OutcomeKind) -> None:
        """Released, claimed again by the same worker, and a late word about the first."""
        worker, job_id, _ = self.claims[-1]
        if worker in self.workers:
            self.end(1, OutcomeKind.RELEASE, 0.0)
            self.claim(self.workers.index(worker), 4)
            late = next(c for c in self.claims if c[:2] == (worker, job_id))
            self.end(len(self.claims) - self.claims.index(late), kind, 0.0)

    @rule(verb=st.sampled_from(["cancel", "retry", "discard"]), limit=st.integers(1, 9))
    def act_on_many(self, verb: Any, limit: int) -> None:
        """Counted, then in steps; the dead in the order in which they died."""
        states = (SCHEDULED, READY) if verb == "cancel" else (DEAD,)
        if verb == "cancel" and any(
            row.state == BLOCKED for row in self.model.rows.values()
        ):
            return  # an end may let it go before a later step looks
        meant = [row for row in self.model.rows.values() if row.state in states]
        # One state after the other: entries of logs are compared in order.
        meant.sort(key=lambda row: (row.state, row.finished_at, row.place))
        query = Query(lane=LANE, states=states)
        counted = self.ask(self.store.count(query))
        assert counted.jobs == len(meant)
        action = ACTION_OF_VERB[verb]
        self.ask(run_bulk(self.store, query, action, counted.mark, limit))
        for row in meant:
            getattr(self.model, verb)(row.id)
        self.agree()

    @rule()
    def settle(self) -> None:
        assert self.ask(self.store.settle(1000)) == (0, None, False)
        self.agree()

    @rule(dead_count=st.integers(0, 2))
    def prune(self, dead_count: int) -> None:
        self.ask(self.store.prune(1000, dead_count=dead_count))
        self.model.prune(dead_count)
        self.agree()


TestTwins = pytest.mark.proves("M33", "M36", "M53", "M110", "M112")(
    SqliteTwins.TestCase
)
TestTwins.settings = settings(
    max_examples=120,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
