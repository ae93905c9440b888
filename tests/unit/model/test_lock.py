"""Holders of locks: how they are named, and what another release may have written."""

from durio.model.lock import NOBODY_KNOWN, LockHolder, load_holder, new_holder_body


def test_a_holder_is_a_job_or_a_process() -> None:
    process = LockHolder(worker="host/7")
    job = LockHolder(worker="host/7", job="01a3", task="shop.bill")
    assert process.in_words() == "process host/7"
    assert job.in_words() == "job 01a3 (shop.bill) on host/7"


def test_a_record_of_another_release_has_an_unknown_holder() -> None:
    body = new_holder_body(LockHolder(worker="host/7"), b"\x01", 5.0, is_done=True)
    assert load_holder(body) == LockHolder(
        worker="host/7", id="01", since=5.0, is_done=True
    )
    assert load_holder(b"[1") is NOBODY_KNOWN
    assert NOBODY_KNOWN.in_words() == "process unknown"
