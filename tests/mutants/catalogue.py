"""All mutants, by name."""

from tests.mutants import (
    bounds,
    control,
    ends,
    keys,
    leases,
    logs,
    plan_rules,
    plans,
    schedules,
    waiting,
    worker,
)
from tests.mutants.planting import Mutant, Promises, Seeds

STORES = (ends, leases, keys, bounds, waiting, logs)
ABOVE = (plans, plan_rules, schedules, worker, control)
MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant for chapter in (*STORES, *ABOVE) for mutant in chapter.PLANTED
}

# The control: it plants no bug. A check that "catches" it would catch anything.
CONTROL = Mutant(
    "nothing",
    "Nothing is wrong.",
    (),
    (Promises("exchange."), Promises("keys.concurrent", "file"), Seeds(1)),
)


def find(name: str) -> Mutant:
    return CONTROL if name == CONTROL.name else MUTANTS[name]
