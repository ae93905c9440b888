"""The states that a task reports: which are declared, and when they changed."""

from typing import Any

import pytest

from durio.errors import InvalidOption, UsageError
from durio.model.job_states import CHANGES_MAX, STATES_MAX, StateChanges, parse_states


class Clock:
    """One second later at each look."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        self.seconds += 1
        return self.seconds


def test_each_change_is_noted_with_its_time() -> None:
    changes = StateChanges("shop.load", (), Clock().now)
    assert changes.enter(None) == []
    for state in ("validating", "validating", None, "uploading"):
        found = changes.enter(state)
    assert found == [("validating", 1.0), ("uploading", 2.0)]
    assert changes.enter("validating")[-1] == ("validating", 3.0)


def test_the_newest_changes_are_kept() -> None:
    changes = StateChanges("shop.load", (), Clock().now)
    for n in range(3 * CHANGES_MAX):
        found = changes.enter(f"{n % 2}")
    assert len(found) == CHANGES_MAX
    assert found[-1][1] == 3.0 * CHANGES_MAX


def test_a_state_that_is_not_declared_is_refused() -> None:
    changes = StateChanges("shop.load", ("validating", "uploading"), Clock().now)
    with pytest.raises(
        UsageError, match="does not declare the state 'uploadin'"
    ) as caught:
        changes.enter("uploadin")
    assert "Did you mean 'uploading'?" in caught.value.cure
    assert changes.enter(None) == []


@pytest.mark.parametrize("given", [["a", "b"], ("a",), ["x" * 64]])
def test_names_of_states(given: Any) -> None:
    assert parse_states(given, "") == tuple(given)


@pytest.mark.parametrize(
    "given",
    [
        *("ab", [], [""], ["a", "a"], [5], ["x" * 65], {"a": 1}, None),
        [str(n) for n in range(STATES_MAX + 1)],
    ],
)
def test_what_is_no_list_of_names_is_refused(given: Any) -> None:
    with pytest.raises(InvalidOption, match="states cannot be"):
        parse_states(given, "")
