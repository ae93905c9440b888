"""How many jobs of each queue may run and wait in this worker: its slots, its prefetch.

Only a worker with slots or prefetch for single queues has quotas; others pay nothing.

A queue with slots may hold ahead its part of what the worker holds ahead. A prefetch of
its own is exact. Where queues share slots that needs care: two queues asked for the same
free slot may both give a job, and one of them would wait. Then free slots are dealt out
(`model.shares`), each to one queue, and what waits never overtakes a queue that may not.

Claimed but unstarted: what waits here for a slot, and who is next.

Which lanes to ask, and how many jobs from each.

- Queues of one weight take turns to be asked first, for all that is wanted: to split
  each call costs a third of the jobs per second, and turns even out.
- Different weights split what is wanted (`model.shares`); what a lane cannot give, the
  others may, in the same call.
- `strict` asks in the written order: the first lane may leave nothing to the others.

Slots and prefetch of a queue lower what its lane is asked for (`worker.quotas`). A ring,
and a look at all lanes every second, end what is believed about empty ones.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from durio.model.job import Claim
from durio.model.names import lane, queue_of
from durio.model.queues import QueueRule, Serving
from durio.model.round_robin import QueueCandidate, WeightedRoundRobin
from durio.ports.exchange import Exchanged, Lane


class Quotas:
    """Counts what runs and waits by lane, and says who may start and who has room."""

    def __init__(self, concurrency: int, *, is_reserved: bool, has_ahead: bool) -> None:
        self._concurrency = concurrency
        # Unless every queue has slots, and the worker has them all.
        self.deals_slots = has_ahead and not is_reserved
        self.rules: Mapping[str, QueueRule] = {}
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

    def _rule(self, lane: str) -> QueueRule:
        return self.rules.get(lane, QueueRule())

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


Sort = Callable[[Sequence[Claim]], list[Claim]]


class ClaimBuffer(deque[Claim]):
    """First come, first served; unless queues have slots of their own, or an order.

    A deque itself, for every job passes through it: the next is `popleft`, or whom the
    quotas choose.
    """

    def __init__(self, quotas: Quotas | None = None, sort: Sort | None = None) -> None:
        super().__init__()
        self._quotas = quotas
        self._sort = sort

    def add(self, claims: Sequence[Claim]) -> None:
        """They wait, behind those that came before."""
        self.extend(claims)
        if self._sort is not None:
            self._hold(self._sort(self))
        if self._quotas is not None:
            for claim in claims:
                self._quotas.waits(claim)

    def take_all(self, lanes: Collection[str] | None = None) -> list[Claim]:
        """Everything, or everything of these lanes: none of it will start."""
        taken = [c for c in self if lanes is None or c.lane in lanes]
        if taken:
            ids = {claim.id for claim in taken}
            self._hold([c for c in self if c.id not in ids])
        if self._quotas is not None:
            for claim in taken:
                self._quotas.leaves(claim)
        return taken

    def _hold(self, claims: list[Claim]) -> None:
        self.clear()
        self.extend(claims)


LANES_MAX = 64  # per exchange; more take turns


class Lanes:
    """The lanes that a worker serves, as far as it knows them now."""

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
        self._woken: set[str] = set()  # lanes that rang since we last asked
        self._named = {lane(namespace, name) for name in serving.names}
        self._shares = WeightedRoundRobin(chance, is_strict=serving.is_strict)
        self._deals_slots = quotas is not None and quotas.deals_slots
        self._is_weighted = False
        self._is_strict = serving.is_strict
        self._window = 0 if self._is_strict else int(chance() * LANES_MAX)
        self.is_open = serving.is_open
        self.names: list[str] = []
        self._set_names(self._named)

    # --- which

    def serves(self, name: str) -> bool:
        """Whether this lane is one of ours, known or not."""
        if not name.startswith(self._prefix):
            return False
        return self._serving.serves(name.removeprefix(self._prefix))

    def wake(self, names: Iterable[str]) -> None:
        """Lanes that rang."""
        self._shares.mark_filled([*names])
        if not self.is_open:
            return
        served = {name for name in names if self.serves(name)}
        self._woken |= served
        if not served <= set(self.names):
            self._set_names({*self.names, *served})

    def begin_learning(self) -> None:
        """What rings from now on may be missing from an answer."""
        self._woken = set()
        self._shares.mark_filled()

    def learn(self, names: Iterable[str]) -> None:
        """The lanes with jobs that wait; queues used no more cost nothing."""
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

    # --- how many

    def ask(self, want: int) -> list[Lane]:
        """Whom to ask for so many jobs."""
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
        lots = [self._lot(name, room[name]) for name in names]
        return [Lane(*asked) for asked in self._shares.split(lots, want)]

    def _deal(self, names: Sequence[str], want: int, quotas: Quotas) -> list[Lane]:
        lots: list[QueueCandidate] = []
        for name in names:
            ahead = quotas.room_to_wait(name)
            lots.append(self._lot(name, quotas.slots_left(name) + ahead, ahead))
        dealt = self._shares.split_with_prefetch(lots, quotas.free, want)
        return [Lane(*asked) for asked in dealt]

    def _lot(self, name: str, room: int, ahead: int = 0) -> QueueCandidate:
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
        """Learn from an answer; whether to ask again at once."""
        more, got = answer.more, len(answer.claims)
        if (self._is_weighted or self._deals_slots) and want:
            more = self._shares.charge(Counter(claim.lane for claim in answer.claims))
        if self._is_strict and len(self.names) > LANES_MAX:
            # Nothing more in the first lanes: look at the next, then begin again.
            self._window += LANES_MAX if got < want else -self._window
            self._window *= self._window < len(self.names)
            more = more or self._window > 0
        return more

    def mixed(self, claims: list[Claim]) -> list[Claim]:
        """Claims come lane by lane; they start as evenly mixed as the weights say."""
        if self._is_strict or not (self._is_weighted or self._deals_slots):
            return claims
        places = self._shares.interleaved([claim.lane for claim in claims])
        return [claims[place] for place in places]

    def sort(self, claims: Sequence[Claim]) -> list[Claim]:
        """In the order of `strict`."""
        places = {name: place for place, name in enumerate(self.names)}
        return sorted(claims, key=lambda claim: places.get(claim.lane, len(places)))
