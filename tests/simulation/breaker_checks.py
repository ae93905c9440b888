"""A breaker in a simulated world: what its record says, and which calls are made.

The recorder notes each write of the record that the store has accepted.
"""

from collections.abc import Iterator

from tests.simulation.breaker_workload import SERVICE
from tests.simulation.checks import Case, Check, Violation

LEGAL = {
    ("closed", "open"),
    ("open", "half_open"),
    ("half_open", "open"),
    ("half_open", "closed"),
}


def changes_are_legal(case: Case) -> Iterator[Violation]:
    """Each change follows from the state before it, and is made once."""
    state, period = "closed", 0
    for entry in case.ledger.of("breaker"):
        new, number = entry.fields["state"], entry.fields["period"]
        if number == period and new == state:
            continue
        case.exercised.add("breaker")
        if number != period + 1 or (state, new) not in LEGAL:
            what = f"{state} ({period}) became {new} ({number})"
            yield Violation("breaker", None, what)
        state, period = new, number


def only_probes_call(case: Case) -> Iterator[Violation]:
    """While it is half open, only jobs call that its record names: two at most."""
    behind = {n for n, wish in case.wishes.items() if wish.kind == "behind"}
    is_half_open, probes = False, set[int]()
    for entry in case.ledger.entries:
        if entry.what == "breaker":
            now = set(entry.fields["probes"])
            if len(now) > SERVICE.rule.probes:
                yield Violation("probe", None, f"{len(now)} probes")
            was_half_open = is_half_open
            is_half_open = entry.fields["state"] == "half_open"
            # One that the leader has removed may begin late: its process stood still.
            probes = probes | now if was_half_open and is_half_open else now
        elif entry.what == "start" and entry.n in behind and is_half_open:
            case.exercised.add("probe")
            if entry.n not in probes:
                yield Violation("probe", entry.n, "it called, and is no probe")


CHECKS: tuple[Check, ...] = (changes_are_legal, only_probes_call)


def judge(case: Case) -> list[Violation]:
    return [violation for check in CHECKS for violation in check(case)]
