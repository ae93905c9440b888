"""The table of legal state changes, and the one exit from `running`.

Every change from `running` other than to `done` goes through `way_out`: a worker's retry,
snooze, release, death and cancel, a rescuer's loss, an operator's action. Each store
implements the same rule; the conformance suite compares them.
"""

from typing import NamedTuple

from durio.model.errors import WrongState
from durio.model.job import State
from durio.model.outcome import OutcomeKind

LOST_MAX = 3  # losses in a row that make a job dead

LEGAL: dict[State, frozenset[State]] = {
    # A job that is due, or that runs and has to pass its gates again, may be blocked.
    State.SCHEDULED: frozenset(
        {State.READY, State.BLOCKED, State.CANCELLED, State.DEAD}
    ),
    State.BLOCKED: frozenset(
        {State.READY, State.SCHEDULED, State.CANCELLED, State.DEAD}
    ),
    State.READY: frozenset(
        {State.RUNNING, State.SCHEDULED, State.CANCELLED, State.DEAD}
    ),
    State.RUNNING: frozenset(
        {
            *(State.DONE, State.DEAD, State.CANCELLED),
            *(State.READY, State.SCHEDULED, State.BLOCKED),
        }
    ),
    State.DONE: frozenset(),
    State.DEAD: frozenset({State.READY, State.BLOCKED}),
    State.CANCELLED: frozenset({State.READY, State.BLOCKED}),
}


class Transition(NamedTuple):
    """The next state of a job, and what is added to its counters."""

    state: State
    retried: int = 0
    snoozed: int = 0
    losses: int = 0
    lost: int = 0  # the new value of losses in a row


def is_legal(old: State, new: State) -> bool:
    """Whether a job may go from `old` to `new` in one change."""
    return new in LEGAL[old]


def way_out(
    kind: OutcomeKind,
    *,
    lost: int,
    delayed: bool,
    cancel_asked: bool = False,
    alone: bool = False,
    killed_process: bool = False,
) -> Transition:
    """Return the state of a running job when its attempt ends in `kind`.

    A requested cancel wins over everything but done. A loss is charged; at LOST_MAX in a
    row the job is dead, but only if it ran alone or is known to have killed its process.
    Otherwise it is released without a charge.

    A release with `again_from_gates` leads to `ready` here; a gate may block the job then.
    """
    if kind is OutcomeKind.DONE:
        return Transition(State.DONE, lost=lost)
    if cancel_asked or kind is OutcomeKind.CANCEL:
        return Transition(State.CANCELLED, lost=lost)
    if kind is OutcomeKind.LOST and lost >= LOST_MAX - 1:
        # Dead only if this job itself is known to be the cause.
        kind = OutcomeKind.DEAD if alone or killed_process else OutcomeKind.RELEASE
    if kind is OutcomeKind.DEAD:
        return Transition(State.DEAD, lost=lost)
    back = State.SCHEDULED if delayed else State.READY
    charged = int(kind is OutcomeKind.LOST)
    if charged or kind is OutcomeKind.RELEASE:
        return Transition(back, losses=charged, lost=lost + charged)
    return Transition(
        back,
        retried=int(kind is OutcomeKind.RETRY),
        snoozed=int(kind is OutcomeKind.SNOOZE),
    )


def check_retry(state: State, job_id: str) -> None:
    """Refuse an operator's retry unless the job is dead or cancelled."""
    if not is_legal(state, State.READY) or not state.is_final:
        raise WrongState(
            f"job {job_id} is {state.value} and cannot be retried",
            cure="Only dead and cancelled jobs can be retried.",
            state=state,
        )


def check_run_now(state: State, job_id: str) -> None:
    """Refuse to make a job ready unless it is scheduled."""
    if state is not State.SCHEDULED:
        raise WrongState(
            f"job {job_id} is {state.value} and is not scheduled",
            cure="Only scheduled jobs, and those that wait for a retry, can be run now.",
            state=state,
        )
