"""Idempotency keys: every cell of the table, as the pure rule has it."""

import pytest

from durio.model import keys
from durio.model.job import State
from durio.model.keys import (
    KeyAnswer,
    KeyHolder,
    debounce,
    key_answer,
    key_claim,
    window,
)

NEW, EXISTING, REWRITE = KeyAnswer.NEW, KeyAnswer.EXISTING, KeyAnswer.REWRITE
WAITS = (State.SCHEDULED, State.BLOCKED, State.READY)

# mode -> (while it waits, running, done in time, done later, dead in time, dead later,
#          cancelled)
TABLE = {
    keys.WAITING: (EXISTING, NEW, NEW, NEW, NEW, NEW, NEW),
    keys.ACTIVE: (EXISTING, EXISTING, NEW, NEW, NEW, NEW, NEW),
    keys.WINDOW: (EXISTING, EXISTING, EXISTING, NEW, EXISTING, NEW, NEW),
    keys.REPLACE: (REWRITE, NEW, NEW, NEW, NEW, NEW, NEW),
}
COLUMNS = [
    *((state, in_window, 0) for state in WAITS for in_window in (True, False)),
    (State.RUNNING, True, 1),
    (State.RUNNING, False, 1),
    (State.DONE, True, 2),
    (State.DONE, False, 3),
    (State.DEAD, True, 4),
    (State.DEAD, False, 5),
    (State.CANCELLED, True, 6),
    (State.CANCELLED, False, 6),
]


@pytest.mark.proves("M33", "M34", "M93")
@pytest.mark.parametrize("mode", TABLE)
@pytest.mark.parametrize(("state", "in_window", "column"), COLUMNS)
def test_cell(mode: int, state: State, column: int, *, in_window: bool) -> None:
    wanted = TABLE[mode][column]
    assert key_answer(mode, KeyHolder(state, in_window, same_args=True)) is wanted
    other = key_answer(mode, KeyHolder(state, in_window, same_args=False))
    refused = mode == keys.WINDOW and wanted is EXISTING
    assert other is (KeyAnswer.CONFLICT if refused else wanted)


@pytest.mark.parametrize("mode", TABLE)
def test_without_a_holder_or_its_record_the_job_is_new(mode: int) -> None:
    assert key_answer(mode, None) is NEW
    assert key_answer(mode, KeyHolder(None, in_window=True, same_args=False)) is NEW


def test_policies_know_their_times() -> None:
    assert window().ttl_seconds == 86400
    assert window("1h").ttl_seconds == 3600
    assert debounce("5s").delay_seconds == 5
    assert debounce("5s").ttl_seconds == 0
    assert debounce("5s", max_wait="1m").ttl_seconds == 60
    assert debounce(5).mode == keys.replace.mode


def test_a_key_belongs_to_its_task_and_knows_its_arguments() -> None:
    one = key_claim(keys.while_active, "shop.pay", "k", b"1")
    assert one == key_claim(keys.while_active, "shop.pay", "k", b"1")
    assert one.key != key_claim(keys.while_active, "shop.ship", "k", b"1").key
    assert one.key != key_claim(keys.while_active, "shop.pay", "l", b"1").key
    assert one.digest != key_claim(keys.while_active, "shop.pay", "k", b"2").digest
