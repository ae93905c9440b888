"""Choose the next queue by weight: smooth weighted round robin.

Every queue has a finish time on a virtual clock that counts shares: a pick adds 1 / weight,
and the queue with the earliest finish is next. So picks with weights 6, 3 and 1 are evenly
mixed, not in blocks. A queue is charged for the jobs that it gave, not for those that were
requested: a queue that used another's share gets less later.

A queue that gave fewer jobs than requested is dry: its share goes to the others. When it
has jobs again it starts at the current virtual time. Idle time earns no credit.

If a queue has its own prefetch, no other queue overtakes it: see `split_with_prefetch`.

In strict order there are no shares: the first queue may give all jobs, then the next.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

# How many jobs of credit a queue keeps while it is at its own limit: a slot may be free
# soon.
LATE_MAX = 1


class QueueCandidate(NamedTuple):
    """A queue to claim from: its weight, and the most jobs it may give."""

    name: str
    weight: int
    room: int
    is_capped: bool = False  # limited by its own slots, not by other queues
    ahead: int = 0  # the part of `room` that may wait for a slot


class WeightedRoundRobin:
    """Splits the wanted jobs over queues, and adapts to what they gave."""

    def __init__(self, random: Callable[[], float], *, is_strict: bool = False) -> None:
        self._random = random
        self._is_strict = is_strict
        self._due: dict[str, float] = {}
        self._dry: set[str] = set()
        self._now = 0.0
        self._last: tuple[Sequence[QueueCandidate], Sequence[tuple[str, int]], int] = (
            (),
            (),
            0,
        )
        self._began: dict[str, float] = {}  # start of each queue at the last split
        self._had_slots = True

    def retain(self, names: Collection[str]) -> None:
        """Forget queues that are no longer served."""
        for name in self._due.keys() - set(names):
            del self._due[name]
            self._dry.discard(name)

    def mark_filled(self, names: Collection[str] | None = None) -> None:
        """Note that these queues, or all, may have jobs again."""
        self._dry -= self._dry if names is None else set(names)

    def split(
        self, queues: Sequence[QueueCandidate], want: int
    ) -> list[tuple[str, int]]:
        """Return how many jobs to request from which queue, in order.

        A queue may occur twice. First comes one job of each dry queue, then the shares.
        Then, for jobs that these could not give, every queue occurs again, up to its room.
        """
        queues = self._in_order(queue for queue in queues if queue.room > 0)
        full = [queue for queue in queues if queue.name not in self._dry]
        shares = self._split_want(full, want)
        probes = [(queue.name, 1) for queue in queues if queue.name in self._dry]
        first = probes + [(name, share) for name, share in shares.items() if share]
        given = dict(first)
        rest = [(queue.name, queue.room - given.get(queue.name, 0)) for queue in queues]
        asked = first + [(name, room) for name, room in rest if room > 0]
        self._last = queues, asked, want
        return asked

    def split_with_prefetch(
        self, queues: Sequence[QueueCandidate], slots: int, want: int
    ) -> list[tuple[str, int]]:
        """Split if a queue has its own prefetch: no other queue overtakes it.

        In the order of the shares, the first jobs get the free slots, and the next ones
        wait. The split ends at the first job that would have to wait and may not. Dry
        queues get slots that no other queue can use, and are asked for one job ahead.
        """
        self._had_slots = slots > 0
        queues = self._in_order(queues)
        full = [queue for queue in queues if queue.name not in self._dry]
        shares, slots = self._split_slots(full, slots, want)
        dry = [queue for queue in queues if queue.name in self._dry]
        spare, _ = self._split_slots(
            [queue._replace(ahead=0) for queue in dry], slots, slots
        )
        for queue in dry:
            shares[queue.name] = max(spare[queue.name], min(1, queue.ahead))
        limits = [(queue.name, shares[queue.name]) for queue in (*dry, *full)]
        asked = [(name, limit) for name, limit in limits if limit > 0]
        self._last = queues, asked, want
        return asked

    def interleaved(self, names: Sequence[str]) -> list[int]:
        """Return the indices of the received jobs in the order of the last shares."""
        weights = {queue.name: queue.weight for queue in self._last[0]}
        seen: Counter[str] = Counter()
        finishes: list[tuple[float, int]] = []
        for place, name in enumerate(names):
            seen[name] += 1
            finish = self._began.get(name, self._now) + seen[name] / weights.get(
                name, 1
            )
            finishes.append((finish, place))
        return [place for _, place in sorted(finishes)]

    def charge(self, got: Mapping[str, int]) -> bool:
        """Charge queues for the jobs that they gave; return whether there may be more."""
        queues, asked, want = self._last
        dry = _gave_less(asked, want, got)
        self._dry -= dry.keys()
        self._dry |= {name for name in dry if dry[name]}
        free: list[float] = []  # finish times of queues that may have more jobs
        # Finish times of queues that gave all they may give.
        held: dict[str, float] = {}
        late: dict[str, float] = {}
        for queue in queues:
            count = got.get(queue.name, 0)
            due = self._due[queue.name] = self._start(queue) + count / queue.weight
            if queue.name in self._dry:
                continue
            if queue.is_capped and count >= queue.room:
                held[queue.name] = due
                late[queue.name] = LATE_MAX / queue.weight
            else:
                free.append(due)
        # The current time is the earliest finish of the queues that have jobs.
        self._now = max(self._now, min(free or held.values(), default=self._now))
        for name in self._due:
            least = self._now - late.get(name, 0.0)
            self._due[name] = max(self._due[name], least)
        could = {name for name, _ in asked}
        return any(
            queue.name not in self._dry and (self._had_slots or queue.name in could)
            for queue in queues
        )

    def _split_want(
        self, queues: Sequence[QueueCandidate], want: int
    ) -> dict[str, int]:
        shares = dict.fromkeys((queue.name for queue in queues), 0)
        heap = self._finish_heap(queues)
        while heap and want > 0:
            finish, place = heap[0]
            queue = queues[place]
            if shares[queue.name] >= queue.room:
                heappop(heap)
                continue
            shares[queue.name] += 1
            want -= 1
            heapreplace(heap, (finish + self._increment(queue), place))
        return shares

    def _split_slots(
        self, queues: Sequence[QueueCandidate], slots: int, want: int
    ) -> tuple[Counter[str], int]:
        """Return the jobs that each queue may start or let wait, and the slots left."""
        starts: Counter[str] = Counter()
        waits: Counter[str] = Counter()
        may_wait = True
        heap = self._finish_heap(queues)
        while heap and want > 0:
            finish, place = heap[0]
            queue = queues[place]
            if slots and starts[queue.name] < queue.room - queue.ahead:
                starts[queue.name] += 1
                slots -= 1
            elif may_wait and waits[queue.name] < queue.ahead:
                waits[queue.name] += 1
            elif slots:  # its own slots are taken: others may start, but not wait
                may_wait = False
                heappop(heap)
                continue
            else:
                break
            want -= 1
            heapreplace(heap, (finish + self._increment(queue), place))
        return starts + waits, slots

    def _finish_heap(self, queues: Sequence[QueueCandidate]) -> list[tuple[float, int]]:
        heap = [(self._finish(queue), place) for place, queue in enumerate(queues)]
        heapify(heap)
        return heap

    def _in_order(self, queues: Iterable[QueueCandidate]) -> list[QueueCandidate]:
        queues = sorted(queues, key=self._finish)
        self._began = {queue.name: self._start(queue) for queue in queues}
        return queues

    def _increment(self, queue: QueueCandidate) -> float:
        return 0.0 if self._is_strict else 1 / queue.weight

    def _finish(self, queue: QueueCandidate) -> float:
        if self._is_strict:
            return 0.0  # keeps the given order
        return self._start(queue) + 1 / queue.weight

    def _start(self, queue: QueueCandidate) -> float:
        if queue.name not in self._due:
            # Random, so that workers that start together begin with different queues.
            self._due[queue.name] = self._now + self._random() / queue.weight
        return self._due[queue.name]


def _gave_less(
    asked: Sequence[tuple[str, int]], want: int, got: Mapping[str, int]
) -> dict[str, bool]:
    """Return for each requested queue whether it gave fewer jobs than requested."""
    left, rest, dry = want, dict(got), dict[str, bool]()
    for name, limit in asked:
        room = min(limit, left)
        if room > 0:
            given = min(room, rest.get(name, 0))
            rest[name] = rest.get(name, 0) - given
            left -= given
            dry[name] = given < room
    return dry
