"""The report of a run: one table for people, one JSON for machines."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import apsw

from tests.checkout import commit
from tests.command import STOPPED
from tests.e2e.chaos.cell import Cell
from tests.e2e.chaos.judge import BROKEN, HELD, UNKNOWN, WORDS, Verdict

HEAD = """# Chaos report

Result of the last run of `make chaos`: four worker processes and two producers on one SQLite
file, disturbed by one named fault at a time. Every job has a unique integer. Each process
keeps an append-only ledger of its own, every fault is recorded before it begins, and
the verdict is computed afterwards from these files and a dump of the store.
"""
TAIL = """
- **attempted, acknowledged:** enqueues that were called, and those that the store confirmed.
- **ok:** acknowledged jobs in the final state that the workload expects, with their effect.
- **lost:** acknowledged, and absent, unfinished, or done without an effect. Must be 0.
- **unexpected:** stored without an enqueue, or in a final state that the workload excludes. Must be 0.
- **duplicated:** stored twice, ended twice, or begun again after the end. Must be 0.
- **recovered:** enqueues whose caller never got a reply, and whose job was stored once.
- **re-runs:** second starts that a recorded fault explains, and those that nothing explains (must
  be 0). Retries after an error of the task are not counted. Where a fault says *no re-run*,
  its record explains nothing.
- **recovery:** seconds from the fault to the next start of a job that it interrupted.
- A verdict is *unknown* when too little happened to prove anything.
"""
# Figures of a verdict that are added up, and the heads of their columns.
COUNTED = {
    "faults": "faults",
    "attempted": "attempted",
    "acknowledged": "acknowledged",
    "ok": "ok",
    "lost": "lost",
    "unexpected": "unexpected",
    "duplicated": "duplicated",
    "recovered": "recovered",
    "explained": "re-runs: explained",
    "unexplained": "unexplained",
}
COLUMNS = ("fault", *COUNTED.values(), "recovery p50", "max", "verdict")


def exit_code(cells: Sequence[Cell]) -> int:
    """Return 0 if all held, 1 if one broke, 2 if unknown.

    A fault that was not run is neither.
    """
    codes = {cell.verdict.code for cell in cells if cell.verdict is not None}
    if BROKEN in codes:
        return BROKEN
    return UNKNOWN if UNKNOWN in codes or not codes else HELD


def facts(seed: int, seconds: float) -> dict[str, Any]:
    """Return where and how it was run."""
    return {
        "commit": commit(),
        "machine": f"{platform.system()} {platform.release()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "seed": seed,
        "seconds_per_cell": seconds,
    }


def as_json(cells: Sequence[Cell], run: dict[str, Any], planned: int) -> str:
    told = {
        **run,
        "cut_short": len(cells) < planned,
        "cells_planned": planned,
        "exit_code": STOPPED if len(cells) < planned else exit_code(cells),
        "cells": [as_dict(cell) for cell in cells],
    }
    return json.dumps(told, indent=1)


def as_dict(cell: Cell) -> dict[str, Any]:
    """Return a cell's figures under the names of the table."""
    told: dict[str, Any] = {"fault": cell.fault.name, "what": cell.fault.what}
    if cell.verdict is None:
        return {**told, "verdict": "not run", "needs": cell.not_run}
    figures = asdict(cell.verdict)
    del figures["recovery"]  # as long as the run; its summary is reported instead
    return {
        **told,
        "verdict": cell.verdict.word,
        "seconds": round(cell.seconds, 1),
        **figures,
        "recovery_p50": cell.verdict.recovery_p50,
        "recovery_max": cell.verdict.recovery_max,
    }


def as_page(cells: Sequence[Cell], run: dict[str, Any], planned: int) -> str:
    """Return the page for the docs."""
    told = [f"{name.replace('_', ' ')} {value}" for name, value in run.items()]
    lines = [HEAD, f"Run: {', '.join(told)}.", ""]
    if len(cells) < planned:
        left_out = "the others were not played, or not to their end."
        lines += [
            f"**Cut short** after {len(cells)} of {planned} cells: {left_out}",
            "",
        ]
    lines += [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    ran = {cell.fault.name: cell.verdict for cell in cells if cell.verdict is not None}
    lines += [f"| {' | '.join(row(*each))} |" for each in ran.items()]
    lines.append(f"| {' | '.join(total(cells))} |")
    lines += ["", "**Faults:**", ""]
    lines += [f"- `{cell.fault.name}`: {cell.fault.what}" for cell in cells]
    missing = [cell for cell in cells if cell.verdict is None]
    lines += ["", "**Not run:**" + (" none." if not missing else ""), ""]
    lines += [f"- `{cell.fault.name}` needs {cell.not_run}" for cell in missing]
    for name, verdict in ran.items():
        problems = verdict.problems + verdict.too_little
        lines += [f"- `{name}`: {problem}" for problem in problems]
    return "\n".join(lines).rstrip("\n") + "\n" + TAIL


def row(name: str, verdict: Verdict) -> list[str]:
    return [
        name,
        *map(str, counts(verdict)),
        seconds_of(verdict.recovery_p50),
        seconds_of(verdict.recovery_max),
        verdict.word,
    ]


def total(cells: Sequence[Cell]) -> list[str]:
    verdicts = [cell.verdict for cell in cells if cell.verdict is not None]
    sums = [sum(getattr(each, name) for each in verdicts) for name in COUNTED]
    return ["**all**", *map(str, sums), "", "", WORDS[exit_code(cells)]]


def counts(verdict: Verdict) -> list[int]:
    return [getattr(verdict, name) for name in COUNTED]


def seconds_of(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
