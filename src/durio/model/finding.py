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
    """Nothing to do."""
    return Finding(name, "ok", evidence)


def warning(name: str, evidence: str, fix: str) -> Finding:
    """It works now, and will cause trouble later."""
    return Finding(name, "warning", evidence, fix)


def error(name: str, evidence: str, fix: str) -> Finding:
    """It does not work, or may lose data."""
    return Finding(name, "error", evidence, fix)
