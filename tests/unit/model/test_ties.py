"""What ties a job to logs, as it is stored."""

import msgspec
import pytest

from durio.model.failure import (
    CANCELLED as WAS_CANCELLED,
)
from durio.model.failure import (
    Failure,
    ShortFailure,
    encode_failure,
    encode_short,
    short_failure,
)
from durio.model.gate import FINAL, GateSpec
from durio.model.job import CANCELLED, DEAD, DONE, NewJob
from durio.model.logs import ANY_END, DONE_END, FAILED_END, OnEnd, Wait
from durio.model.ties import (
    ENTRY_BODY_MAX,
    Ties,
    dump_ties,
    encode_ties,
    entries_at_end,
    entry_body,
    entry_uid,
    load_ties,
)

JOB = NewJob(b"1" * 16, "shop:default", 4, "shop.pay", b"[]")
DONE_LOG, FAILED_LOG, ANY_LOG = (
    OnEnd("d", DONE_END),
    OnEnd("f", FAILED_END),
    OnEnd("a", ANY_END),
)


def test_ties_are_stored_as_json() -> None:
    assert encode_ties(JOB) is None
    tied = JOB._replace(wait=Wait("j:1", 2), on_end=(OnEnd("j:2", 7, 3, once=True),))
    text = encode_ties(tied)
    assert text == '[["j:1",2],[["j:2",7,3,true]]]'
    assert load_ties(text) == Ties(tied.wait, tied.on_end)
    assert dump_ties(load_ties(text)) == text
    assert encode_ties(JOB._replace(on_end=(OnEnd("j"),))) == '[null,[["j",1,0,false]]]'


def test_gates_are_stored_with_the_ties() -> None:
    gates = (GateSpec("1k:a", cap=2), GateSpec("5r:b", None, 1.5, 3.0, FINAL, 2.0))
    text = encode_ties(JOB._replace(gates=gates))
    assert text == (
        '[null,[],null,[["1k:a",2,null,null,0,1.0],["5r:b",null,1.5,3.0,2,2.0]]]'
    )
    assert load_ties(text).gates == gates
    assert dump_ties(load_ties(text)) == text


@pytest.mark.parametrize(
    ("state", "due", "kept"),
    [
        # A done job is not retried, and its ties are not read again.
        (DONE, [DONE_LOG, ANY_LOG], (DONE_LOG, FAILED_LOG, ANY_LOG)),
        (DEAD, [FAILED_LOG, ANY_LOG], (DONE_LOG, FAILED_LOG)),
        (CANCELLED, [FAILED_LOG, ANY_LOG], (DONE_LOG, FAILED_LOG)),
    ],
)
def test_an_end_appends_what_is_for_it(
    state: int, due: list[OnEnd], kept: tuple[OnEnd, ...]
) -> None:
    """What is for failures alone stays: a retried job may fail again."""
    ties = Ties(Wait("w", 0), (DONE_LOG, FAILED_LOG, ANY_LOG))
    assert entries_at_end(ties, state) == (due, Ties(Wait("w", 0), kept))


def test_a_quiet_cancel_keeps_everything() -> None:
    ties = Ties(None, (DONE_LOG, FAILED_LOG, ANY_LOG), "plan_cancelled")
    assert load_ties(dump_ties(ties)) == ties
    assert entries_at_end(ties, CANCELLED) == ([], ties._replace(quiet=None))
    assert entries_at_end(ties, DONE)[0] == [DONE_LOG, ANY_LOG]


def test_an_entry_that_is_wanted_once_has_an_id() -> None:
    assert entry_uid(OnEnd("j", tag=5)) is None
    assert entry_uid(OnEnd("j", tag=5, once=True)) == "m5"


def test_the_body_of_an_entry_is_short() -> None:
    long = b"1" * (ENTRY_BODY_MAX + 1)
    assert entry_body(DONE, b"42", None) == b"42"
    assert entry_body(DONE, None, None) is None
    assert entry_body(DONE, long, None) is None
    assert entry_body(CANCELLED, None, None) is None
    failure = Failure(type="ValueError", message="\x01" * 4000, traceback="x" * 16_000)
    body = entry_body(DEAD, None, encode_failure(failure))
    assert body is not None
    assert len(body) <= ENTRY_BODY_MAX
    assert short_failure(body).type == "ValueError"


def test_a_stored_error_is_read_whatever_it_is() -> None:
    stored = encode_failure(Failure(type="E", message="no"))
    assert short_failure(stored) == ShortFailure("E", "no")
    assert short_failure(None) == short_failure(b"null") == WAS_CANCELLED
    assert short_failure(b"{").type == "Damaged"
    assert msgspec.json.decode(encode_short(stored)) == {"type": "E", "message": "no"}
