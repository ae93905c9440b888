"""What an examination finds."""

from durio.model.finding import Finding, error, fine, warning


def test_three_severities_and_a_group() -> None:
    assert fine("store.fsync", "2 ms") == Finding("store.fsync", "ok", "2 ms", "")
    assert warning("store.fsync", "50 ms", "Buy.").severity == "warning"
    found = error("store.schema", "newer", "Upgrade.")
    assert (found.severity, found.fix, found.group) == ("error", "Upgrade.", "store")
