"""Which lanes to ask, and how many jobs from each.

- Queues of one weight take turns to be asked first, for all that is wanted: to split
  each call costs a third of the jobs per second, and turns even out.
- Different weights split what is wanted (`model.shares`); what a lane cannot give, the
  others may, in the same call.
- `strict` asks in the written order: the first lane may leave nothing to the others.

Slots and prefetch of a queue lower what its lane is asked for (`worker.quotas`). A ring,
and a look at all lanes every second, end what is believed about empty ones.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from durio.model.job import Claim
from durio.model.names import lane, queue_of
from durio.model.queues import Rule, Serving
from durio.model.shares import Lot, Shares
from durio.ports.exchange import Exchanged, Lane
from durio.worker.quotas import Quotas

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
        self._rules: dict[str, Rule] = {}
        self._heard: set[str] = set()  # lanes that rang since we last asked
        self._named = {lane(namespace, name) for name in serving.names}
        self._shares = Shares(chance, is_strict=serving.is_strict)
        self._deals_slots = quotas is not None and quotas.deals_slots
        self._is_weighted = False
        self._is_strict = serving.is_strict
        self._window = 0 if self._is_strict else int(chance() * LANES_MAX)
        self.is_open = serving.is_open
        self.names: list[str] = []
        self._know(self._named)

    # --- which

    def serves(self, name: str) -> bool:
        """Whether this lane is one of ours, known or not."""
        if not name.startswith(self._prefix):
            return False
        return self._serving.serves(name.removeprefix(self._prefix))

    def hear(self, names: Iterable[str]) -> None:
        """Lanes that rang."""
        self._shares.refresh([*names])
        if not self.is_open:
            return
        served = {name for name in names if self.serves(name)}
        self._heard |= served
        if not served <= set(self.names):
            self._know({*self.names, *served})

    def begin_learning(self) -> None:
        """What rings from now on may be missing from an answer."""
        self._heard = set()
        self._shares.refresh()

    def learn(self, names: Iterable[str]) -> None:
        """The lanes with jobs that wait; queues used no more cost nothing."""
        served = {name for name in names if self.serves(name)}
        self._know(self._named | served | self._heard)

    def _know(self, names: set[str]) -> None:
        if names == set(self.names):
            return
        self.names = sorted(names, key=self._place_of if self._is_strict else None)
        self._rules = {n: self._serving.rule_of(queue_of(n)) for n in self.names}
        weights = {rule.weight for rule in self._rules.values()}
        self._is_weighted = len(weights) > 1 and not self._is_strict
        self._shares.forget_all_but(names)
        if self._quotas is not None:
            self._quotas.rules = self._rules

    def _place_of(self, name: str) -> tuple[int, int, str]:
        return self._serving.place_of(queue_of(name))

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
        return [Lane(*asked) for asked in self._shares.asked(lots, want)]

    def _deal(self, names: Sequence[str], want: int, quotas: Quotas) -> list[Lane]:
        lots: list[Lot] = []
        for name in names:
            ahead = quotas.room_to_wait(name)
            lots.append(self._lot(name, quotas.slots_left(name) + ahead, ahead))
        dealt = self._shares.dealt(lots, quotas.free, want)
        return [Lane(*asked) for asked in dealt]

    def _lot(self, name: str, room: int, ahead: int = 0) -> Lot:
        rule = self._rules[name]
        return Lot(name, rule.weight, room, rule.slots is not None, ahead)

    def _next_names(self) -> Sequence[str]:
        names = self.names
        if self._is_strict:
            return names[self._window : self._window + LANES_MAX]
        if len(names) > 1:
            self._window = (self._window + 1) % len(names)
            names = names[self._window :] + names[: self._window]
        return names[:LANES_MAX]

    def settle(self, answer: Exchanged, want: int) -> bool:
        """Learn from an answer; whether to ask again at once."""
        more, got = answer.more, len(answer.claims)
        if (self._is_weighted or self._deals_slots) and want:
            more = self._shares.settle(Counter(claim.lane for claim in answer.claims))
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
        places = self._shares.mixed([claim.lane for claim in claims])
        return [claims[place] for place in places]

    def sort(self, claims: Sequence[Claim]) -> list[Claim]:
        """In the order of `strict`."""
        places = {name: place for place, name in enumerate(self.names)}
        return sorted(claims, key=lambda claim: places.get(claim.lane, len(places)))
