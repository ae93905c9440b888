"""Bugs about groups of errors: what makes a group, and how it is counted."""

from tests.mutants.planting import Tests, one_patch

MODEL = Tests("tests/unit/model/test_error_groups.py")
COUNTS = Tests("tests/unit/worker/test_error_counts.py")

PLANTED = (
    one_patch(
        "counts_of_another_worker_are_lost",
        "A worker writes its counts over those that another one has just written.",
        "model/error_groups.py",
        "        if_version=version,\n",
        "        if_version=None,\n",
        COUNTS,
    ),
    one_patch(
        "counts_after_a_conflict_are_forgotten",
        "Counts that could not be written at once are never written.",
        "worker/error_counts.py",
        "conflict is not None:\n            self._has_new.set()\n            return False",
        "conflict is not None:\n            self._unwritten.clear()\n            return False",
        COUNTS,
    ),
    one_patch(
        "interrupted_write_is_repeated",
        "A worker that ends while it writes its counts writes them twice.",
        "worker/error_counts.py",
        "if self._writing is None or self._writing.done():",
        "if True:",
        COUNTS,
    ),
    one_patch(
        "frames_of_an_earlier_exception_count",
        "The exception that was being handled is part of the fingerprint.",
        "model/error_groups.py",
        "traceback.rfind(TRACEBACK_START)",
        "traceback.find(TRACEBACK_START)",
        MODEL,
    ),
)
