"""The one gate out of running, as a table, and what may follow what."""

from itertools import product

import pytest

from durio.model.errors import WrongState
from durio.model.job import State
from durio.model.outcome import OutcomeKind
from durio.model.transitions import LOST_MAX, Transition, check_retry, is_legal, way_out

DONE, DEAD, CANCELLED = State.DONE, State.DEAD, State.CANCELLED
READY, SCHEDULED, BLOCKED = State.READY, State.SCHEDULED, State.BLOCKED
# The others are about an attempt that goes on.
ENDING_KINDS = frozenset(OutcomeKind) - {OutcomeKind.PROGRESS, OutcomeKind.ALONE}


@pytest.mark.proves("M110")
@pytest.mark.parametrize(
    ("kind", "lost", "flags", "wanted"),
    [
        (OutcomeKind.DONE, 1, {}, Transition(DONE, lost=1)),
        (OutcomeKind.DONE, 1, {"cancel_asked": True}, Transition(DONE, lost=1)),
        (OutcomeKind.CANCEL, 0, {}, Transition(CANCELLED)),
        (OutcomeKind.DEAD, 2, {}, Transition(DEAD, lost=2)),
        (OutcomeKind.RETRY, 2, {}, Transition(READY, retried=1)),
        (OutcomeKind.RETRY, 2, {"delayed": True}, Transition(SCHEDULED, retried=1)),
        (OutcomeKind.SNOOZE, 2, {"delayed": True}, Transition(SCHEDULED, snoozed=1)),
        (OutcomeKind.RELEASE, 2, {}, Transition(READY, lost=2)),
        (OutcomeKind.RELEASE, 2, {"delayed": True}, Transition(SCHEDULED, lost=2)),
        (OutcomeKind.LOST, 0, {}, Transition(READY, losses=1, lost=1)),
        (OutcomeKind.LOST, 1, {"alone": True}, Transition(READY, losses=1, lost=2)),
        (OutcomeKind.LOST, 2, {}, Transition(READY, lost=2)),
        (OutcomeKind.LOST, 2, {"alone": True}, Transition(DEAD, lost=2)),
        (OutcomeKind.LOST, 2, {"killed_process": True}, Transition(DEAD, lost=2)),
    ],
)
def test_way_out(
    kind: OutcomeKind, lost: int, flags: dict[str, bool], wanted: Transition
) -> None:
    assert way_out(kind, lost=lost, **{"delayed": False, **flags}) == wanted


@pytest.mark.parametrize("kind", sorted(ENDING_KINDS - {OutcomeKind.DONE}))
@pytest.mark.parametrize("lost", range(LOST_MAX))
def test_an_asked_cancel_beats_everything_but_done(
    kind: OutcomeKind, lost: int
) -> None:
    for alone, guilty in product((True, False), repeat=2):
        flags = {"alone": alone, "killed_process": guilty, "delayed": True}
        way = way_out(kind, lost=lost, cancel_asked=True, **flags)
        assert way == Transition(CANCELLED, lost=lost)


def test_every_way_out_is_legal_and_charges_at_most_one_thing() -> None:
    bools = (True, False)
    for kind in ENDING_KINDS:
        for lost, *flags in product(range(LOST_MAX), bools, bools, bools, bools):
            delayed, asked, alone, guilty = flags
            way = way_out(
                kind,
                lost=lost,
                delayed=delayed,
                cancel_asked=asked,
                alone=alone,
                killed_process=guilty,
            )
            assert is_legal(State.RUNNING, way.state)
            assert way.retried + way.snoozed + way.losses <= 1
            assert 0 <= way.lost < LOST_MAX


def test_final_states_are_left_only_by_an_operator() -> None:
    for old, new in product(State, State):
        if old.is_final and is_legal(old, new):
            assert old in {DEAD, CANCELLED}
            assert new in {READY, BLOCKED}  # blocked: it waits for a log again
        assert not (old is new and is_legal(old, new))


@pytest.mark.parametrize("state", State)
def test_an_operator_retries_dead_and_cancelled_only(state: State) -> None:
    if state in {DEAD, CANCELLED}:
        check_retry(state, "1")
        return
    with pytest.raises(WrongState, match=f"is {state.value} and cannot be retried"):
        check_retry(state, "1")
