"""Random operations on the real store and on the model, compared after every step."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from durio.model.effects import Append, Effects, NewEntry, Put
from durio.model.job import BLOCKED, DEAD, READY, SCHEDULED, NewJob
from durio.model.keys import debounce, replace, while_active, while_waiting, window
from durio.model.logs import ANY_END, DONE_END, FAILED_END, OnEnd, Wait
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.browse import Query
from durio.ports.control import ACTION_OF_VERB, CancelJobs
from durio.ports.enqueue import Enqueued
from durio.ports.exchange import Lane
from durio.ports.upkeep import OneWorker
from durio.stores.sqlite.store import SqliteStore
from tests.bulk_actions import run_bulk
from tests.conformance import ManualClock
from tests.conformance.model_store import RESULT, ModelEntry, ModelStore
from tests.conformance.scene import LANE, LOGS, TASK, info, key

POLICIES = [
    None,
    while_waiting,
    while_active,
    window(3600.0),
    replace,
    debounce(5.0),
    debounce(5.0, 8.0),
]
KINDS = [kind for kind in OutcomeKind if kind is not OutcomeKind.PROGRESS]
LONG = 10.0**9
RECORDS = "test:shop"
DEPTHS = f"select depth from queue where name = '{LANE}'"  # noqa: S608 - a constant

any_one = st.integers(0, 10**6)
any_log = st.sampled_from(LOGS)
ends = st.builds(
    OnEnd,
    any_log,
    st.sampled_from([DONE_END, FAILED_END, ANY_END]),
    st.integers(0, 3),
    st.booleans(),
)
appends = st.builds(
    lambda log, body, uid: Append(log, [NewEntry(body, uid=uid)]),
    any_log,
    st.sampled_from([b"1", b"2"]),
    st.sampled_from([None, None, "u", "m1"]),
)


def answer_summary(answer: Enqueued) -> tuple[bytes, str, int]:
    word = "new" if answer.created else "existing"
    word = "rewrite" if answer.replaced else "conflict" if answer.conflict else word
    word = "full" if answer.full else word
    return answer.id, word, answer.state


class Twins(RuleBasedStateMachine):
    """A store and a model that live the same life."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.store = SqliteStore(None, self.clock)
        self.model = ModelStore(self.clock.now())
        self.ask(self.store.open())
        self.sent: list[NewJob] = []
        self.workers: list[int] = []  # few, so that one meets the same job again
        self.claims: list[tuple[int, bytes, int]] = []
        self.begin_work()
        self.enqueue_plain(3)

    @rule(bound=st.sampled_from([None, 3, 6]))
    def declare(self, bound: int | None) -> None:
        self.ask(self.store.declare({LANE: bound}))
        self.model.bound = bound
        self.agree()

    def ask(self, question: Any) -> Any:
        """Ask the store; time goes on, and afterwards both must be the same."""
        return self.loop.run_until_complete(question)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.ask(self.store.close())
            self.loop.close()

    def agree(self) -> None:
        records = self.ask(self.store.get([job.id for job in self.sent]))
        found = {
            r.id: (
                *(r.state, r.claim_no, r.worker, r.payload),
                r.run_at if r.state == 0 else None,
                *(r.retried, r.losses, r.lost, r.snoozed),
            )
            for r in records
        }
        assert found == {row.id: row.shown() for row in self.model.rows.values()}
        for log in LOGS:
            entries = self.ask(self.store.read_log(log))
            assert [e.offset for e in entries] == [*range(len(entries))]
            told = [ModelEntry(*entry[2:]) for entry in entries]
            assert told == self.model.logs.get(log, [])
        if self.model.bound is not None:
            depths = self.ask(
                self.store.context.reader.read(lambda db: db.rows(DEPTHS))
            )
            assert depths == [(self.model.depth(),)]
        self.clock.advance(1.0)
        self.model.now = self.clock.now()

    # --- rules

    @precondition(lambda self: len(self.workers) < 3)
    @rule()
    def begin_work(self) -> None:
        self.workers.append(self.ask(self.store.register(info(), LONG)))

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
            self.enqueue(None, "a", b"1", rank=4, delay=0.0)

    @rule(
        log=any_log,
        more=st.sampled_from([None, 0, 0, 1, 2]),
        on_end=st.lists(ends, max_size=3, unique=True),
        delay=st.sampled_from([0.0, 0.0, 3.0]),
    )
    def enqueue_tied(
        self, log: str, more: int | None, on_end: list[OnEnd], delay: float
    ) -> None:
        """A job that waits for a log to grow, or appends to logs, or both."""
        length = len(self.model.logs.get(log, ()))
        wait = None if more is None else Wait(log, max(0, length - 1) + more)
        job = NewJob(self.clock.new_id(), LANE, 4, TASK, b"1", delay_seconds=delay)
        self.send(job._replace(wait=wait, on_end=tuple(on_end)))

    @rule(append=appends)
    def append(self, append: Append) -> None:
        told = self.ask(self.store.commit(Effects(appends=[append])))
        assert told.conflict is None
        (entry,) = append.entries
        new = ModelEntry(entry.tag, None, None, entry.uid, entry.body)
        self.model.append(append.log, new)
        self.agree()

    @rule()
    def settle(self) -> None:
        assert self.ask(self.store.settle(1000)) == (0, None)
        self.agree()

    @precondition(lambda self: self.claims)
    @rule(back=st.integers(1, 4), append=appends, version=st.sampled_from([None, 0]))
    def end_with_effects(self, back: int, append: Append, version: int | None) -> None:
        """Done, with a record and an entry; or refused whole."""
        worker, job_id, claim_no = self.claims[-back % len(self.claims)]
        put = Put(RECORDS, "z", b"1", if_version=version)
        effects = Effects(puts=[put], appends=[append])
        kind = OutcomeKind.DONE
        word = Outcome(job_id, claim_no, kind, result=RESULT, effects=effects)
        refused = self.ask(self.store.exchange(worker, [word], (), 0)).rejected
        taken = self.model.end(worker, job_id, claim_no, kind, 0.0, effects)
        assert [r.id for r in refused] == ([] if taken else [job_id])
        (record,) = self.ask(self.store.records(RECORDS, ["z"])) or [None]
        if taken:
            assert record is not None
            self.model.put(put, record.version)
        standing = self.model.record("z")
        known = None if standing is None else standing.version
        assert known == (None if record is None else record.version)
        self.agree()

    @precondition(lambda self: self.model.rows)
    @rule(n=any_one)
    def cancel_quietly(self, n: int) -> None:
        ids = list(self.model.rows)
        job_id = ids[n % len(ids)]
        self.ask(self.store.act([job_id], CancelJobs(is_quiet=True)))
        self.model.cancel(job_id, is_quiet=True)
        self.agree()

    @precondition(lambda self: self.sent)
    @rule(n=any_one)
    def enqueue_again(self, n: int) -> None:
        self.send(self.sent[n % len(self.sent)], again=True)

    def send(self, job: NewJob, *, again: bool = False) -> None:
        self.sent.append(job)
        (answer,) = self.ask(self.store.enqueue([job], again=again))
        assert answer_summary(answer) == self.model.enqueue(job)
        self.agree()

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
        job = NewJob(self.clock.new_id(), LANE, 4, TASK, payload, key=claim)
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

    @rule(n=any_one, want=st.integers(1, 4))
    def claim(self, n: int, want: int) -> None:
        worker = self.workers[n % len(self.workers)]
        lanes = [Lane(LANE, want)]
        claims = self.ask(self.store.exchange(worker, [], lanes, want)).claims
        wanted = self.model.claim(worker, want)
        assert [(claim.id, claim.claim_no) for claim in claims] == wanted
        self.claims += [(worker, *claim) for claim in wanted]
        self.agree()

    @precondition(lambda self: self.claims)
    @rule(
        # The newest claims are likely to hold, older ones are likely to be stale.
        back=st.one_of(st.integers(1, 4), st.integers(1, 20)),
        kind=st.sampled_from(KINDS),
        delay=st.sampled_from([0.0, 3.0]),
    )
    def end(self, back: int, kind: OutcomeKind, delay: float) -> None:
        worker, job_id, claim_no = self.claims[-back % len(self.claims)]
        # A loss that a worker tells of is a job's that killed its own child process.
        word = Outcome(
            job_id,
            claim_no,
            kind,
            delay_seconds=delay,
            reason="x",
            result=RESULT if kind is OutcomeKind.DONE else None,
            killed_process=kind is OutcomeKind.LOST,
        )
        refused = self.ask(self.store.exchange(worker, [word], (), 0)).rejected
        taken = self.model.end(worker, job_id, claim_no, kind, delay)
        assert [r.id for r in refused] == ([] if taken else [job_id])
        self.agree()

    @rule(kind=st.sampled_from(KINDS), want=st.integers(1, 3), n=any_one)
    def attempt(self, kind: OutcomeKind, want: int, n: int) -> None:
        """Claimed and ended, all but the last of them."""
        self.claim(n, want)
        for back in range(2, want + 1):
            if back <= len(self.claims):
                self.end(back, kind, 0.0)

    @precondition(lambda self: len(self.workers) > 1)
    @rule(n=any_one)
    def rescue(self, n: int) -> None:
        worker = self.workers.pop(n % len(self.workers))
        self.ask(self.store.rescue(1000, OneWorker(worker)))
        self.model.rescue(worker)
        self.agree()

    @rule(
        want=st.integers(1, 3),
        last=st.sampled_from([None, OutcomeKind.ALONE, OutcomeKind.LOST]),
    )
    def crash(self, want: int, last: OutcomeKind | None) -> None:
        """Claimed, perhaps marked, and lost: often enough to come to a third loss."""
        self.begin_work()
        self.claim(len(self.workers) - 1, want)
        if last is not None and self.claims:
            self.end(1, last, 0.0)
        self.rescue(len(self.workers) - 1)

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

    @precondition(lambda self: self.model.rows)
    @rule(n=any_one, verb=st.sampled_from(["cancel", "retry", "discard"]))
    def act(self, n: int, verb: Any) -> None:
        ids = list(self.model.rows)
        job_id = ids[n % len(ids)]
        self.ask(self.store.act([job_id], ACTION_OF_VERB[verb]))
        getattr(self.model, verb)(job_id)
        self.agree()

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
    def promote(self) -> None:
        assert self.ask(self.store.promote(1000)).count == self.model.promote()
        self.agree()

    @rule(dead_count=st.integers(0, 2))
    def prune(self, dead_count: int) -> None:
        self.ask(self.store.prune(1000, dead_count=dead_count))
        self.model.prune(dead_count)
        self.agree()

    @rule(seconds=st.sampled_from([2.0, 60.0, 3600.0, 8 * 86400.0, 31 * 86400.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.now = self.clock.now()
        self.agree()


TestTwins = pytest.mark.proves("M33", "M36", "M53", "M110", "M112")(Twins.TestCase)
TestTwins.settings = settings(
    max_examples=120,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
