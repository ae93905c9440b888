"""A finding of the doctor: a name, a severity, the evidence and a fix."""

from typing import Literal, NamedTuple

Severity = Literal["ok", "warning", "error"]


class Finding(NamedTuple):
    """The result of one check."""

    name: str  # group.check
    severity: Severity
    evidence: str
    fix: str = ""

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]


def fine(name: str, evidence: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(name, "ok", evidence)


def warning(name: str, evidence: str, fix: str) -> Finding:
    """Return a finding about something that works now but will cause trouble later."""
    return Finding(name, "warning", evidence, fix)


def error(name: str, evidence: str, fix: str) -> Finding:
    """Return a finding about something that does not work or may lose data."""
    return Finding(name, "error", evidence, fix)
