"""Limits for people and for `--json`: numbers, and the gates that they have."""

from collections import defaultdict
from typing import Any, NamedTuple

from durio.model.explanation import moment
from durio.model.gate_keys import FAIR, gate_prefix
from durio.model.gate_rule import FAIR_LIMIT, GateChoice
from durio.model.limit_records import KnownLimit
from durio.model.quantities import DURATION_UNITS, format_duration
from durio.ports.browse import GateRow
from durio.ports.store import Store

GATES_READ = 1000
AMOUNT_ERROR = 1e-9  # of a rate that was divided and multiplied


class LimitRow(NamedTuple):
    """A limit, and what its gates hold."""

    limit: str
    kind: str
    choice: GateChoice
    is_manual: bool
    key: str
    tasks: tuple[str, ...]
    gates: int
    held: int
    waiting: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        fields = self._asdict()
        choice: GateChoice = fields.pop("choice")
        return {**fields, **choice._asdict()}


async def limit_row(store: Store, limit: KnownLimit) -> LimitRow:
    return row_of(limit, await store.gates(limit.gates, limit=GATES_READ))


def row_of(limit: KnownLimit, gates: list[GateRow]) -> LimitRow:
    code = limit.code
    return LimitRow(
        limit=limit.name,
        kind=limit.kind,
        choice=limit.choice,
        is_manual=limit.manual is not None,
        key="" if code is None else code.key,
        tasks=() if code is None else code.tasks,
        gates=len(gates),
        held=sum(gate.used for gate in gates),
        waiting=sum(gate.waiting for gate in gates),
    )


async def fair_rows(store: Store, namespace: str) -> list[LimitRow]:
    """Return the limits of fairness, which queues have while there are jobs."""
    head = gate_prefix(FAIR, namespace, FAIR_LIMIT).removesuffix("/")
    found: defaultdict[str, list[GateRow]] = defaultdict(list)
    for gate in await store.gates(head, limit=GATES_READ):
        found[gate.name.split("/", 2)[1]].append(gate)
    return [
        row_of(KnownLimit(name, gate_prefix(FAIR, namespace, name), None, None), gates)
        for name, gates in sorted(found.items())
    ]


def choice_text(choice: GateChoice) -> str:
    """Return numbers as text: `5 at once`, `100/m`, `no limit`."""
    cap, rate, burst = choice
    texts = [] if cap is None else [f"{cap} at once"]
    if rate is not None:
        text = rate_text(rate, burst)
        is_whole_burst = burst in {None, 1.0} or text.startswith(f"{burst:.15g}/")
        texts.append(text if is_whole_burst else f"{text}, burst {burst:g}")
    return ", ".join(texts) or "no limit"


def rate_text(rate: float, burst: float | None = None) -> str:
    """Return a rate in the unit that gives a whole number, or that of a budget."""
    amounts = {unit: rate * DURATION_UNITS[unit] for unit in "smhd"}
    whole = [unit for unit in amounts if is_whole(amounts[unit])]
    of_budget = [unit for unit in whole if round(amounts[unit]) == burst]
    for unit in of_budget or whole:
        return f"{round(amounts[unit])}/{unit}"
    return f"1 each {format_duration(1 / rate)}" if rate < 1 else f"{rate:.3g}/s"


def set_arguments(choice: GateChoice) -> str:
    """Return numbers as `durio limits set` takes them: `5 100/m --burst 20`."""
    cap, rate, burst = choice
    texts = [] if cap is None else [str(cap)]
    if rate is not None:
        texts.append(exact_rate(rate))
        if burst not in {None, 1.0}:
            texts.append(f"--burst {burst:.15g}")
    return " ".join(texts)


def exact_rate(rate: float) -> str:
    """Return a rate that `parse_rate` takes, in the unit that gives a whole number."""
    for unit in "smhd":
        amount = rate * DURATION_UNITS[unit]
        if is_whole(amount):
            return f"{round(amount)}/{unit}"
    a_day = rate * DURATION_UNITS["d"]
    return f"{decimal(a_day)}/d" if a_day >= 1 else f"1/{decimal(1 / a_day)}d"


def decimal(number: float) -> str:
    return f"{number:.9f}".rstrip("0").removesuffix(".")


def is_whole(amount: float) -> bool:
    return amount >= 1 and abs(amount - round(amount)) < AMOUNT_ERROR * amount


def gate_view(gate: GateRow, prefix: str) -> dict[str, Any]:
    """Return a gate for `--json`; the key is what follows the prefix of its limit."""
    return {
        "key": gate.name.removeprefix(prefix),
        "held": gate.used,
        "cap": gate.cap,
        "tokens": None if gate.rate is None else gate.tokens,
        "waiting": gate.waiting,
        "closed_until": None if gate.until is None else moment(gate.until),
    }
