"""Random operations on a real store and on the model, compared after every step.

These operations end jobs and append to logs. test_random.py and test_random_postgres.py add
others, for one store.
"""

import asyncio
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from durio.model.effects import Append, Effects, NewEntry, Put
from durio.model.job import BLOCKED, NewJob
from durio.model.logs import ANY_END, DONE_END, FAILED_END, OnEnd, Wait
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.control import ACTION_OF_VERB, CancelJobs
from durio.ports.enqueue import Enqueued
from durio.ports.exchange import Lane
from durio.ports.store import Store
from durio.ports.upkeep import OneWorker
from tests.conformance import ManualClock
from tests.conformance.model_logs import ModelEntry, new_entries
from tests.conformance.model_store import RESULT, ModelStore
from tests.conformance.scene import LANE, LOGS, TASK, info

KINDS = [kind for kind in OutcomeKind if kind is not OutcomeKind.PROGRESS]
LONG = 10.0**9
RECORDS = "test:shop"


def new_append(log: str, uid: str | None) -> Append:
    return Append(log, [NewEntry(None, uid=uid)])


any_one = st.integers(0, 10**6)
any_log = st.sampled_from(LOGS)
ends = st.builds(
    OnEnd,
    any_log,
    st.sampled_from([DONE_END, FAILED_END, ANY_END]),
    st.integers(0, 3),
    st.booleans(),
)
appends = st.builds(new_append, any_log, st.sampled_from([None, None, "u", "m1"]))


def answer_summary(answer: Enqueued) -> tuple[bytes, str, int]:
    word = "new" if answer.created else "existing"
    word = "rewrite" if answer.replaced else "conflict" if answer.conflict else word
    word = "full" if answer.full else word
    return answer.id, word, answer.state


class Twins(RuleBasedStateMachine):
    """A store and a model that live the same life."""

    # --- of one store

    claims_by_id = False  # jobs of one rank, else in the order of arrival

    def new_store(self) -> Store:
        """Return an empty store that is not open."""
        raise NotImplementedError

    def unlock(self, log: str) -> None:
        """End what keeps a call waiting that waits for this log."""

    # --- of all stores

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.store = self.new_store()
        self.model = ModelStore(self.clock.now(), claims_by_id=self.claims_by_id)
        self.ask(self.store.open())
        self.bodies = 0
        self.sent: list[NewJob] = []
        self.workers: list[int] = []  # few, so that one meets the same job again
        self.claims: list[tuple[int, bytes, int]] = []
        self.begin_work()
        for _ in range(3):
            self.send(self.new_job())

    def ask(self, question: Any) -> Any:
        """Ask the store; afterwards both must be the same."""
        return self.loop.run_until_complete(question)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.ask(self.store.close())
            self.loop.close()

    def agree(self) -> None:
        """Compare both; then time goes on."""
        self.is_equal = False
        records = self.ask(self.store.get([job.id for job in self.sent]))
        found = {
            r.id: (
                *(r.state, r.claim_no, r.worker, r.payload),
                r.run_at if r.state == 0 else None,
                *(r.retried, r.losses, r.lost, r.snoozed),
            )
            for r in records
        }
        self.follow_logs()
        self.follow_unseen({job_id: fields[0] for job_id, fields in found.items()})
        assert found == {row.id: row.shown() for row in self.model.rows.values()}
        self.check_left()
        self.is_equal = True
        self.clock.advance(1.0)
        self.model.now = self.clock.now()
        self.model.logs.step += 1

    def follow_logs(self) -> None:
        """Give the model what the store has appended meanwhile."""
        found = self.ask(self.store.read_logs(LOGS, limit=1000))
        for log in LOGS:
            entries = found.get(log, [])
            assert [e.offset for e in entries] == [*range(len(entries))]
            self.model.follow(log, [ModelEntry(*entry[2:]) for entry in entries])

    def follow_unseen(self, states: dict[bytes, int]) -> None:
        """Let jobs go that the store has let go later than it could."""
        for row in self.model.rows_to_let_go():
            if states[row.id] != BLOCKED:
                self.model.let_go(row)

    def check_left(self) -> None:
        """Every entry is appended at once, unless a store may do it later."""
        assert [each for each in self.model.logs.batches if not each.may_wait] == []

    def new_job(self, delay_seconds: float = 0.0) -> NewJob:
        job_id = self.clock.new_id()
        return NewJob(job_id, LANE, 4, TASK, b"1", delay_seconds=delay_seconds)

    def distinct(self, append: Append) -> Append:
        """Return it with a body that no other entry has."""
        self.bodies += 1
        entries = [e._replace(body=b"%d" % self.bodies) for e in append.entries]
        return append._replace(entries=entries)

    # --- rules

    @precondition(lambda self: len(self.workers) < 3)
    @rule()
    def begin_work(self) -> None:
        self.workers.append(self.ask(self.store.register(info(), LONG)))

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
        length = self.model.logs.length(log)
        wait = None if more is None else Wait(log, max(0, length - 1) + more)
        self.send(self.new_job(delay)._replace(wait=wait, on_end=tuple(on_end)))

    @rule(append=appends)
    def append(self, append: Append) -> None:
        append = self.distinct(append)
        self.unlock(append.log)
        told = self.ask(self.store.commit(Effects(appends=[append])))
        assert told.conflict is None
        self.model.logs.write([*new_entries([append])])
        self.agree()

    @precondition(lambda self: self.claims)
    @rule(back=st.integers(1, 4), append=appends, version=st.sampled_from([None, 0]))
    def end_with_effects(self, back: int, append: Append, version: int | None) -> None:
        """Done, with a record and an entry; or refused whole."""
        worker, job_id, claim_no = self.claims[-back % len(self.claims)]
        put = Put(RECORDS, "z", b"1", if_version=version)
        effects = Effects(puts=[put], appends=[self.distinct(append)])
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

    def send(self, job: NewJob, *, again: bool = False) -> None:
        self.sent.append(job)
        if job.wait is not None:
            self.unlock(job.wait.log)
        (answer,) = self.ask(self.store.enqueue([job], again=again))
        self.follow_logs()  # a call that looks at a log appends what was left
        assert answer_summary(answer) == self.model.enqueue(job)
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

    @precondition(lambda self: self.model.rows)
    @rule(n=any_one, verb=st.sampled_from(["cancel", "retry", "discard"]))
    def act(self, n: int, verb: Any) -> None:
        ids = list(self.model.rows)
        job_id = ids[n % len(ids)]
        self.ask(self.store.act([job_id], ACTION_OF_VERB[verb]))
        getattr(self.model, verb)(job_id)
        self.agree()

    @rule()
    def promote(self) -> None:
        assert self.ask(self.store.promote(1000)).count == self.model.promote()
        self.agree()

    @rule(seconds=st.sampled_from([2.0, 60.0, 3600.0, 8 * 86400.0, 31 * 86400.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.now = self.clock.now()
        self.agree()
