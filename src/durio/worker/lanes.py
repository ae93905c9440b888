"""Choose the lanes to claim from, the jobs from each, and the claims that may start.

`Lanes` chooses lanes and numbers of jobs:

- Lanes of equal weight take turns to be first, and the first may give all jobs that are
  wanted. Splitting each call would reduce throughput by a third, and the turns even out.
- Different weights split the number (`model.round_robin`); what one lane cannot give, the
  others may give in the same call.
- `strict` uses the given order: the first lane may give everything.

A wakeup, and a check of all lanes every second, reset what is assumed about empty lanes.

`Quotas` holds slots and prefetch of single queues, and reduces the numbers of their lanes.
Only a worker with such queues has quotas; for others they cost nothing. A queue with slots
may prefetch its share of the worker's prefetch; a prefetch of its own is an exact bound.
If queues share slots, two queues could both give a job for the same free slot, and one job
would wait beyond its queue's prefetch. So each free slot is assigned to one queue, and jobs
that wait never take the turn of a queue whose jobs may not wait
(`WeightedRoundRobin.split_with_prefetch`).

`ClaimBuffer` holds claims that wait for a slot.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from durio.model.job import Claim
from durio.model.names import lane, queue_of
from durio.model.queues import QueueRule, Serving
from durio.model.round_robin import QueueCandidate, WeightedRoundRobin
from durio.ports.exchange import Exchanged, Lane


class Quotas:
    """Counts running and waiting claims by lane; decides which may start."""

    def __init__(self, concurrency: int, *, is_reserved: bool, has_ahead: bool) -> None:
        self._concurrency = concurrency
        # Not needed if every queue has slots and the worker has enough for all of them.
        self.deals_slots = has_ahead and not is_reserved
        self.rules: Mapping[str, QueueRule] = {}
        self._running: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self.free = 0  # free slots at the last call of `want`
        self._target = 0

    # --- counting

    def waits(self, claim: Claim) -> None:
        self._waiting[claim.lane] += 1

    def leaves(self, claim: Claim) -> None:
        self._waiting[claim.lane] -= 1

    def starts(self, claim: Claim) -> None:
        self._running[claim.lane] += 1

    def ends(self, claim: Claim) -> None:
        self._running[claim.lane] -= 1

    def clear(self) -> None:
        self._running.clear()
        self._waiting.clear()

    # --- which claims may start

    def take_next(self, buffer: deque[Claim]) -> Claim | None:
        """Take out the first claim that may start; claims of full lanes are skipped."""
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

    def _rule(self, lane: str) -> QueueRule:
        return self.rules.get(lane, QueueRule())

    # --- how many more to claim

    def want(self, free: int, target: int, buffered: int) -> int:
        """Return how many claims to request in all lanes.

        The methods below use these numbers.
        """
        self.free, self._target = free, target
        spare = max(0, target - buffered)
        return min(free + spare, sum(self.room(name) for name in self.rules))

    def room(self, lane: str) -> int:
        """Return how many more claims this lane may have here."""
        return self.room_to_start(lane) + self.room_to_wait(lane)

    def room_to_start(self, lane: str) -> int:
        """Return how many claims could start now, if no other lane takes the slots."""
        return min(self.free, self.slots_left(lane))

    def slots_left(self, lane: str) -> int:
        """Return how many of the lane's own slots are unused, even if none is free."""
        held = self._running[lane] + self._waiting[lane]
        return max(0, self._slots(lane) - held)

    def room_to_wait(self, lane: str) -> int:
        beyond = self._running[lane] + self._waiting[lane] - self._slots(lane)
        waiting = self._waiting[lane] if self.deals_slots else max(0, beyond)
        return max(0, self._ahead_of(lane) - waiting)

    def _ahead_of(self, lane: str) -> int:
        """Return how many claims may wait: the lane's share by slots, at most its prefetch."""
        part = -(-self._target * self._slots(lane) // self._concurrency)
        prefetch = self._rule(lane).prefetch
        return part if prefetch is None else min(part, prefetch)


def quotas_for(serving: Serving, concurrency: int) -> Quotas | None:
    """Return the quotas; None if no queue has slots or a prefetch of its own."""
    if not serving.has_quotas:
        return None
    return Quotas(
        concurrency,
        is_reserved=serving.is_reserved(concurrency),
        has_ahead=serving.has_prefetch,
    )


Sort = Callable[[Sequence[Claim]], list[Claim]]


class ClaimBuffer(deque[Claim]):
    """Claims that wait for a slot, in order of arrival, or as `sort` orders them.

    It is a deque because every job passes through it. The next claim is `popleft`, or the
    one that the quotas choose.
    """

    def __init__(self, quotas: Quotas | None = None, sort: Sort | None = None) -> None:
        super().__init__()
        self._quotas = quotas
        self._sort = sort

    def add(self, claims: Sequence[Claim]) -> None:
        self.extend(claims)
        if self._sort is not None:
            self._hold(self._sort(self))
        if self._quotas is not None:
            for claim in claims:
                self._quotas.waits(claim)

    def take_all(self, lanes: Collection[str] | None = None) -> list[Claim]:
        """Take out all claims, or all of these lanes, because they will not start."""
        return self.take_out({c.id for c in self if lanes is None or c.lane in lanes})

    def take_out(self, ids: Collection[bytes]) -> list[Claim]:
        """Take out these claims, because they start without a slot of their own."""
        taken = [claim for claim in self if claim.id in ids]
        if taken:
            self._hold([claim for claim in self if claim.id not in ids])
        if self._quotas is not None:
            for claim in taken:
                self._quotas.leaves(claim)
        return taken

    def _hold(self, claims: list[Claim]) -> None:
        self.clear()
        self.extend(claims)


LANES_MAX = 64  # per exchange; if there are more, lanes take turns


class Lanes:
    """The lanes that a worker serves and knows of."""

    def __init__(
        self,
        namespace: str,
        serving: Serving,
        quotas: Quotas | None,
        chance: Callable[[], float],
    ) -> None:
        self._prefix = lane(namespace, "")
        self._serving = serving
        self._quotas = quotas
        self._rules: dict[str, QueueRule] = {}
        self._woken: set[str] = set()  # lanes with a wakeup since `begin_learning`
        self._named = {lane(namespace, name) for name in serving.names}
        self._shares = WeightedRoundRobin(chance, is_strict=serving.is_strict)
        self._deals_slots = quotas is not None and quotas.deals_slots
        self._is_weighted = False
        self._is_strict = serving.is_strict
        self._window = 0 if self._is_strict else int(chance() * LANES_MAX)
        self.is_open = serving.is_open
        self.names: list[str] = []
        self._set_names(self._named)

    # --- which lanes

    def serves(self, name: str) -> bool:
        """Whether the worker serves this lane, known or not."""
        if not name.startswith(self._prefix):
            return False
        return self._serving.serves(name.removeprefix(self._prefix))

    def wake(self, names: Iterable[str]) -> None:
        """Note that these lanes have jobs again, as a wakeup says."""
        self._shares.mark_filled([*names])
        if not self.is_open:
            return
        served = {name for name in names if self.serves(name)}
        self._woken |= served
        if not served <= set(self.names):
            self._set_names({*self.names, *served})

    def begin_learning(self) -> None:
        """Call before reading the store, whose reply may lack lanes woken from now on."""
        self._woken = set()
        self._shares.mark_filled()

    def learn(self, names: Iterable[str]) -> None:
        """Take the lanes with waiting jobs from the store; forget the unused ones."""
        served = {name for name in names if self.serves(name)}
        self._set_names(self._named | served | self._woken)

    def _set_names(self, names: set[str]) -> None:
        if names == set(self.names):
            return
        self.names = sorted(names, key=self._place_of if self._is_strict else None)
        self._rules = {n: self._serving.rule_of(queue_of(n)) for n in self.names}
        weights = {rule.weight for rule in self._rules.values()}
        self._is_weighted = len(weights) > 1 and not self._is_strict
        self._shares.retain(names)
        if self._quotas is not None:
            self._quotas.rules = self._rules

    def _place_of(self, name: str) -> tuple[int, int, str]:
        return self._serving.position_of(queue_of(name))

    # --- how many jobs

    def ask(self, want: int) -> list[Lane]:
        """Return the lanes to claim from, with a number each, for `want` jobs in total."""
        if not want:
            return []
        names = self._next_names()
        quotas = self._quotas
        if quotas is None and not self._is_weighted:
            return [Lane(name, want) for name in names]
        if quotas is not None and self._deals_slots:
            return self._deal(names, want, quotas)
        room = dict.fromkeys(names, want)
        if quotas is not None:
            room = {name: quotas.room(name) for name in names}
        if not self._is_weighted:
            return [Lane(name, room[name]) for name in names if room[name]]
        candidates = [self._candidate(name, room[name]) for name in names]
        return [Lane(*asked) for asked in self._shares.split(candidates, want)]

    def _deal(self, names: Sequence[str], want: int, quotas: Quotas) -> list[Lane]:
        candidates: list[QueueCandidate] = []
        for name in names:
            ahead = quotas.room_to_wait(name)
            candidates.append(
                self._candidate(name, quotas.slots_left(name) + ahead, ahead)
            )
        dealt = self._shares.split_with_prefetch(candidates, quotas.free, want)
        return [Lane(*asked) for asked in dealt]

    def _candidate(self, name: str, room: int, ahead: int = 0) -> QueueCandidate:
        rule = self._rules[name]
        return QueueCandidate(name, rule.weight, room, rule.slots is not None, ahead)

    def _next_names(self) -> Sequence[str]:
        names = self.names
        if self._is_strict:
            return names[self._window : self._window + LANES_MAX]
        if len(names) > 1:
            self._window = (self._window + 1) % len(names)
            names = names[self._window :] + names[: self._window]
        return names[:LANES_MAX]

    def apply_answer(self, answer: Exchanged, want: int) -> bool:
        """Learn from a reply; return whether to exchange again immediately."""
        more, got = answer.more, len(answer.claims)
        if (self._is_weighted or self._deals_slots) and want:
            more = self._shares.charge(Counter(claim.lane for claim in answer.claims))
        if self._is_strict and len(self.names) > LANES_MAX:
            # These lanes did not have enough: try the next 64, then begin again.
            self._window += LANES_MAX if got < want else -self._window
            self._window *= self._window < len(self.names)
            more = more or self._window > 0
        elif got < want and len(self.names) > LANES_MAX:
            self._window += LANES_MAX - 1  # these lanes are empty now: `ask` adds one
        return more

    def mixed(self, claims: list[Claim]) -> list[Claim]:
        """Reorder claims, which come lane by lane, so that lanes alternate by weight."""
        if self._is_strict or not (self._is_weighted or self._deals_slots):
            return claims
        places = self._shares.interleaved([claim.lane for claim in claims])
        return [claims[place] for place in places]

    def sort(self, claims: Sequence[Claim]) -> list[Claim]:
        """Sort claims in the order of the lanes, for `strict`."""
        places = {name: place for place, name in enumerate(self.names)}
        return sorted(claims, key=lambda claim: places.get(claim.lane, len(places)))
