"""Outcomes gathered for the next exchange, and what is told once they are accepted.

An outcome leaves this buffer only when the store has answered for it. Whatever is said
to logs and hooks is said after that: a transition the store refused never happened.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from durio.model.outcome import Kind, Left, Outcome
from durio.ports.exchange import Exchanged
from durio.telemetry.emit import Emit, JobEvent
from durio.telemetry.names import JOB_CANCELLED, JOB_DONE, JOB_FALTERED, JOB_FENCED
from durio.worker.inflight import Attempt

BEGIN_ANEW = frozenset({Kind.RETRY, Kind.SNOOZE, Kind.RELEASE, Kind.LOST})


class Ended(NamedTuple):
    """One outcome on its way to the store."""

    outcome: Outcome
    attempt: Attempt | None  # None: never started (a release of the buffer)
    event: JobEvent | None  # None: done, or nothing to tell

    @property
    def told(self) -> JobEvent | None:
        """What there is to tell once it is accepted."""
        if self.event is None and self.outcome.kind == Kind.DONE:
            return done_event(self.attempt)
        return self.event


class Outbox:
    """The outcomes that the store has not answered for yet."""

    def __init__(
        self,
        emit: Emit,
        tell_hooks: Callable[[Sequence[JobEvent]], None],
        *,
        has_hooks: bool,
    ) -> None:
        self._emit = emit
        self._tell_hooks = tell_hooks
        self._has_hooks = has_hooks
        self._ended: list[Ended] = []
        self._notes: dict[bytes, Ended] = {}
        self.sent: list[Ended] = []

    def __len__(self) -> int:
        return len(self._ended)

    @property
    def has_progress(self) -> bool:
        """Whether a note about a running attempt waits, and may go."""
        return any(not _is_held(note) for note in self._notes.values())

    @property
    def has_sent_mark(self) -> bool:
        """Whether a job about to run alone was marked by the exchange in flight."""
        return any(ended.outcome.kind == Kind.ALONE for ended in self.sent)

    def holds(self, job_id: bytes) -> bool:
        """Whether an outcome of this job waits to be sent."""
        return any(ended.outcome.id == job_id for ended in self._ended)

    def add(self, ended: Ended) -> None:
        """An attempt ended, or a claim goes back."""
        attempt = ended.attempt
        if attempt is not None and attempt.recorded is not None:
            self._tell_recorded(ended)
        else:
            self._ended.append(ended)

    def _tell_recorded(self, ended: Ended) -> None:
        """The store has it already, from the task's own transaction."""
        events = [done_event(ended.attempt)]
        if ended.event is not None and ended.event.name == JOB_FALTERED:
            events.append(ended.event)
        self._notes.pop(ended.outcome.id, None)
        self._emit.jobs(events)
        if self._has_hooks:
            self._tell_hooks(events[:1])

    def note(self, outcome: Outcome, attempt: Attempt) -> None:
        """Progress of a running attempt: only the newest counts."""
        self._notes[outcome.id] = Ended(outcome, attempt, None)

    def take(self) -> list[Outcome]:
        """Everything there is, for one exchange; `settle` or `keep` must follow."""
        self.sent, self._ended = self._ended, []
        if self._notes:
            # A final job keeps its last word; one that begins anew needs none.
            over = {e.outcome.id for e in self.sent if e.outcome.kind in BEGIN_ANEW}
            notes = [n for n in self._notes.values() if n.outcome.id not in over]
            held = {n.outcome.id: n for n in notes if _is_held(n)}
            self.sent = [n for n in notes if n.outcome.id not in held] + self.sent
            self._notes = held
        return [ended.outcome for ended in self.sent]

    def keep(self) -> None:
        """The exchange failed: its outcomes stay first in line."""
        for ended in self.sent:
            if ended.outcome.kind == Kind.PROGRESS:
                self._notes.setdefault(ended.outcome.id, ended)
        kept = [e for e in self.sent if e.outcome.kind != Kind.PROGRESS]
        self._ended = kept + self._ended
        self.sent = []

    def drop(self) -> list[Ended]:
        """The lease is lost: nothing of this may be written any more."""
        dropped, self._ended, self.sent = self.sent + self._ended, [], []
        self._notes = {}
        return dropped

    def settle(self, answer: Exchanged) -> None:
        """Tell what the store accepted, and what it refused."""
        sent, self.sent = self.sent, []
        if answer.rejected or answer.cancelled:
            sent = self._without_refused(sent, answer)
        # Asked each time: somebody may have begun to listen.
        if not self._has_hooks and not self._emit.wants(JOB_DONE):
            events = [ended.event for ended in sent if ended.event is not None]
        else:
            events = [
                ended.event or done_event(ended.attempt)
                for ended in sent
                if ended.event is not None or ended.outcome.kind == Kind.DONE
            ]
        if events:
            self._emit.jobs(events)
            if self._has_hooks:
                self._tell_hooks(events)

    def _without_refused(self, sent: list[Ended], answer: Exchanged) -> list[Ended]:
        refused = {(r.id, r.claim_no): r for r in answer.rejected}
        cancelled = set(answer.cancelled)
        accepted: list[Ended] = []
        late: list[JobEvent] = []
        for ended in sent:
            outcome = ended.outcome
            refusal = refused.get((outcome.id, outcome.claim_no))
            if refusal is None:
                accepted.append(
                    _as_cancelled(ended) if outcome.id in cancelled else ended
                )
            elif refusal.landed:
                # The first try was accepted, its reply was lost; or its transaction was.
                accepted.append(_as_done(ended) if _is_unsure(ended) else ended)
            elif ended.attempt is not None and outcome.kind != Kind.PROGRESS:
                late.append(done_event(ended.attempt)._replace(name=JOB_FENCED))
        if late:
            self._emit.jobs(late)
        return accepted


