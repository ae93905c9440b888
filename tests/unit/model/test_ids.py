"""Ids sort by time, then by counter, and have one text."""

import uuid

import pytest

from durio.model.errors import JobNotFound
from durio.model.ids import id_bytes, id_text, uuid7


def test_an_id_is_a_uuid_of_version_seven() -> None:
    made = uuid.UUID(bytes=uuid7(1_700_000_000_000, 0xABC, 2**64 - 1))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == 1_700_000_000_000


def test_ids_grow_with_time_then_with_the_counter() -> None:
    ids = [uuid7(ms, n, 7) for ms in (1, 2, 2**40) for n in (0, 1, 4095)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_text_and_bytes_are_the_same_id() -> None:
    raw = uuid7(1, 2, 3)
    assert id_text(raw) == str(uuid.UUID(bytes=raw))
    assert id_bytes(id_text(raw)) == raw
    assert id_bytes(id_text(raw).upper()) == raw
    assert id_bytes(raw.hex()) == raw


@pytest.mark.proves("M170")
@pytest.mark.parametrize("text", ["", "x", "0" * 31, "0" * 33, "g" * 32, "٣" * 32])
def test_text_that_is_no_id_names_no_job(text: str) -> None:
    with pytest.raises(JobNotFound, match="not a job id"):
        id_bytes(text)
