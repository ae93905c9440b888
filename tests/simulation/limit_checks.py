"""Limits in a simulated world: jobs that pass gates, and what must be true of the gates.

The recorder looks at the gates of the store after calls, beside the engine: places that are
taken are those that jobs hold, no gate is over its cap or below its tokens, and none is left
when all jobs have ended.
"""

from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.checks import FINAL_KINDS, Case, Check, Violation
from tests.simulation.limit_workload import CAP, tenant_of

GIVES_BACK = {*FINAL_KINDS, "snooze", "retry", "release"}


def gates_are_right(case: Case) -> Iterator[Violation]:
    """Places that are taken are held, no gate is over its limit, and none leaks."""
    for entry in case.ledger.of("gates"):
        case.exercised.add("gates")
        for wrong in entry.fields["wrong"]:
            yield Violation("gates", None, wrong)


def no_limit_is_exceeded(case: Case) -> Iterator[Violation]:
    """No more jobs of a tenant are claimed at a time than its limit allows."""
    running: defaultdict[str, set[int]] = defaultdict(set)
    limited = {n for n, wish in case.wishes.items() if wish.kind == "limited"}
    for entry in case.ledger.entries:
        n = entry.n
        if n is None or n not in limited:
            continue
        jobs = running[tenant_of(n)]
        if entry.what == "claim":
            jobs.add(n)
            case.exercised |= {"limit"} if len(jobs) == CAP else set()
            if len(jobs) > CAP:
                yield Violation("limit", n, f"{len(jobs)} run: {sorted(jobs)}")
        elif entry.what == "rescued" or (
            entry.what == "end" and entry.fields["kind"] in GIVES_BACK
        ):
            jobs.discard(n)


CHECKS: tuple[Check, ...] = (gates_are_right, no_limit_is_exceeded)


def judge(case: Case) -> list[Violation]:
    return [violation for check in CHECKS for violation in check(case)]
