"""Decide, before anything is written, which jobs of an enqueue are stored and how.

All inputs were read under their locks: guards of queues, holders of keys, jobs that are
already stored. So the calls are decided in memory, one by one. Either all jobs of a call
enter their queues or none does. Calls are decided in the order in which they arrived: after
a call is refused, no later call takes the room that was too small for it. A job that
returns an already stored job needs no room.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from durio.model.errors import InvariantBroken
from durio.model.job import (
    READY,
    RUNNING,
    STATE_BY_CODE,
    KeyClaim,
    NewJob,
)
from durio.model.keys import WAITING, KeyAnswer, KeyHolder, key_answer
from durio.model.names import namespace_of
from durio.model.ties import load_ties
from durio.ports.enqueue import Enqueued, Full
from durio.stores.postgres.bounds import PostgresGuard
from durio.stores.postgres.drafts import Draft, StoredState, draft_of, due_at
from durio.stores.postgres.keys import KeyHold, new_hold


class StaleRead(Exception):
    """The store changed after it was read: start again in a new transaction."""


class PostgresNoRoom(Exception):
    """A call does not fit into a queue."""

    def __init__(self, full: Full) -> None:
        super().__init__(full)
        self.full = full


class AdmissionInput(NamedTuple):
    """The state that was read under locks, from which the calls are decided."""

    now: float
    guards: Mapping[str, PostgresGuard]
    locked_lanes: frozenset[str]  # lanes whose guards were read
    namespaces_with_workers: frozenset[str]
    stored: Mapping[bytes, StoredState]
    held: Mapping[bytes, KeyHold]
    locked_jobs: frozenset[bytes] = frozenset()  # waiting holders whose rows are locked


class Admission:
    """Decides all calls of an enqueue and collects the changes to write."""

    def __init__(
        self,
        known: AdmissionInput,
        *,
        in_caller_tx: bool = False,
        has_fixed_snapshot: bool = False,
        enters_full: bool = False,
        enters_closed: bool = False,
    ) -> None:
        """Take the state that was read and the kind of transaction.

        `in_caller_tx`: the enqueue runs in a caller's transaction, and its results name
        full queues. `has_fixed_snapshot`: that transaction may not see every bound.
        `enters_full`: the jobs enter full queues. `enters_closed`: closed ones, too.
        """
        self.known = known
        self.in_caller_tx = in_caller_tx
        self.has_fixed_snapshot = has_fixed_snapshot
        self.enters_full = enters_full or in_caller_tx
        self.enters_closed = enters_closed
        self.full_queues: dict[str, Full] = {}
        self.drafts: dict[bytes, Draft] = {}
        self.payloads: dict[bytes, bytes] = {}  # new arguments of stored jobs with ties
        self.holds: dict[bytes, KeyHold] = {}  # by key: the holder after this enqueue
        self.entered: Counter[str] = Counter()
        self.stale_soft_marks: set[str] = set()
        self.refused_lanes: dict[str, Full] = {}  # refused for the rest of this enqueue

    def enqueue(self, jobs: Sequence[NewJob], calls: Sequence[int]) -> list[Enqueued]:
        """Decide all jobs; return one result for each, in order."""
        if sum(calls) != len(jobs):
            raise InvariantBroken(f"calls of {sum(calls)} jobs, but {len(jobs)} jobs")
        answers: list[Enqueued] = []
        for size in calls:
            answers += self._admit_call(jobs[len(answers) : len(answers) + size])
        return answers

    def _admit_call(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        call = CallAdmission(self)
        try:
            answers = call.enqueue(jobs)
        except PostgresNoRoom as no_room:
            self.refused_lanes.setdefault(no_room.full.lane, no_room.full)
            return [Enqueued(j.id, False, READY, full=no_room.full) for j in jobs]
        self.drafts |= call.drafts
        self.payloads |= call.payloads
        self.holds |= call.holds
        self.entered.update(call.entered)
        if not self.full_queues:
            return answers
        return [
            answer._replace(full=self.full_queues.get(job.lane))
            if answer.created
            else answer
            for job, answer in zip(jobs, answers, strict=True)
        ]

    # --- room

    def missing_room(self, lane: str, jobs: int, entered: int) -> Full | None:
        """Return why this number of new jobs may not enter; None if they may."""
        return self._unless_entering(self._missing_room(lane, jobs, entered))

    def is_closed(self, lane: str) -> Full | None:
        """Return why a job that waits for a log may not enter; no bound refuses it."""
        guard = self.known.guards.get(lane)
        if guard is None or not guard.is_closed:
            return None
        depth = guard.depth + self.entered[lane]
        return self._unless_entering(
            Full(lane, depth, guard.limit or 0, is_closed=True)
        )

    def _unless_entering(self, full: Full | None) -> Full | None:
        if full is None or not (
            self.enters_closed if full.is_closed else self.enters_full
        ):
            return full
        self.full_queues[full.lane] = full
        return None

    def _missing_room(self, lane: str, jobs: int, entered: int) -> Full | None:
        guard = self.known.guards.get(lane)
        if guard is None or jobs <= 0:
            return None
        if lane in self.refused_lanes:
            return self.refused_lanes[lane]
        depth = guard.depth + self.entered[lane] + entered
        if guard.is_closed:
            return Full(lane, depth, guard.limit or 0, is_closed=True)
        if guard.limit is not None:
            fits = depth + jobs <= guard.limit
            return None if fits else Full(lane, depth, guard.limit)
        return self._over_soft_limit(lane, guard)

    def _over_soft_limit(self, lane: str, guard: PostgresGuard) -> Full | None:
        """Obey the soft mark while a leader can clear it; otherwise clear it here."""
        if (
            guard.soft_limit
            and namespace_of(lane) in self.known.namespaces_with_workers
        ):
            return Full(lane, guard.depth, guard.soft_limit, is_soft=True)
        if guard.soft_limit:
            self.stale_soft_marks.add(lane)
        return None

    def counts(self, lane: str) -> bool:
        """Whether a lane has a bound of its own, or may have one."""
        guard = self.known.guards.get(lane)
        return self.has_fixed_snapshot or (
            guard is not None and guard.limit is not None
        )


class CallAdmission:
    """The jobs of one call; its changes are kept apart until the call is admitted."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.known = admission.known
        self.drafts: dict[bytes, Draft] = {}
        self.payloads: dict[bytes, bytes] = {}
        self.holds: dict[bytes, KeyHold] = {}
        self.entered: Counter[str] = Counter()
        self.starting: Counter[str] = Counter()  # those of them that need room

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Admit all jobs or raise PostgresNoRoom."""
        if all(job.key is None for job in jobs):
            self.check_plain(jobs)
        return [self.admit_one(job) for job in jobs]

    def check_plain(self, jobs: Sequence[NewJob]) -> None:
        """Check the room for jobs without keys first: their number is known in advance."""
        new = {job.id: job for job in jobs if self.stored(job.id) is None}
        starting = Counter(job.lane for job in new.values() if job.wait is None)
        for lane in dict.fromkeys(job.lane for job in new.values()):
            count = starting[lane]
            full = (
                self.admission.missing_room(lane, count, 0)
                if count
                else self.admission.is_closed(lane)
            )
            if full is not None:
                raise PostgresNoRoom(full)

    def admit_one(self, job: NewJob) -> Enqueued:
        stored = self.stored(job.id)
        if stored is not None:
            return Enqueued(job.id, False, stored.state)
        if job.key is None:
            return self.insert(job, due_at(job, self.known.now))
        return self.admit_keyed(job, job.key)

    # --- what is there

    def draft(self, job_id: bytes) -> Draft | None:
        """Return the row that this enqueue has prepared for the job so far, if any."""
        return self.drafts.get(job_id) or self.admission.drafts.get(job_id)

    def stored(self, job_id: bytes) -> StoredState | None:
        """Return the job's state, including the changes that this enqueue has prepared."""
        draft = self.draft(job_id)
        if draft is None:
            return self.known.stored.get(job_id)
        ties = None if draft.ties is None else load_ties(draft.ties)
        has_ties = ties is not None and (ties.wait is not None or bool(ties.on_end))
        return StoredState(draft.state, draft.lane, draft.created_at, has_ties)

    def hold(self, key: bytes) -> KeyHold | None:
        """Return the current holder of the key."""
        return (
            self.holds.get(key)
            or self.admission.holds.get(key)
            or self.known.held.get(key)
        )

    # --- entering

    def enter(self, lane: str) -> None:
        """Count one more waiting job in this lane; raises PostgresNoRoom."""
        full = self.admission.missing_room(lane, 1, self.starting[lane])
        if full is not None:
            raise PostgresNoRoom(full)
        self.starting[lane] += 1
        self.move(lane, 1)

    def enter_blocked(self, lane: str) -> None:
        """Count one more job that waits for a log; raises PostgresNoRoom."""
        full = self.admission.is_closed(lane)
        if full is not None:
            raise PostgresNoRoom(full)
        self.move(lane, 1)

    def move(self, lane: str, jobs: int) -> None:
        """Add `jobs` to the depth of the lane if the lane's depth is counted."""
        if self.admission.counts(lane):
            self.entered[lane] += jobs

    def insert(self, job: NewJob, run_at: float | None) -> Enqueued:
        if job.wait is None:
            self.enter(job.lane)
        else:
            self.enter_blocked(job.lane)
        draft = draft_of(job, run_at, self.known.now)
        self.drafts[job.id] = draft
        return Enqueued(job.id, True, draft.state)

    # --- keys

    def admit_keyed(self, job: NewJob, key: KeyClaim) -> Enqueued:
        """Store a new job, or return what the key's holder requires."""
        held = self.hold(key.key)
        stored = None if held is None else self.stored(held.id)
        answer = key_answer(key.mode, None if held is None else self.holder(held, key))
        if held is None or stored is None or answer is KeyAnswer.NEW:
            wait = key.delay_seconds
            now = self.known.now
            answered = self.insert(job, now + wait if wait > 0 else due_at(job, now))
            self.holds[key.key] = new_hold(job.id, key, now)
            return answered
        if answer is KeyAnswer.REWRITE:
            return self.rewrite(job, key, held, stored)
        if (
            self.admission.in_caller_tx
            and key.mode == WAITING
            and not self.cannot_start(held.id)
        ):
            raise StaleRead  # the holder may start before the caller commits
        same_args = held.digest == key.digest
        is_conflict = answer is KeyAnswer.CONFLICT
        return Enqueued(held.id, False, stored.state, same_args, conflict=is_conflict)

    def cannot_start(self, job_id: bytes) -> bool:
        """Whether this waiting job cannot start before this enqueue is committed."""
        return job_id in self.known.locked_jobs or self.draft(job_id) is not None

    def holder(self, held: KeyHold, key: KeyClaim) -> KeyHolder:
        """Return the holder as `model.keys.key_answer` reads it."""
        stored = self.stored(held.id)
        if stored is not None and stored.state == RUNNING and held.mode == WAITING:
            stored = None  # the holder has started, and could not free its key
        return KeyHolder(
            state=None if stored is None else STATE_BY_CODE[stored.state],
            in_window=held.until is not None and held.until > self.known.now,
            same_args=held.digest == key.digest,
        )

    def rewrite(
        self, job: NewJob, key: KeyClaim, held: KeyHold, stored: StoredState
    ) -> Enqueued:
        """Give the waiting holder this job's arguments and due time."""
        if stored.has_ties:
            return self.rewrite_tied(job, key, held, stored)
        now = self.known.now
        run_at = due_at(job, now)
        if key.delay_seconds > 0:
            run_at = now + key.delay_seconds
            if key.ttl_seconds > 0:
                run_at = min(run_at, stored.created_at + key.ttl_seconds)
        if job.lane != stored.lane:
            if stored.lane not in self.known.locked_lanes:
                # The holder was in another lane when guards were locked.
                raise StaleRead
            self.enter(job.lane)
            self.move(stored.lane, -1)
        before = self.draft(held.id)
        untied = job._replace(wait=None, on_end=())
        draft = draft_of(untied, run_at, now)._replace(
            is_new=before is not None and before.is_new,
            id=held.id,
            created_at=stored.created_at,
        )
        self.drafts[held.id] = draft
        self.holds[key.key] = new_hold(held.id, key, now)
        same_args = held.digest == key.digest
        return Enqueued(held.id, False, draft.state, same_args, replaced=True)

    def rewrite_tied(
        self, job: NewJob, key: KeyClaim, held: KeyHold, stored: StoredState
    ) -> Enqueued:
        """Give the waiting holder, a node of a plan, this job's arguments only."""
        before = self.draft(held.id)
        if before is not None:
            self.drafts[held.id] = before._replace(payload=job.payload)
        else:
            self.payloads[held.id] = job.payload
        self.holds[key.key] = new_hold(held.id, key, self.known.now)
        same_args = held.digest == key.digest
        return Enqueued(held.id, False, stored.state, same_args, replaced=True)
