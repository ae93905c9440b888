"""The faults of a simulated world: a list, drawn before the world begins.

It is a list so that a failing world can be replayed with fewer faults. Each fault is
recorded in the ledger before it happens.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from tests.simulation.ledger import ALL_NODES, Ledger
from tests.simulation.network import Trouble
from tests.simulation.world import Node, World

# Kind: weight, least and most seconds that it lasts.
KINDS: dict[str, tuple[int, float, float]] = {
    "kill": (20, 0.0, 20.0),  # until a new process starts
    "pause": (14, 0.5, 90.0),
    "zombie": (10, 0.0, 30.0),  # a pause past the lease, of the busiest worker
    "cut": (12, 0.5, 90.0),
    "flaky": (12, 5.0, 60.0),
    "slow": (8, 5.0, 60.0),
    "bad_line": (8, 5.0, 60.0),  # flaky and slow: lost calls and late calls together
    "deaf": (5, 5.0, 60.0),
    "skew": (5, 0.0, 0.0),
    "block": (5, 0.5, 40.0),  # by code that belongs to no attempt
    "terminate": (12, 0.0, 10.0),
    "terminate_kill": (5, 0.0, 10.0),
    "deploy": (6, 0.0, 10.0),  # to new code, or back to the old code
    "store_away": (5, 0.5, 45.0),
    "store_full": (4, 0.5, 45.0),
    "store_slow": (3, 1.0, 30.0),
    "store_deaf": (3, 5.0, 60.0),  # no wakeups: only the safety poll is left
    "clock_step": (2, 0.0, 0.0),
    "massacre": (2, 0.0, 10.0),  # every worker at once
    "queue_paused": (4, 1.0, 30.0),  # by an operator: no fault, but it meets faults
}
# Faults of a server's connections, in some worlds and in addition to the above. They are
# drawn separately, so that worlds without them do not change.
CONNECTIONS: dict[str, tuple[int, float, float]] = {
    "broken": (
        10,
        5.0,
        60.0,
    ),  # they break under calls, which are executed, or not, or late
    "store_broken": (4, 2.0, 20.0),
    "store_reset": (6, 0.0, 0.0),  # all calls in flight: a server's restart
}
CONNECTIONS_SHARE = 0.4  # of the worlds
# Open transactions that hold keys which a producer needs; drawn separately too.
LOCKS: dict[str, tuple[int, float, float]] = {"locked": (1, 0.1, 45.0)}
LOCKS_SHARE = 0.3  # of the worlds
LOCKS_EVERY = 2.0  # times the pause between other faults
BROKEN_SHARE_MAX = 0.4  # of the calls
NO_WAKEUPS_SECONDS = 1.0  # until the new connection listens
ABOUT_ALL_NODES = {
    *("store_away", "store_full", "store_slow", "store_deaf", "store_broken"),
    *("store_reset", "clock_step", "massacre", "queue_paused", "zombie"),
}
# Faults of the connection to the store, not of the process.
TROUBLES = {"cut", "flaky", "slow", "bad_line", "deaf", "broken", "locked"}
# Faults that also happen to producers.
ABOUT_PRODUCERS = {
    "pause",
    "cut",
    "flaky",
    "slow",
    "bad_line",
    "kill",
    "skew",
    "broken",
}
PRODUCER_SHARE = 0.2
BROKEN_PRODUCER_SHARE = 0.6  # of the broken connections: a late enqueue is worst
SKEW_SECONDS_MAX = 300.0
STEP_SECONDS_MAX = 300.0
SHARE_MAX = 0.2
SLOW_SECONDS_MAX = 4.0
LATE_SECONDS_MAX = 1.0  # of a slow and flaky connection
ROLL_BACK_SHARE = 0.4  # of the deploys


class PauseQueue(Protocol):
    """Pauses the queue that holds most jobs, as an operator would, or resumes it."""

    def __call__(self, *, is_paused: bool) -> None: ...


class Deploy(Protocol):
    """Makes new processes of this name run this code."""

    def __call__(self, name: str, *, is_old: bool) -> None:
        """Deploy; running processes keep their code."""
        ...


@dataclass(frozen=True, slots=True)
class Fault:
    at: float
    kind: str
    node: str  # ALL_NODES: all of them
    seconds: float
    size: float  # from 0 to 1: how bad; some kinds ignore it


def draw(
    chance: Random,
    began: float,
    seconds: float,
    workers: list[str],
    producers: list[str],
    every: float,
) -> list[Fault]:
    """Return all faults of a world: one about every `every` seconds, of some kinds only."""
    kinds = [kind for kind in KINDS if chance.random() < 0.7] or ["kill"]
    return draw_of(
        chance, {k: KINDS[k] for k in kinds}, began, seconds, workers, producers, every
    )


def draw_connections(
    chance: Random,
    began: float,
    seconds: float,
    workers: list[str],
    producers: list[str],
    every: float,
) -> list[Fault]:
    """Draw connection faults, in some worlds, from their own random numbers."""
    if chance.random() >= CONNECTIONS_SHARE:
        return []
    return draw_of(chance, CONNECTIONS, began, seconds, workers, producers, every)


def draw_locks(
    chance: Random, began: float, seconds: float, producers: list[str], every: float
) -> list[Fault]:
    """Draw when producers find keys locked, in some worlds, from their own random numbers."""
    if chance.random() >= LOCKS_SHARE:
        return []
    pause = every * LOCKS_EVERY
    return draw_of(chance, LOCKS, began, seconds, producers, producers, pause)


def draw_of(
    chance: Random,
    known: dict[str, tuple[int, float, float]],
    began: float,
    seconds: float,
    workers: list[str],
    producers: list[str],
    every: float,
) -> list[Fault]:
    """Draw faults of these kinds, by their weights."""
    kinds = list(known)
    weights = [known[kind][0] for kind in kinds]
    faults: list[Fault] = []
    at = began + chance.expovariate(1 / every)
    while at < began + seconds:
        kind = chance.choices(kinds, weights)[0]
        _, least, most = known[kind]
        node = ALL_NODES if kind in ABOUT_ALL_NODES else chance.choice(workers)
        share = BROKEN_PRODUCER_SHARE if kind == "broken" else PRODUCER_SHARE
        if kind in ABOUT_PRODUCERS and chance.random() < share:
            node = chance.choice(producers)
        lasts = least + (most - least) * chance.random() ** 3  # long ones are rare
        faults.append(
            Fault(round(at, 3), kind, node, round(lasts, 3), round(chance.random(), 3))
        )
        at += chance.expovariate(1 / every)
    return faults


class Nemesis:
    """Carries out the faults."""

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
        terminate: Callable[[str], bool],
        deploy: Deploy,
    ) -> None:
        self.world = world
        self.ledger = ledger
        self.troubles = troubles  # by node, and of ALL_NODES
        self.mortal = mortal  # the workers
        self.lease_seconds = lease_seconds
        self.pauses: Counter[Node] = Counter()
        self.queue_pauses = 0
        self.pause_queue = pause_queue
        self.restart = restart
        self.terminate = terminate  # returns False if no process got the signal
        self.deploy = deploy

    async def run(self, faults: list[Fault]) -> None:
        """Carry out all faults; one that lasts does not delay the next."""
        clock = self.world.director.clock
        for fault in faults:
            await clock.sleep(fault.at - self.world.seconds)
            self.strike(fault)

    def strike(self, fault: Fault) -> None:
        """Carry out one fault; it counts only if it affects a process."""
        if fault.kind == "zombie":
            node = self._busiest()
            seconds = fault.seconds + self.lease_seconds
            fault = replace(fault, kind="pause", node=node, seconds=seconds)
        node = self.world.nodes.get(fault.node)
        if fault.kind == "massacre":
            self._massacre(fault)
        elif fault.kind == "queue_paused":
            self._on_record(fault)
            self.queue_pauses += 1
            self.pause_queue(is_paused=True)
            self._later(fault.seconds, self._resume_queue)
        elif node is None or fault.kind in TROUBLES:
            self._trouble(fault, fault.kind.removeprefix("store_"))
        elif not node.is_dead:
            self._strike_process(fault, node)

    def _on_record(self, fault: Fault) -> None:
        """Record the fault before it happens."""
        self.ledger.disturb(fault.kind, fault.node, fault.seconds)

    def _massacre(self, fault: Fault) -> None:
        living = [self.world.nodes[name] for name in self.mortal]
        if any(not node.is_dead for node in living):
            self._on_record(fault)
        for node in living:
            self._kill(node, fault.seconds)

    def _strike_process(self, fault: Fault, node: Node) -> None:
        match fault.kind:
            case "block" if node.main.is_blocked:
                return
            case "terminate" | "terminate_kill" | "deploy":
                self._terminate(fault, node)
                return
            case _:
                self._on_record(fault)
        match fault.kind:
            case "kill":
                self._kill(node, fault.seconds)
            case "pause":
                self._pause(node, fault.seconds)
            case "block":
                self._block(node, fault.seconds)
            case "skew":
                node.skew_seconds = SKEW_SECONDS_MAX * (2 * fault.size - 1)
            case _:
                raise ValueError(f"no such fault: {fault}")

    def _terminate(self, fault: Fault, node: Node) -> None:
        """Send a signal; a kill may follow, and other code may start afterwards."""
        if not self.terminate(node.name):
            return
        self._on_record(fault)
        if fault.kind == "terminate_kill":
            self._later(fault.seconds, lambda: self._kill(node, 1.0))
        elif fault.kind == "deploy":
            self.deploy(node.name, is_old=fault.size < ROLL_BACK_SHARE)

    def _pause(self, node: Node, seconds: float) -> None:
        """Pause a process; if pauses overlap, it resumes when the last one is over."""
        self.world.pause(node)
        self.pauses[node] += 1

        def end() -> None:
            self.pauses[node] -= 1
            if not self.pauses[node]:
                self.world.resume(node)

        self._later(seconds, end)

    def _busiest(self) -> str:
        hands = self.ledger.running_jobs
        return max(self.mortal, key=lambda name: (len(hands[name]), name))

    def _block(self, node: Node, seconds: float) -> None:
        """Block the loop by a callback that belongs to no attempt."""
        node.main.is_blocked = True

        def end() -> None:
            node.main.is_blocked = False

        self._later(seconds, end)

    def _kill(self, node: Node, seconds: float) -> None:
        if not node.is_dead:
            self.world.kill(node)
            self._later(seconds, lambda: self.restart(node.name))

    def _trouble(self, fault: Fault, kind: str) -> None:
        trouble, now = self.troubles[fault.node], self.world.seconds
        until = now + fault.seconds
        match kind:
            case "cut" | "away" | "full" | "deaf" | "locked":
                name = "cut_until" if kind == "away" else f"{kind}_until"
                is_new = until > getattr(trouble, name)
                setattr(trouble, name, max(until, getattr(trouble, name)))
            case "slow":
                is_new = slow(trouble, now, until, SLOW_SECONDS_MAX * fault.size)
            case "flaky":
                is_new = flaky(trouble, now, until, SHARE_MAX * fault.size)
            case "bad_line":
                is_new = flaky(trouble, now, until, SHARE_MAX * fault.size)
                late = LATE_SECONDS_MAX * max(fault.size, 0.1)
                is_new = slow(trouble, now, until, late) or is_new
            case "broken":
                is_new = broken(trouble, now, until, BROKEN_SHARE_MAX * fault.size)
            case "reset":
                is_new = True
                trouble.resets += 1
                # No wakeup arrives until the new connection listens.
                trouble.deaf_until = max(trouble.deaf_until, now + NO_WAKEUPS_SECONDS)
            case "clock_step":
                is_new = True
                self._set_clock(STEP_SECONDS_MAX * (2 * fault.size - 1))
            case _:
                raise ValueError(f"no such fault: {fault}")
        if is_new:
            self._on_record(fault)

    def _set_clock(self, seconds: float) -> None:
        self.world.step_seconds = seconds
        self.ledger.note(ALL_NODES, "clock", step=seconds)

    def _resume_queue(self) -> None:
        """Resume the queue when the last of overlapping pauses is over."""
        self.queue_pauses -= 1
        if not self.queue_pauses:
            self.pause_queue(is_paused=False)

    def heal(self) -> None:
        for trouble in self.troubles.values():
            trouble.cut_until = trouble.full_until = trouble.deaf_until = 0.0
            trouble.slow_until = trouble.flaky_until = trouble.broken_until = 0.0
            trouble.locked_until = 0.0
        self._set_clock(0.0)
        self.pause_queue(is_paused=False)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self.world.director.main.call_later(seconds, act)


def slow(trouble: Trouble, now: float, until: float, seconds: float) -> bool:
    """Make each trip take longer; the worse of two applies. True if this changes it."""
    is_on = trouble.slow_until > now
    is_new = not is_on or until > trouble.slow_until or seconds > trouble.slow_seconds
    trouble.slow_seconds = max(seconds, trouble.slow_seconds) if is_on else seconds
    trouble.slow_until = max(until, trouble.slow_until)
    return is_new


def flaky(trouble: Trouble, now: float, until: float, share: float) -> bool:
    """Make calls and replies get lost; the worse of two applies."""
    is_on = trouble.flaky_until > now
    is_new = not is_on or until > trouble.flaky_until or share > trouble.refused
    share = max(share, trouble.refused) if is_on else share
    trouble.refused = trouble.unsent = trouble.unanswered = share
    trouble.flaky_until = max(until, trouble.flaky_until)
    return is_new


def broken(trouble: Trouble, now: float, until: float, share: float) -> bool:
    """Make connections break during calls; the worse of two applies."""
    is_on = trouble.broken_until > now
    is_new = not is_on or until > trouble.broken_until or share > trouble.broken
    trouble.broken = max(share, trouble.broken) if is_on else share
    trouble.broken_until = max(until, trouble.broken_until)
    return is_new
