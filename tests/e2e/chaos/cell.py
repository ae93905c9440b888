"""One cell: a fault, a load, some seconds, then heal, wait, dump and judge."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.chaos.field import Field, dump_of, ledger_of
from tests.e2e.chaos.judge import Verdict, Wanted, judge


def nothing(_: Field) -> None:
    """Do nothing."""


def nothing_missing() -> str:
    """Return an empty text: the fault runs on any machine."""
    return ""


@dataclass(frozen=True)
class Fault:
    """A named fault: how it is prepared, how it strikes, how it is healed."""

    name: str
    what: str
    strike: Callable[[Field], None]
    lay: Callable[[Field], None] = nothing
    heal: Callable[[Field], None] = nothing
    missing: Callable[[], str] = nothing_missing  # what this machine lacks for it
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pause: tuple[float, float] = (0.3, 1.2)  # seconds between two strikes
    wanted: Wanted = field(default_factory=Wanted)


@dataclass(frozen=True)
class Cell:
    """The result of one cell; without a verdict it was not run."""

    fault: Fault
    seed: int
    seconds: float = 0.0
    verdict: Verdict | None = None
    not_run: str = ""


def play(fault: Fault, seconds: float, seed: int, folder: Path) -> Cell:
    """Play one cell in this folder; its processes have ended when it returns."""
    missing = fault.missing()
    if missing:
        return Cell(fault, seed, not_run=missing)
    began = time.monotonic()
    field = Field(folder, random.Random(f"{seed} {fault.name}"))  # noqa: S311 - replayed
    field.settings = {"worker": dict(fault.settings)}
    late = ""
    try:
        fault.lay(field)
        try:
            fight(field, fault, seconds)
        except AssertionError as error:
            late = str(error)
        field.dump()
        checked = field.check("integrity_check")
    finally:
        field.clear_away()
        fault.heal(field)
    verdict = judge(ledger_of(folder), dump_of(folder), fault.wanted)
    if late:
        verdict.problems.append(late)
    if checked != ["ok"]:
        verdict.problems.append(f"integrity_check: {checked[:3]}")
    return Cell(fault, seed, time.monotonic() - began, verdict)


def fight(field: Field, fault: Fault, seconds: float) -> None:
    """Strike again and again for this long, then bring everything to its end."""
    field.begin()
    end = time.monotonic() + seconds
    while True:
        field.sleep(*fault.pause)
        if time.monotonic() > end:
            break
        fault.strike(field)
        field.mend()
    fault.heal(field)
    field.heal()
    field.finish()
