"""Outcomes for the next exchange, and their events once the store accepts them.

An outcome leaves this buffer only when the store has replied about it. Logs and hooks get
its event after that, because a transition that the store refused never happened.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from durio.model.errors import DurioError, InvariantBroken
from durio.model.outcome import Outcome, OutcomeKind, RescuedJob
from durio.ports.conflicts import Conflict
from durio.ports.exchange import Exchanged
from durio.telemetry.emit import Emit, JobEvent
from durio.telemetry.names import JOB_CANCELLED, JOB_DONE, JOB_FALTERED, JOB_FENCED
from durio.worker.inflight import Attempt
from durio.worker.plan_changes import refusal_error

RUNS_AGAIN = frozenset(
    {OutcomeKind.RETRY, OutcomeKind.SNOOZE, OutcomeKind.RELEASE, OutcomeKind.LOST}
)


class UnsentOutcome(NamedTuple):
    outcome: Outcome
    attempt: Attempt | None  # None: the claim never started
    event: JobEvent | None  # None: done, or nothing to report

    @property
    def accepted_event(self) -> JobEvent | None:
        """The event to report once the store accepts the outcome."""
        if self.event is None and self.outcome.kind == OutcomeKind.DONE:
            return done_event(self.attempt)
        return self.event


class OutcomeBuffer:
    """The outcomes that the store has not replied about yet."""

    def __init__(
        self,
        emit: Emit,
        notify_hooks: Callable[[Sequence[JobEvent]], None],
        *,
        has_hooks: bool,
    ) -> None:
        self._emit = emit
        self._notify_hooks = notify_hooks
        self._has_hooks = has_hooks
        self._unsent: list[UnsentOutcome] = []
        self._progress: dict[bytes, UnsentOutcome] = {}
        self.sent: list[UnsentOutcome] = []
        self._accepted: list[UnsentOutcome] = []  # not reported yet
        self._conflicts: list[tuple[UnsentOutcome, Conflict]] = []

    def __len__(self) -> int:
        return len(self._unsent)

    @property
    def has_progress(self) -> bool:
        """Whether progress of a running attempt waits and may be sent."""
        return any(not _is_held(update) for update in self._progress.values())

    @property
    def has_sent_mark(self) -> bool:
        """Whether the last exchange sent an `alone` mark."""
        return any(ended.outcome.kind == OutcomeKind.ALONE for ended in self.sent)

    def holds(self, job_id: bytes) -> bool:
        return any(ended.outcome.id == job_id for ended in self._unsent)

    def add(self, unsent: UnsentOutcome) -> None:
        attempt = unsent.attempt
        if attempt is not None and attempt.recorded is not None:
            self._report_recorded(unsent)
        else:
            self._unsent.append(unsent)

    def _report_recorded(self, unsent: UnsentOutcome) -> None:
        """Report an end that the task's own transaction has already stored."""
        events = [done_event(unsent.attempt)]
        if unsent.event is not None and unsent.event.name == JOB_FALTERED:
            events.append(unsent.event)
        self._progress.pop(unsent.outcome.id, None)
        self._emit.jobs(events)
        if self._has_hooks:
            self._notify_hooks(events[:1])

    def add_progress(self, outcome: Outcome, attempt: Attempt) -> None:
        """Add the progress of a running attempt, in place of an older one."""
        self._progress[outcome.id] = UnsentOutcome(outcome, attempt, None)

    def take(self) -> list[Outcome]:
        """Return all outcomes, for one exchange.

        `apply_answer`, `keep` or `drop` must follow.
        """
        self.sent, self._unsent = self._unsent, []
        if self._progress:
            # A final job keeps its last progress; a job that runs again needs none.
            over = {e.outcome.id for e in self.sent if e.outcome.kind in RUNS_AGAIN}
            updates = [n for n in self._progress.values() if n.outcome.id not in over]
            held = {n.outcome.id: n for n in updates if _is_held(n)}
            self.sent = [n for n in updates if n.outcome.id not in held] + self.sent
            self._progress = held
        return [ended.outcome for ended in self.sent]

    def keep(self) -> None:
        """Put the outcomes of a failed exchange first in the next one."""
        for ended in self.sent:
            if ended.outcome.kind == OutcomeKind.PROGRESS:
                self._progress.setdefault(ended.outcome.id, ended)
        kept = [e for e in self.sent if e.outcome.kind != OutcomeKind.PROGRESS]
        self._unsent = kept + self._unsent
        self.sent = []

    def drop(self) -> list[UnsentOutcome]:
        """Forget and return all outcomes: the lease is lost, or the caller writes them."""
        dropped, self._unsent, self.sent = self.sent + self._unsent, [], []
        self._progress = {}
        return dropped

    def apply_answer(self, answer: Exchanged) -> None:
        """Keep what the store accepted for `report`; report what it refused."""
        sent, self.sent = self.sent, []
        if answer.rejected or answer.cancelled:
            sent = self._without_refused(sent, answer)
        self._accepted += sent

    def end_refused(
        self,
        refused: Callable[[Attempt, DurioError], tuple[Outcome, JobEvent | None]],
        nudge: Callable[[], None],
    ) -> None:
        """Add other ends for attempts whose effects were refused: their jobs still run."""
        conflicts, self._conflicts = self._conflicts, []
        for sent, conflict in conflicts:
            if sent.attempt is None:
                raise InvariantBroken("only attempts have effects")
            outcome, event = refused(sent.attempt, refusal_error(conflict))
            self._unsent.append(UnsentOutcome(outcome, sent.attempt, event))
            nudge()

    def report(self) -> None:
        """Report what the store has accepted since the last call."""
        if events := self.take_events():
            self._emit.jobs(events)
            if self._has_hooks:
                self._notify_hooks(events)

    def take_events(self) -> list[JobEvent]:
        """Return the events of what the store has accepted, for the caller to report."""
        accepted, self._accepted = self._accepted, []
        # Checked each time, because a listener may have been added.
        if not self._has_hooks and not self._emit.wants(JOB_DONE):
            return [ended.event for ended in accepted if ended.event is not None]
        return [
            ended.event or done_event(ended.attempt)
            for ended in accepted
            if ended.event is not None or ended.outcome.kind == OutcomeKind.DONE
        ]

    def _without_refused(
        self, sent: list[UnsentOutcome], answer: Exchanged
    ) -> list[UnsentOutcome]:
        refused = {(r.id, r.claim_no): r for r in answer.rejected}
        cancelled = set(answer.cancelled)
        accepted: list[UnsentOutcome] = []
        late: list[JobEvent] = []
        for ended in sent:
            outcome = ended.outcome
            refusal = refused.get((outcome.id, outcome.claim_no))
            if refusal is None:
                accepted.append(
                    _as_cancelled(ended) if outcome.id in cancelled else ended
                )
            elif refusal.conflict is not None:
                self._conflicts.append((ended, refusal.conflict))
            elif refusal.already_stored:
                # An earlier attempt to send, or the task's transaction, committed; its
                # reply was lost.
                accepted.append(_as_done(ended) if _is_commit_unknown(ended) else ended)
            elif ended.attempt is not None and outcome.kind != OutcomeKind.PROGRESS:
                late.append(done_event(ended.attempt)._replace(name=JOB_FENCED))
        if late:
            self._emit.jobs(late)
        return accepted


