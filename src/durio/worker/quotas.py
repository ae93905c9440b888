"""How many jobs of each queue may run and wait in this worker: its slots, its prefetch.

Only a worker with slots or prefetch for single queues has quotas; others pay nothing.

A queue with slots may hold ahead its part of what the worker holds ahead. A prefetch of
its own is exact. Where queues share slots that needs care: two queues asked for the same
free slot may both give a job, and one of them would wait. Then free slots are dealt out
(`model.shares`), each to one queue, and what waits never overtakes a queue that may not.
"""

from collections import Counter, deque
from collections.abc import Mapping

from durio.model.job import Claim
from durio.model.queues import Rule, Serving


class Quotas:
    """Counts what runs and waits by lane, and says who may start and who has room."""

    def __init__(self, concurrency: int, *, is_reserved: bool, has_ahead: bool) -> None:
        self._concurrency = concurrency
        # Unless every queue has slots, and the worker has them all.
        self.deals_slots = has_ahead and not is_reserved
        self.rules: Mapping[str, Rule] = {}
        self._running: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self.free = 0  # slots, when `want` was last asked
        self._target = 0

    # --- counting

    def waits(self, claim: Claim) -> None:
        """A claim waits for a slot."""
        self._waiting[claim.lane] += 1

    def leaves(self, claim: Claim) -> None:
        """It waits no more: it starts, or goes back."""
        self._waiting[claim.lane] -= 1

    def starts(self, claim: Claim) -> None:
        """A slot is taken."""
        self._running[claim.lane] += 1

    def ends(self, claim: Claim) -> None:
        """A slot is free again."""
        self._running[claim.lane] -= 1

    def clear(self) -> None:
        """Nothing runs and nothing waits."""
        self._running.clear()
        self._waiting.clear()

    # --- who may start

    def take_next(self, buffer: deque[Claim]) -> Claim | None:
        """The first that may start: those that may not hold nobody up."""
        full: set[str] = set()
        for place, claim in enumerate(buffer):
            if claim.lane in full:
                continue
            if self._running[claim.lane] < self._slots(claim.lane):
                del buffer[place]
                self.leaves(claim)
                return claim
            full.add(claim.lane)
        return None

    def _slots(self, lane: str) -> int:
        slots = self._rule(lane).slots
        return self._concurrency if slots is None else min(slots, self._concurrency)

    def _rule(self, lane: str) -> Rule:
        return self.rules.get(lane, Rule())

    # --- how many more

    def want(self, free: int, target: int, buffered: int) -> int:
        """How many to ask for, all lanes together; the others then speak of the same."""
        self.free, self._target = free, target
        spare = max(0, target - buffered)
        return min(free + spare, sum(self.room(name) for name in self.rules))

    def room(self, lane: str) -> int:
        """How many of this lane, at most."""
        return self.room_to_start(lane) + self.room_to_wait(lane)

    def room_to_start(self, lane: str) -> int:
        """How many could start at once, if nobody else wants the slots."""
        return min(self.free, self.slots_left(lane))

    def slots_left(self, lane: str) -> int:
        """How many of its own slots nobody uses, whether the worker has any free or not."""
        held = self._running[lane] + self._waiting[lane]
        return max(0, self._slots(lane) - held)

    def room_to_wait(self, lane: str) -> int:
        """How many more may wait."""
        beyond = self._running[lane] + self._waiting[lane] - self._slots(lane)
        waiting = self._waiting[lane] if self.deals_slots else max(0, beyond)
        return max(0, self._ahead_of(lane) - waiting)

    def _ahead_of(self, lane: str) -> int:
        """How many may wait: a part like its part of the slots, within its prefetch."""
        part = -(-self._target * self._slots(lane) // self._concurrency)
        prefetch = self._rule(lane).prefetch
        return part if prefetch is None else min(part, prefetch)


def quotas_for(serving: Serving, concurrency: int) -> Quotas | None:
    """Those of this worker; None: no queue has any."""
    if not serving.has_quotas:
        return None
    return Quotas(
        concurrency,
        is_reserved=serving.is_reserved(concurrency),
        has_ahead=serving.has_prefetch,
    )
