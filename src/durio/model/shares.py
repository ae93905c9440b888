"""Whose turn it is between queues of different weight: smooth weighted round robin.

Every queue has a finishing time, on a clock that counts shares: a pick moves it on by
1 / weight, and the queue that would finish first is next. So picks of 6, 3 and 1 come
out evenly mixed, not in blocks. What counts is what a queue gave, not what it was asked
for: one that took over another's share pays for it later.

A queue that gave less than asked is dry: its share goes to the others, and when jobs come
back it starts at the present. Nothing is saved up for idle hours.

In strict order there are no shares: the first queue may take all, then the next.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple


class Lot(NamedTuple):
    """A queue that may be asked: its weight, and the most that it may give."""

    name: str
    weight: int
    room: int
    is_capped: bool = False  # by slots of its own, not by what the others leave


class Shares:
    """Splits what is wanted, and learns from what came."""

    def __init__(self, chance: Callable[[], float], *, is_strict: bool = False) -> None:
        self._chance = chance
        self._is_strict = is_strict
        self._due: dict[str, float] = {}
        self._dry: set[str] = set()
        self._now = 0.0
        self._last: tuple[Sequence[Lot], Sequence[tuple[str, int]], int] = ((), (), 0)
        self._ahead: Mapping[str, int] = {}  # how it was when last dealt
        self._had_slots = True

    def forget_all_but(self, names: Collection[str]) -> None:
        """Queues that are served no more cost nothing."""
        for name in self._due.keys() - set(names):
            del self._due[name]
            self._dry.discard(name)

    def refresh(self, names: Collection[str] | None = None) -> None:
        """These, or all of them, may have jobs again."""
        self._dry -= self._dry if names is None else set(names)

    def asked(self, lots: Sequence[Lot], want: int) -> list[tuple[str, int]]:
        """Whom to ask for how many, in order; a queue may come twice.

        First one job of each dry queue, then the shares, then, for what these could not
        give, everybody again for as much as there is room.
        """
        lots = sorted((lot for lot in lots if lot.room > 0), key=self._finish)
        full = [lot for lot in lots if lot.name not in self._dry]
        shares, _ = self._split(full, want, want, {})
        probes = [(lot.name, 1) for lot in lots if lot.name in self._dry]
        first = probes + [(name, share) for name, share in shares.items() if share]
        given = dict(first)
        rest = [(lot.name, lot.room - given.get(lot.name, 0)) for lot in lots]
        asked = first + [(name, room) for name, room in rest if room > 0]
        self._last = lots, asked, want
        return asked

    def dealt(
        self, lots: Sequence[Lot], slots: int, ahead: Mapping[str, int], want: int
    ) -> list[tuple[str, int]]:
        """Whom to ask where queues compete for slots: no slot is promised twice.

        A share is made of what a queue may hold `ahead`, then of slots. Dry queues get
        slots that nobody else can use, and are asked for one job to hold ahead.
        """
        self._had_slots, self._ahead = slots > 0, ahead
        lots = sorted((lot for lot in lots if lot.room > 0), key=self._finish)
        full = [lot for lot in lots if lot.name not in self._dry]
        shares, slots = self._split(full, want, slots, ahead)
        dry = [lot for lot in lots if lot.name in self._dry]
        shares |= self._split(dry, slots, slots, {})[0]
        for lot in dry:
            shares[lot.name] = max(shares[lot.name], min(1, ahead[lot.name]))
        limits = [(lot.name, shares[lot.name]) for lot in (*dry, *full)]
        asked = [(name, limit) for name, limit in limits if limit > 0]
        self._last = lots, asked, want
        return asked

    def owed(self) -> int:
        """How many queues that may hold nothing ahead come first, as of the last answer.

        Others that hold jobs ahead would take every slot before they are asked again.
        """
        count = 0
        for lot in sorted(self._last[0], key=self._finish):
            if lot.name in self._dry:
                continue
            if self._ahead.get(lot.name, 0):
                break
            count += 1
        return count

    def settle(self, got: Mapping[str, int]) -> bool:
        """Charge what came of what was last asked; whether there may be more."""
        lots, asked, want = self._last
        dry = _answers(asked, want, got)
        self._dry -= dry.keys()
        self._dry |= {name for name in dry if dry[name]}
        free: list[float] = []  # finishing times of those that could give more
        held: list[float] = []  # and of those that gave all that they may
        for lot in lots:
            count = got.get(lot.name, 0)
            due = self._due[lot.name] = self._start(lot) + count / lot.weight
            if lot.name not in self._dry:
                (held if lot.is_capped and count >= lot.room else free).append(due)
        # The present: where the hindmost of those that have jobs stands.
        self._now = max(self._now, min(free or held, default=self._now))
        for name in self._due:
            self._due[name] = max(self._due[name], self._now)
        could = {name for name, _ in asked}
        return any(
            lot.name not in self._dry and (self._had_slots or lot.name in could)
            for lot in lots
        )

    def _split(
        self, lots: Sequence[Lot], want: int, slots: int, ahead: Mapping[str, int]
    ) -> tuple[dict[str, int], int]:
        """Shares of what is wanted, and the slots that are left."""
        shares = dict.fromkeys((lot.name for lot in lots), 0)
        line = [(self._finish(lot), place) for place, lot in enumerate(lots)]
        heapify(line)
        while line and want > 0:
            finish, place = line[0]
            name, weight, room, _ = lots[place]
            needs_slot = shares[name] >= ahead.get(name, 0)
            if shares[name] >= room or (needs_slot and not slots):
                heappop(line)
                continue
            shares[name] += 1
            want -= 1
            slots -= needs_slot
            step = 0.0 if self._is_strict else 1 / weight
            heapreplace(line, (finish + step, place))
        return shares, slots

    def _finish(self, lot: Lot) -> float:
        if self._is_strict:
            return 0.0  # as they come
        return self._start(lot) + 1 / lot.weight

    def _start(self, lot: Lot) -> float:
        if lot.name not in self._due:
            # Chance keeps workers that start together from all beginning with one queue.
            self._due[lot.name] = self._now + self._chance() / lot.weight
        return self._due[lot.name]


def _answers(
    asked: Sequence[tuple[str, int]], want: int, got: Mapping[str, int]
) -> dict[str, bool]:
    """Of every queue that was really asked, whether it gave less than that."""
    left, rest, dry = want, dict(got), dict[str, bool]()
    for name, limit in asked:
        room = min(limit, left)
        if room > 0:
            given = min(room, rest.get(name, 0))
            rest[name] = rest.get(name, 0) - given
            left -= given
            dry[name] = given < room
    return dry
