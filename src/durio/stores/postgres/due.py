"""How far back to look for due jobs while somebody keeps old row versions alive.

The first due job of a lane is at the head of its index, behind the places of all that were
due before, for as long as a transaction somewhere could still see them. When such looks have
become slow, they begin where nothing was left at the last one.

What comes to be due below that (a caller's transaction that took long, a clock that was set)
is found by the looks at everything, which take a twentieth of the time at most and are
never more than half a minute apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from durio.ports.clock import Clock

SLOW_SECONDS = 0.002
LEADER_SLOW_SECONDS = 0.05  # two statements, and the way to the server
SLOW_LOOKS = 3  # in a row: one may be anybody's fault
REST_FACTOR = 20.0
REST_SECONDS_MIN, REST_SECONDS_MAX = 1.0, 30.0
MARGIN_SECONDS = 1.0  # what is written now may be seen so much later


@dataclass(slots=True)
class DueLooks:
    """The looks of one process, by lane."""

    clock: Clock
    slow_seconds: float = SLOW_SECONDS
    slow_looks: int = 0
    whole_at: float = 0.0  # when the next look at everything is due
    swept_at: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def is_engaged(self) -> bool:
        """Whether looks begin later than at the head."""
        return self.slow_looks >= SLOW_LOOKS

    def ages(self, lanes: Sequence[str]) -> list[float]:
        """For each lane, how long ago the oldest may have been due that is looked for."""
        now = self.clock.monotonic()
        if not self.is_engaged or now >= self.whole_at:
            return [inf] * len(lanes)
        return [now - self.swept_at.get(lane, -inf) + MARGIN_SECONDS for lane in lanes]

    def judge(self, ages: Sequence[float], seconds: float) -> None:
        """A look took so long; one at everything says whether they are slow."""
        if not ages or any(age < inf for age in ages):
            return
        self.slow_looks = self.slow_looks + 1 if seconds > self.slow_seconds else 0
        rest = min(max(REST_FACTOR * seconds, REST_SECONDS_MIN), REST_SECONDS_MAX)
        self.whole_at = self.clock.monotonic() + rest

    def swept(self, lanes: Iterable[str], began: float) -> None:
        """Nothing was due there any more at that time."""
        if self.is_engaged:
            self.swept_at.update(dict.fromkeys(lanes, began))
        elif self.swept_at:
            self.swept_at.clear()
