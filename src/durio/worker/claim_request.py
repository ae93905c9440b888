"""What the next exchange claims: jobs for free slots, or jobs for open batches.

An exchange for batches is made when no slot is free, or when an exchange for slots has said
that there may be more jobs. An exchange for slots follows it, if there are slots.
"""

from collections.abc import Sequence
from typing import NamedTuple

from durio.ports.exchange import Exchanged, Lane
from durio.worker.input_fetcher import InputFetcher
from durio.worker.lanes import Lanes
from durio.worker.slots import Slots


class ExchangeRequest(NamedTuple):
    """The part of an exchange that claims jobs."""

    lanes: Sequence[Lane]
    want: int
    known: Sequence[str] | None  # tasks; None: all
    is_fill: bool = False  # for open batches


class ExchangeRequests:
    """Decides what each exchange claims."""

    def __init__(
        self, lanes: Lanes, slots: Slots, inputs: InputFetcher, known: Sequence[str]
    ) -> None:
        self._lanes = lanes
        self._slots = slots
        self._inputs = inputs
        self._known = known
        self._may_be_more = False  # the last exchange for slots says so
        self._last = ExchangeRequest((), 0, None)

    @property
    def has_room(self) -> bool:
        """Whether there is room in slots or batches."""
        return self._slots.want > 0 or self._room > 0

    @property
    def _room(self) -> int:
        batches = self._slots.batches
        return batches.room if batches.open else 0

    def next(self, *, resync: bool) -> ExchangeRequest:
        """Return what to claim now; a resync is never for batches alone.

        Jobs that could not start are not claimed: see `LeaseCheck`.
        """
        slots, held = self._slots, len(self._inputs.held)
        want, room = max(0, slots.want - held), self._room - held
        if slots.lease.is_over:
            want = room = 0
        if room > 0 and not resync and (self._may_be_more or not want):
            self._may_be_more = False
            self._last = ExchangeRequest(*slots.batches.next_fill(room), is_fill=True)
        else:
            known = self._known if slots.skips_unknown else None
            self._last = ExchangeRequest(self._lanes.ask(want), want, known)
        return self._last

    def apply_answer(self, answer: Exchanged, seconds: float) -> bool:
        """Learn from a reply; return whether to exchange again immediately."""
        want = self._last.want
        if self._last.is_fill:
            self._slots.batches.apply_fill(want, len(answer.claims), seconds)
            return answer.more or self._slots.want > 0
        self._may_be_more = self._lanes.apply_answer(answer, want)
        return self._may_be_more
