"""The figures of a world, computed from ledgers small enough to check by hand."""

from typing import Any

from tests.simulation.account import recoveries
from tests.simulation.ledger import ALL_NODES, Ledger
from tests.simulation.world import World

Line = tuple[float, str, str, int | None, dict[str, Any]]


def start(at: float, node: str, n: int) -> Line:
    return at, node, "start", n, {}


def end(at: float, node: str, n: int) -> Line:
    return at, node, "end", n, {"kind": "retry"}


def fault(at: float, kind: str, node: str, seconds: float = 0.0) -> Line:
    return at, node, "fault", None, {"kind": kind, "seconds": seconds}


def ledger_of(*lines: Line) -> Ledger:
    world = World(1)
    ledger = Ledger(world)
    for at, node, what, n, fields in sorted(lines, key=lambda line: line[0]):
        world.seconds = at
        ledger.note(node, what, n, **fields)
    return ledger


def test_recovery_counts_from_the_end_of_the_worker():
    runs = start(1, "w1", 7), start(9, "w2", 7)
    for kind, node, seconds, took in (
        ("kill", "w1", 0.0, 6.0),
        ("exit -11", "w1", 0.0, 6.0),
        ("massacre", ALL_NODES, 0.0, 6.0),
        ("terminate_kill", "w1", 2.0, 4.0),  # the kill comes after these seconds
    ):
        assert recoveries(ledger_of(*runs, fault(3, kind, node, seconds))) == [took]


def test_only_what_a_dead_worker_ran_has_to_recover():
    runs = start(1, "w1", 7), start(9, "w2", 7)
    assert recoveries(ledger_of(*runs)) == []
    assert recoveries(ledger_of(*runs, fault(3, "pause", "w1", 5.0))) == []
    assert recoveries(ledger_of(*runs, fault(3, "kill", "w3"))) == []
    assert recoveries(ledger_of(*runs, fault(3, "kill", "w1"), end(2, "w1", 7))) == []


def test_the_first_fault_ended_it():
    """A later fault on its successor of the same name does not count."""
    lines = start(1, "w1", 7), fault(3, "kill", "w1"), fault(5, "kill", "w1")
    assert recoveries(ledger_of(*lines, start(9, "w2", 7))) == [6.0]
