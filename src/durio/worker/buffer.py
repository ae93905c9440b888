"""Claimed but unstarted: what waits here for a slot, and who is next."""

from collections import deque
from collections.abc import Callable, Collection, Sequence

from durio.model.job import Claim
from durio.worker.quotas import Quotas

Sort = Callable[[Sequence[Claim]], list[Claim]]


class Buffer(deque[Claim]):
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
