"""A ledger that shares nothing with the store: each process records its events in a file.

There is one append-only file per process and one write per line, so a process that is
killed loses no line that it wrote. Times come from the monotonic clock, which all processes
of a host share, so lines of different files can be put in order.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

LINE_BYTES_MAX = 4096  # the kernel does not split a short append


class LedgerLineKind:
    ENQUEUED = "enq.ok"  # the store has acknowledged this job
    REPEATED = "enq.same"  # the store returned an older job with the same key
    REFUSED = "enq.full"  # the queue was full and the job was not stored
    CANCELLED = "cancel.ok"  # the store accepted a cancel
    STARTED = "start"
    EFFECT = "effect"  # the task did its work; its last action
    FAILED = "fail"  # the task raised
    CRASHING = "crash"  # the task is about to crash its process
    RETRIED = "retry"  # the store recorded the failure and will retry
    FINISHED = "end.ok"  # the store recorded the end; `state` says which
    KILLING = "nemesis.begin"  # written before the kill, by the process that kills
    KILLED = "nemesis.end"


class LedgerLine(msgspec.Struct, frozen=True, omit_defaults=True):
    n: int  # line number in its file
    pid: int
    mono_ns: int
    ev: str
    job: str = ""
    task: str = ""
    state: str = ""
    attempt: int = 0
    reason: str = ""  # of a dead job
    victim: int = 0
    parent: int = (
        0  # parent of the process that wrote the line: a child dies with its worker
    )


class Ledger:
    """The file of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1
        self._pid = 0
        self._parent = 0
        self._lines = 0

    def write(self, kind: str, **fields: Any) -> None:
        """Write a whole line before returning."""
        pid = os.getpid()
        if pid != self._pid:  # the first line, or the first in a forked child
            self._pid, self._lines, self._parent = pid, 0, os.getppid()
            flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
            path = self._folder / f"{pid}.jsonl"
            self._descriptor = os.open(path, flags, 0o600)
        self._lines += 1
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        entry = LedgerLine(
            n=self._lines,
            pid=pid,
            mono_ns=now,
            ev=kind,
            parent=self._parent,
            **fields,
        )
        os.write(self._descriptor, msgspec.json.encode(entry)[:LINE_BYTES_MAX] + b"\n")

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._pid = -1, 0


def read_ledger(folder: Path) -> list[LedgerLine]:
    """Return all lines of all processes, ordered by time."""
    entries = [
        entry for path in folder.glob("*.jsonl") for entry in read_ledger_file(path)
    ]
    return sorted(entries, key=lambda entry: entry.mono_ns)


def read_ledger_file(path: Path) -> Iterable[LedgerLine]:
    """Yield the complete lines of one process; the last one may be incomplete."""
    lines = path.read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=LedgerLine) for line in lines]