def _is_held(note: Ended) -> bool:
    """Whether its attempt has a transaction open: it goes with the end of that.

    Stored now it would change the row that the transaction ends: one at REPEATABLE READ
    could not do so any more.
    """
    attempt = note.attempt
    if attempt is None or attempt.is_over:
        return False
    return attempt.transaction is not None


def _is_unsure(ended: Ended) -> bool:
    return ended.attempt is not None and ended.attempt.is_unsure


def _as_done(ended: Ended) -> Ended:
    return ended._replace(outcome=ended.outcome._replace(kind=Kind.DONE), event=None)


def _as_cancelled(ended: Ended) -> Ended:
    if ended.attempt is None or ended.outcome.kind == Kind.DONE:
        return ended
    event = ended.event or done_event(ended.attempt)
    return ended._replace(event=event._replace(name=JOB_CANCELLED))


def rescued_event(left: Left, name: str) -> JobEvent:
    """The event of a job that left `running` by a rescuer's hand."""
    return JobEvent(
        name=name,
        id=left.id,
        task=left.task,
        lane=left.lane,
        attempt=left.attempt,
        reason=left.reason or "",
        worker=str(left.worker),
    )


def event_of(attempt: Attempt, name: str) -> JobEvent:
    """The event of an attempt that has not ended yet."""
    claim = attempt.claim
    meta = None if attempt.cold is None else attempt.cold.meta
    return JobEvent(name, claim.id, claim.task, claim.lane, attempt.number, meta=meta)


def done_event(attempt: Attempt | None) -> JobEvent:
    """The event of an attempt that ended well; built only when somebody listens."""
    if attempt is None:
        raise ValueError("only attempts are told about")
    claim = attempt.claim
    return JobEvent(
        JOB_DONE,
        claim.id,
        claim.task,
        claim.lane,
        claim.retried + claim.losses + 1,
        attempt.ended - attempt.started,
    )
