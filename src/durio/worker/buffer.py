"""Claimed but unstarted: what waits here for a slot, and who is next."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence

from durio.model.job import Claim
from durio.worker.quotas import Quotas

Sort = Callable[[Sequence[Claim]], list[Claim]]


class Buffer:
    """First come, first served; unless queues have slots of their own, or an order."""

    def __init__(self, quotas: Quotas | None = None, sort: Sort | None = None) -> None:
        self._quotas = quotas
        self._sort = sort
        self._claims: deque[Claim] = deque()

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._claims)

    def add(self, claims: Sequence[Claim]) -> None:
        """They wait, behind those that came before."""
        self._claims.extend(claims)
        if self._sort is not None:
            self._claims = deque(self._sort(self._claims))
        if self._quotas is not None:
            for claim in claims:
                self._quotas.waits(claim)

    def take_next(self) -> Claim | None:
        """The first that may start; None: nobody may."""
        if self._quotas is not None:
            return self._quotas.take_next(self._claims)
        return self._claims.popleft() if self._claims else None

    def take_all(self, lanes: Collection[str] | None = None) -> list[Claim]:
        """Everything, or everything of these lanes: none of it will start."""
        taken = [c for c in self._claims if lanes is None or c.lane in lanes]
        if taken:
            ids = {claim.id for claim in taken}
            self._claims = deque(c for c in self._claims if c.id not in ids)
        if self._quotas is not None:
            for claim in taken:
                self._quotas.leaves(claim)
        return taken
