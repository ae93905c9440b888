"""What really happened, as each process saw it: shares nothing with the system under test.

One append-only file per process, one write per line, so that a killed process loses no line
that it wrote. Times are CLOCK_MONOTONIC, which all processes of a machine share.

  start     an attempt began                     enq.invoke  an enqueue is about to be asked
  effect    the task did what it is for          enq.ok      the store has answered for it
  end       the attempt is over                  accepted    the store took the result
  dead      the store took the job as dead
"""

import json
import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE = "LEDGER_FOLDER"

# Descriptors by pid: a forked child begins a file of its own.
_files: dict[int, int] = {}


def note(ev: str, job: str, attempt: int = 0, **more: Any) -> None:
    """Write one whole line before returning."""
    pid = os.getpid()
    if pid not in _files:
        path = Path(os.environ[VARIABLE]) / f"{pid}.jsonl"
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        _files[pid] = os.open(path, flags, 0o600)
    line = {"ev": ev, "job": job, "attempt": attempt, "pid": pid, **more}
    line["mono_ns"] = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    os.write(_files[pid], json.dumps(line).encode() + b"\n")


@dataclass(frozen=True)
class LedgerLine:
    ev: str
    job: str
    attempt: int
    pid: int
    mono_ns: int


class Ledger:
    """All lines of all processes, as they are now."""

    def __init__(self, folder: Path) -> None:
        lines = [line for path in folder.glob("*.jsonl") for line in read(path)]
        self.lines = sorted(lines, key=lambda line: line.mono_ns)

    def of(self, ev: str, *, pid: int | None = None) -> list[LedgerLine]:
        return [
            line
            for line in self.lines
            if line.ev == ev and (pid is None or line.pid == pid)
        ]

    def jobs(self, ev: str, *, pid: int | None = None) -> set[str]:
        return {line.job for line in self.of(ev, pid=pid)}

    def by_job(self, ev: str) -> dict[str, list[LedgerLine]]:
        found: dict[str, list[LedgerLine]] = defaultdict(list)
        for line in self.of(ev):
            found[line.job].append(line)
        return found


def read(path: Path) -> list[LedgerLine]:
    """Return the complete lines of one process; the last may be incomplete."""
    rows = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    return [
        LedgerLine(**{name: row[name] for name in LedgerLine.__annotations__})
        for row in rows
    ]
