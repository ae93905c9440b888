"""A memory limit that the kernel enforces by killing: a control group of either version."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LIMIT_BYTES = 96 << 20
WHAT = "a control group with a memory limit that this user may make"


@contextmanager
def memory_group() -> Iterator[Path | None]:
    """Yield a group: a process in its `cgroup.procs` may use 96 MiB more.

    None if impossible.
    """
    made = make_group()
    try:
        yield made
    finally:
        if made is not None:
            with suppress(OSError):
                made.rmdir()


def make_group() -> Path | None:
    for folder, limit in candidates():
        group = folder / f"durio-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(LIMIT_BYTES))
        except OSError:
            group.rmdir()
            continue
        return group
    return None


def candidates() -> Iterator[tuple[Path, str]]:
    """Yield folders where such a group may be created, and the file for its limit."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            yield Path(f"/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"
            yield Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        elif not controllers:
            here = Path(f"/sys/fs/cgroup{path}")
            with suppress(OSError):
                (here / "cgroup.subtree_control").write_text("+memory")
            yield here, "memory.max"