def _is_held(update: UnsentOutcome) -> bool:
    """Whether the attempt has an open transaction, which stores progress at its end.

    Stored earlier, progress would change the row that the transaction is to update; at
    REPEATABLE READ that update would then fail.
    """
    attempt = update.attempt
    if attempt is None or attempt.is_over:
        return False
    return attempt.transaction is not None


def _is_commit_unknown(ended: UnsentOutcome) -> bool:
    return ended.attempt is not None and ended.attempt.is_commit_unknown


def _as_done(ended: UnsentOutcome) -> UnsentOutcome:
    return ended._replace(
        outcome=ended.outcome._replace(kind=OutcomeKind.DONE), event=None
    )


def _as_cancelled(ended: UnsentOutcome) -> UnsentOutcome:
    if ended.attempt is None or ended.outcome.kind == OutcomeKind.DONE:
        return ended
    event = ended.event or done_event(ended.attempt)
    return ended._replace(event=event._replace(name=JOB_CANCELLED))


def rescued_event(left: RescuedJob, name: str) -> JobEvent:
    """Return the event of a job that a rescuer took out of `running`."""
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
    """Return the event of an attempt that has not ended yet."""
    claim = attempt.claim
    meta = None if attempt.overrides is None else attempt.overrides.meta
    return JobEvent(
        name,
        claim.id,
        claim.task,
        claim.lane,
        attempt.number,
        meta=meta,
        max_attempts=attempt.retry.max_attempts,
    )


def done_event(attempt: Attempt | None) -> JobEvent:
    """Return the event of a successful attempt; built only when there is a listener."""
    if attempt is None:
        raise ValueError("only attempts have outcomes")
    claim = attempt.claim
    return JobEvent(
        JOB_DONE,
        claim.id,
        claim.task,
        claim.lane,
        claim.retried + claim.losses + 1,
        attempt.ended - attempt.started,
        max_attempts=attempt.retry.max_attempts,
    )
