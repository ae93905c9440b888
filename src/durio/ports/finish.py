"""What a store promises about ends: state, result and freed keys together or not at all."""

from collections.abc import Sequence
from typing import Protocol

from durio.model.outcome import Outcome
from durio.ports.exchange import Rejected


class Finish(Protocol):
    """Recording outcomes without claiming: the last word of a stopping worker."""

    async def finish(self, worker: int, outcomes: Sequence[Outcome]) -> list[Rejected]:
        """Record outcomes in one transaction; return those refused by the fence.

        `done` writes state, result and end time, and frees a key held while active.
        Anything else goes through the gate of `model.transitions.way_out`; final states
        free the key by its mode, others go back to their lane with the same `claim_no`.
        """
        ...
