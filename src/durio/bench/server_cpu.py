"""CPU time of a PostgreSQL server on this host, read from /proc.

The postmaster is the parent of every process of the server: one backend per connection,
the wal writer, the background writer, the checkpointer and a few more. The kernel adds the
time of an ended process to its parent, so the sum over postmaster and children never falls.
"""

import os
from pathlib import Path

from durio.host.processes import cpu_seconds_of

PROC = Path("/proc")
PROGRAMS = {"postgres", "postmaster"}
# Fields of /proc/PID/stat, counted after the program's name.
PARENT, ENDED_USER, ENDED_SYSTEM = 1, 13, 14


def postmaster_of(pid: int) -> int | None:
    """Return the parent of a process of the server; None if it is not on this host."""
    try:
        # A server in a container has its own process ids: the id may be another program's
        # here.
        if (PROC / str(pid) / "comm").read_text().strip() not in PROGRAMS:
            return None
        return int(stat_fields(pid)[PARENT])
    except (OSError, ValueError, IndexError):
        return None


def server_cpu_seconds(postmaster: int) -> float | None:
    """Return user and system time of the server so far; None if it cannot be read."""
    try:
        stat = stat_fields(postmaster)
    except OSError:
        return None
    ended = (int(stat[ENDED_USER]) + int(stat[ENDED_SYSTEM])) / os.sysconf("SC_CLK_TCK")
    return ended + sum(map(run_seconds, [postmaster, *children_of(postmaster)]))


def children_of(parent: int) -> list[int]:
    found: list[int] = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            pid = int(entry.name)
            try:
                if int(stat_fields(pid)[PARENT]) == parent:
                    found.append(pid)
            except OSError:
                continue  # the process has ended since the folder was listed
    return found


def run_seconds(pid: int) -> float:
    """Return user and system time of a process with one thread; 0 if it has just ended."""
    try:
        # Nanoseconds. The fields of `stat` are in ticks, which are usually 10 ms.
        return int((PROC / str(pid) / "schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):  # a kernel without this file
        return cpu_seconds_of(pid) or 0.0


def stat_fields(pid: int) -> list[str]:
    # The name is in parentheses and may contain any character.
    text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()
