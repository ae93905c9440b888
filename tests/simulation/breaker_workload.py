"""The jobs behind a breaker in a simulated world, and the service that they call."""

from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

from durio.limits import Breaker
from tests.simulation.ledger import Ledger
from tests.simulation.world import Node

SERVICE = Breaker("service", failures=2, window="60s", open_for="6s")
BEHIND_MIN, BEHIND_MAX = 10, 40  # jobs of a world
BROKEN_MAX = 3  # times in a world
BROKEN_SHARE = 0.6  # of the jobs
BROKEN_SECONDS_MIN, BROKEN_SECONDS_MAX = 5.0, 25.0

Call = Callable[[int, float], Coroutine[Any, Any, int]]


def broken_spans(
    chance: Random, began: float, seconds: float
) -> list[tuple[float, float]]:
    """Draw when the service fails, as seconds of the world."""
    spans: list[tuple[float, float]] = []
    for _ in range(chance.randint(1, BROKEN_MAX)):
        start = began + chance.random() * seconds
        length = chance.uniform(BROKEN_SECONDS_MIN, BROKEN_SECONDS_MAX)
        spans.append((start, start + length))
    return spans


def service_calls(
    chance: Random, began: float, seconds: float, broken: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Draw when jobs behind the breaker are enqueued, and how long their calls take.

    Most of them come while the service fails.
    """
    calls: list[tuple[float, float]] = []
    for _ in range(chance.randint(BEHIND_MIN, BEHIND_MAX)):
        at = began + chance.random() * seconds
        if chance.random() < BROKEN_SHARE:
            at = chance.uniform(*chance.choice(broken))
        calls.append((at, min(chance.expovariate(1), 3.0)))
    return calls


def call_of(node: Node, ledger: Ledger) -> Call:
    """Return the task of this process that calls the service."""

    async def behind(n: int, seconds: float) -> int:
        now = node.world.seconds
        ledger.note(node.name, "start", n)
        await node.clock.sleep(seconds)
        if any(start <= now < end for start, end in ledger.broken):
            raise ConnectionError(f"the service fails for job {n}")
        ledger.note(node.name, "effect", n)
        return n

    return behind
