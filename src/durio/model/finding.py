"""What an examination finds: a name, how bad it is, what was seen, and what to do."""

from typing import Literal, NamedTuple

Severity = Literal["ok", "warning", "error"]


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str  # group.check
    severity: Severity
    evidence: str
    fix: str = ""

    @property
    def group(self) -> str:
        """What kind of thing it is about."""
        return self.name.partition(".")[0]


def fine(name: str, evidence: str) -> Finding:
    """Looked at, and nothing to do."""
    return Finding(name, "ok", evidence)


def warning(name: str, evidence: str, fix: str) -> Finding:
    """It works, and will hurt one day."""
    return Finding(name, "warning", evidence, fix)


def error(name: str, evidence: str, fix: str) -> Finding:
    """It does not work, or may lose something."""
    return Finding(name, "error", evidence, fix)
