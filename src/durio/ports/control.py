"""Operators' hands on jobs and queues."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

Verb = Literal["cancel", "retry"]


class Acted(NamedTuple):
    """What became of one job."""

    id: bytes
    before: int | None  # None: there is no such job
    after: int | None


class Control(Protocol):
    """Acting on jobs by id."""

    async def act(self, ids: Sequence[bytes], verb: Verb) -> list[Acted]:
        """Do it, or leave a job as it is where its state does not allow it.

        cancel: a waiting job is cancelled and its key freed; a running one is marked
        (`after` stays running) and its worker woken; a final one is left alone.
        retry: dead and cancelled go back to ready with counters at zero and the same
        `claim_no`; others are left alone.
        """
        ...

    async def pause(self, lane: str, *, paused: bool) -> None:
        """Stop or resume claims from a lane."""
        ...
