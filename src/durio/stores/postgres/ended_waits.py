"""What the functions for logs and gates return: the jobs that go on, and what is left."""

from typing import NamedTuple

import msgspec

# When to call `settle` for what is left: the rest of a limit, and what was locked.
NOW_SECONDS, SOON_SECONDS = 0.0, 0.01
LOCKED_SECONDS = 0.2  # until the next try of a `settle` that found something locked
# What is left, as the functions return it; 0: nothing.
LOCKED, LIMIT_REACHED = 1, 2


class FreedPlace(NamedTuple):
    """Where jobs went that wait no longer, and the lowest of their ids or tickets."""

    lane: str
    rank: int
    lowest: str


class WaitsEnded(NamedTuple):
    """What the functions return."""

    places: list[FreedPlace] = []  # noqa: RUF012 - never changed
    jobs: int = 0
    rest: int = 0
    removed: int = 0  # rows of `deferred`
    gate_due: float | None = None  # seconds until a gate lets more jobs pass

    @property
    def settle_in_seconds(self) -> float | None:
        """When to call `settle`; None: nothing is left."""
        if not self.rest:
            return None if self.gate_due is None else max(0.0, self.gate_due)
        return NOW_SECONDS if self.rest == LIMIT_REACHED else SOON_SECONDS


NOTHING_ENDED = WaitsEnded()
_decoder = msgspec.json.Decoder(WaitsEnded)


def decode_ended(text: str | None) -> WaitsEnded:
    return NOTHING_ENDED if text is None else _decoder.decode(text)


def joined(first: WaitsEnded, second: WaitsEnded | None) -> WaitsEnded:
    if second is None:
        return first
    return WaitsEnded(
        first.places + second.places,
        first.jobs + second.jobs,
        max(first.rest, second.rest),
        first.removed + second.removed,
        second.gate_due,
    )
