"""Figures that several reports give in the same way."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class JobTotals:
    """The fate of everything that was asked for; each judge says what counts as ok."""

    attempted: int = 0
    acknowledged: int = 0
    ok: int = 0
    lost: int = 0
    unexpected: int = 0
    duplicated: int = 0
    recovered: int = 0


def percentile(values: Sequence[float], part: float) -> float | None:
    """The value that this part (0 to 1) of all values does not exceed; None if empty."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
