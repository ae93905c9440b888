"""Records about limits: those that the code declares, and those that operators set.

`code_limit:<app>` has a record for each limit of the tasks of the newest worker. It expires
30 days after the last worker that declared it has started. `limit:<app>` has a record for each
limit that was set by hand; it comes before the code. The name of a record is that of its
limit. The gates of a limit have one prefix, which both records contain.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from durio.model.gate import GateChange
from durio.model.gate_keys import CAP, FAIR, gate_prefix
from durio.model.gate_rule import (
    FAIR_LIMIT,
    QUEUE_LIMIT,
    GateChoice,
    GateTemplate,
)
from durio.model.limits import FAIR_WIDTH
from durio.model.settings import DAY

CODE_LIMIT_TTL_SECONDS = 30 * DAY


def code_limits_kind(namespace: str) -> str:
    return f"code_limit:{namespace}"


def manual_limits_kind(namespace: str) -> str:
    return f"limit:{namespace}"


class CodeLimit(msgspec.Struct, frozen=True):
    """A limit as the code declares it."""

    gates: str  # prefix of its gates
    kind: str  # concurrency, rate or budget
    cap: int | None = None
    rate: float | None = None
    burst: float | None = None
    key: str = ""  # what the key is, for people; empty: one gate for all jobs
    tasks: tuple[str, ...] = ()
    day: int = 0  # on which it was last declared

    @property
    def choice(self) -> GateChoice:
        return GateChoice(self.cap, self.rate, self.burst)


class ManualLimit(msgspec.Struct, frozen=True):
    """A limit that an operator has set."""

    gates: str
    cap: int | None = None
    rate: float | None = None
    burst: float | None = None

    @property
    def choice(self) -> GateChoice:
        return GateChoice(self.cap, self.rate, self.burst)


def code_limit(template: GateTemplate, tasks: tuple[str, ...], day: int) -> CodeLimit:
    """Return the record of a limit that tasks declare."""
    kind = "concurrency" if template.cap is not None else "rate"
    key = "a function" if template.has_key_function else ", ".join(template.paths)
    return CodeLimit(
        gates=template.name,
        kind="budget" if template.is_budget else kind,
        cap=template.cap,
        rate=template.rate,
        burst=template.burst,
        key=key,
        tasks=tasks,
        day=day,
    )


def change_of(gates: str, choice: GateChoice) -> GateChange:
    """Return the change that gives all gates with this prefix these numbers."""
    if choice.cap is None and choice.rate is None:
        return GateChange(gates, is_prefix=True, drop=True)
    cap, rate, burst = choice
    return GateChange(gates, is_prefix=True, cap=cap, rate=rate, burst=burst)


class KnownLimit(NamedTuple):
    """A limit with all that is stored about it."""

    name: str
    gates: str
    code: CodeLimit | None
    manual: ManualLimit | None

    @property
    def kind(self) -> str:
        if self.code is not None:
            return self.code.kind
        return "fairness" if self.name.startswith(FAIR_LIMIT) else "queue"

    @property
    def choice(self) -> GateChoice:
        """The numbers in force."""
        if self.manual is not None:
            return self.manual.choice
        if self.code is not None:
            return self.code.choice
        return GateChoice(cap=FAIR_WIDTH) if self.kind == "fairness" else GateChoice()


def known_limits(
    code: Mapping[str, CodeLimit], manual: Mapping[str, ManualLimit]
) -> list[KnownLimit]:
    """Return every limit of an App, by name."""
    found: list[KnownLimit] = []
    for name in sorted({*code, *manual}):
        declared, chosen = code.get(name), manual.get(name)
        gates = declared.gates if declared is not None else manual[name].gates
        found.append(KnownLimit(name, gates, declared, chosen))
    return found


def gates_of_queue_limit(namespace: str, limit: str) -> str | None:
    """Return the prefix of the gates of `queue:<name>` or `fair:<name>`; None for others."""
    for prefix, kind in ((QUEUE_LIMIT, CAP), (FAIR_LIMIT, FAIR)):
        if limit.startswith(prefix) and len(limit) > len(prefix):
            return gate_prefix(kind, namespace, limit)
    return None
