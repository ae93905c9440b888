"""Waiting for a job inside a task is refused in a child process too."""

import pytest

from durio.model.job import DEAD
from tests.e2e.child_place import ChildPlace
from tests.e2e.workers import START_SECONDS


@pytest.mark.proves("M120")
def test_a_child_may_not_wait_for_a_job(child_place: ChildPlace) -> None:
    child_place.worker("-q", "default", children=1, grace_seconds=0)
    (job,) = child_place.enqueue("wait_for_more", ())
    row = child_place.wait_final([job], START_SECONDS)[job]
    assert row.state == DEAD
    (error,) = row.errors
    assert error["type"] == "UsageError"
    assert "e2e.wait_for_more waits for job" in error["message"]
