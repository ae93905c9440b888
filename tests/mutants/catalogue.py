"""All mutants, by name."""

from tests.mutants import (
    access,
    batches,
    bounds,
    breakers,
    control,
    ends,
    error_groups,
    expiry,
    gates,
    keys,
    leases,
    limits,
    logs,
    plan_rules,
    plans,
    routes,
    schedules,
    waiting,
    why,
    worker,
)
from tests.mutants.planting import Mutant, Promises, Seeds

STORES = (ends, leases, keys, bounds, waiting, logs, gates)
ABOVE = (
    plans,
    plan_rules,
    routes,
    limits,
    schedules,
    expiry,
    breakers,
    batches,
    worker,
    control,
    error_groups,
    why,
    access,
)
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
