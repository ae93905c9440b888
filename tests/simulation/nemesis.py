"""What goes wrong in a simulated world: a list of faults, drawn before it begins.

A list, so that a failing world can be played again with fewer of them. Each fault is put
on record before it happens.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from durio.testing.line import Trouble
from durio.testing.world import Node, World
from tests.simulation.ledger import EVERYBODY, Ledger

# Kind, weight, least and most seconds that it lasts.
KINDS: dict[str, tuple[int, float, float]] = {
    "kill": (20, 0.0, 20.0),  # until there is a new process
    "pause": (14, 0.5, 90.0),
    "zombie": (10, 0.0, 30.0),  # a pause past the lease, of whoever has most in hand
    "cut": (12, 0.5, 90.0),
    "flaky": (12, 5.0, 60.0),
    "slow": (8, 5.0, 60.0),
    "deaf": (5, 5.0, 60.0),
    "skew": (5, 0.0, 0.0),
    "block": (5, 0.5, 40.0),  # by code that is no attempt
    "terminate": (12, 0.0, 10.0),
    "terminate_kill": (5, 0.0, 10.0),
    "store_away": (5, 0.5, 45.0),
    "store_full": (4, 0.5, 45.0),
    "store_slow": (3, 1.0, 30.0),
    "store_deaf": (3, 5.0, 60.0),  # nobody hears a ring: only the safety poll is left
    "clock_step": (2, 0.0, 0.0),
    "massacre": (2, 0.0, 10.0),  # every worker at once
    "queue_paused": (4, 1.0, 30.0),  # by hand: no disaster, but it meets them
}
ABOUT_EVERYBODY = {"store_away", "store_full", "store_slow", "clock_step"}
ABOUT_EVERYBODY |= {"store_deaf", "massacre", "queue_paused", "zombie"}
# What happens to the line to the store, not to the process.
TROUBLES = {"cut", "flaky", "slow", "deaf"}
# What happens to whoever asks for jobs, too.
ABOUT_PRODUCERS = {"pause", "cut", "flaky", "slow"}
PRODUCER_SHARE = 0.2
SKEW_SECONDS_MAX = 300.0
STEP_SECONDS_MAX = 300.0
SHARE_MAX = 0.2


class PauseQueue(Protocol):
    """Somebody pauses the queue that most jobs are in, or resumes it."""

    def __call__(self, *, is_paused: bool) -> None:
        """By hand."""
        ...


@dataclass(frozen=True, slots=True)
class Fault:
    """One disaster."""

    at: float
    kind: str
    node: str  # EVERYBODY: all of them
    seconds: float
    size: float  # from 0 to 1: how bad, where that means something


def draw(
    chance: Random,
    began: float,
    seconds: float,
    workers: list[str],
    producers: list[str],
    every: float,
) -> list[Fault]:
    """All faults of a world: one about every so many seconds, of some kinds only."""
    kinds = [kind for kind in KINDS if chance.random() < 0.7] or ["kill"]
    weights = [KINDS[kind][0] for kind in kinds]
    faults: list[Fault] = []
    at = began + chance.expovariate(1 / every)
    while at < began + seconds:
        kind = chance.choices(kinds, weights)[0]
        _, least, most = KINDS[kind]
        node = EVERYBODY if kind in ABOUT_EVERYBODY else chance.choice(workers)
        if kind in ABOUT_PRODUCERS and chance.random() < PRODUCER_SHARE:
            node = chance.choice(producers)
        lasts = least + (most - least) * chance.random() ** 3  # long ones are rare
        faults.append(
            Fault(round(at, 3), kind, node, round(lasts, 3), round(chance.random(), 3))
        )
        at += chance.expovariate(1 / every)
    return faults


class Nemesis:
    """Carries the faults out."""

    def __init__(  # noqa: PLR0913 - all that it can reach
        self,
        world: World,
        ledger: Ledger,
        troubles: dict[str, Trouble],
        mortal: list[str],
        lease_seconds: float,
        *,
        pause_queue: PauseQueue,
        restart: Callable[[str], None],
        terminate: Callable[[str], None],
    ) -> None:
        self.world = world
        self.ledger = ledger
        self.troubles = troubles  # by node, and of everybody
        self.mortal = mortal  # the workers
        self.lease_seconds = lease_seconds
        self.pauses: Counter[Node] = Counter()
        self.pause_queue = pause_queue
        self.restart = restart
        self.terminate = terminate

    async def run(self, faults: list[Fault]) -> None:
        """All of them; one that lasts does not hold the next up."""
        clock = self.world.director.clock
        for fault in faults:
            await clock.sleep(fault.at - self.world.seconds)
            self.strike(fault)

    def strike(self, fault: Fault) -> None:
        """One of them."""
        if fault.kind == "zombie":
            node = self._busiest()
            seconds = fault.seconds + self.lease_seconds
            fault = replace(fault, kind="pause", node=node, seconds=seconds)
        self.ledger.disturb(fault.kind, fault.node, fault.seconds)
        node = self.world.nodes.get(fault.node)
        if fault.kind == "massacre":
            for name in self.mortal:
                self._kill(self.world.nodes[name], fault.seconds)
        elif fault.kind == "queue_paused":
            self.pause_queue(is_paused=True)
            self._later(fault.seconds, lambda: self.pause_queue(is_paused=False))
        elif node is None or fault.kind in TROUBLES:
            self._trouble(fault, fault.kind.removeprefix("store_"))
        elif not node.is_dead:
            self._strike_process(fault, node)

    def _strike_process(self, fault: Fault, node: Node) -> None:
        match fault.kind:
            case "kill":
                self._kill(node, fault.seconds)
            case "pause":
                self._pause(node, fault.seconds)
            case "block":
                self._block(node, fault.seconds)
            case "terminate":
                self.terminate(node.name)
            case "terminate_kill":
                self.terminate(node.name)
                self._later(fault.seconds, lambda: self._kill(node, 1.0))
            case "skew":
                node.skew_seconds = SKEW_SECONDS_MAX * (2 * fault.size - 1)
            case _:
                raise ValueError(f"no such fault: {fault}")

    def _pause(self, node: Node, seconds: float) -> None:
        """Until the last of its pauses is over."""
        self.world.pause(node)
        self.pauses[node] += 1

        def end() -> None:
            self.pauses[node] -= 1
            if not self.pauses[node]:
                self.world.resume(node)

        self._later(seconds, end)

    def _busiest(self) -> str:
        hands = self.ledger.hands
        return max(self.mortal, key=lambda name: (len(hands[name]), name))

    def _block(self, node: Node, seconds: float) -> None:
        """A callback that blocks, and belongs to no attempt."""
        if node.main.is_blocked:
            return
        node.main.is_blocked = True

        def end() -> None:
            node.main.is_blocked = False

        self._later(seconds, end)

    def _kill(self, node: Node, seconds: float) -> None:
        if not node.is_dead:
            self.world.kill(node)
            self._later(seconds, lambda: self.restart(node.name))

    def _trouble(self, fault: Fault, kind: str) -> None:
        until = self.world.seconds + fault.seconds
        trouble = self.troubles[fault.node]
        match kind:
            case "cut" | "away":
                trouble.cut_until = until
            case "full":
                trouble.full_until = until
            case "deaf":
                trouble.deaf_until = until
            case "slow":
                trouble.slow_until, trouble.slow_seconds = until, 4 * fault.size
            case "flaky":
                trouble.flaky_until = until
                share = SHARE_MAX * fault.size
                trouble.refused = trouble.unsent = trouble.unanswered = share
            case "clock_step":
                self.world.step_seconds = STEP_SECONDS_MAX * (2 * fault.size - 1)
            case _:
                raise ValueError(f"no such fault: {fault}")

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        for trouble in self.troubles.values():
            trouble.cut_until = trouble.full_until = trouble.deaf_until = 0.0
            trouble.slow_until = trouble.flaky_until = 0.0
        self.world.step_seconds = 0.0
        self.pause_queue(is_paused=False)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self.world.director.main.call_later(seconds, act)
