"""Faults of the machine: files, disk, clock, wakeups, locks, retention."""

import os
import resource
import subprocess
from contextlib import suppress
from pathlib import Path

from durio.model.job import DONE
from tests.e2e.chaos.cell import Fault
from tests.e2e.chaos.field import Field, until
from tests.e2e.chaos.jobs import CLOCK
from tests.e2e.chaos.judge import Wanted
from tests.e2e.chaos.kill_faults import SLOWLY
from tests.e2e.chaos.process_faults import QUICK
from tests.e2e.workers import reading

DISK_BYTES = 24 << 20
BLOCK_BYTES = 64 << 10
HOUR = 3600
FILES = 1024


# --- file descriptors


def exhaust_files(field: Field) -> None:
    """Use up the descriptors of a worker, and of one that is just starting, for a while."""
    victims = [field.victim().pid]
    if len(field.workers) == field.size:
        field.workers.append(field.begin_worker())
        victims.append(field.workers[-1].pid)
    with field.disturbed("fd-exhaustion"):
        for pid in victims:
            limit_files(pid, field.rng.randint(8, 16))
        for _ in range(field.size):
            field.ask("open_a_file")
        field.sleep(1.0, 3.0)
        for pid in victims:
            limit_files(pid, FILES)


def limit_files(pid: int, files: int) -> None:
    with suppress(ProcessLookupError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(files, hard), hard))


# --- disk


def lacks_mount() -> str:
    if os.geteuid() != 0:
        return "a tmpfs, which only root may mount"
    probe = Path(f"/tmp/durio-chaos-{os.getpid()}")  # noqa: S108 - removed at once
    probe.mkdir()
    try:
        return "" if mount(probe) else "a tmpfs that may be mounted here"
    finally:
        unmount(probe)
        probe.rmdir()


def mount(folder: Path) -> bool:
    options = f"size={DISK_BYTES},mode=700"
    command = ["mount", "-t", "tmpfs", "-o", options, "durio-chaos", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(folder: Path) -> None:
    subprocess.run(["umount", str(folder)], capture_output=True, check=False)


def lay_small_disk(field: Field) -> None:
    disk = field.folder / "disk"
    disk.mkdir()
    assert mount(disk), "it worked a moment ago"
    field.state["disk"] = disk
    field.move_to(disk)


def fill_disk(field: Field) -> None:
    """Fill the disk completely, even for longer than a lease, so that no lease is renewed.

    Between two such times all workers can renew. A worker that cannot, while others do,
    must consider itself dead, and then its jobs run again with good reason.
    """
    filler = field.state["disk"] / "filler"
    with field.disturbed("disk-full"):
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * BLOCK_BYTES)
        field.sleep(1.0, 4.0)
        filler.unlink()
    field.sleep(2.0, 2.5)


def drop_disk(field: Field) -> None:
    """Remove the disk once its processes have ended: a cell heals twice, during and after."""
    if all(process.exit_code is not None for process in field.all_processes):
        unmount(field.state["disk"])


# --- clock


def lay_clock(field: Field) -> None:
    field.state["clock"] = field.folder / "clock"
    set_clock(field, 0)
    field.extra[CLOCK] = str(field.state["clock"])


def jump_clock(field: Field) -> None:
    """Set the clock by up to an hour for all processes; no job may run twice."""
    with field.disturbed("clock-jump"):
        set_clock(field, field.rng.choice([-HOUR, -60, -5, 0, 5, 60, HOUR]))
        field.sleep(1.0, 2.0)


def set_clock(field: Field, seconds: int) -> None:
    fresh = field.state["clock"].with_suffix(".new")
    fresh.write_text(str(seconds))
    fresh.replace(field.state["clock"])


def catch_up(field: Field) -> None:
    """Advance to the latest time: a retry that was scheduled then waits for it."""
    set_clock(field, HOUR)


# --- wakeups, locks, readers, retention


def remove_wakeups(field: Field) -> None:
    """Remove the wakeup sockets: every worker has to poll, and must still find jobs."""
    with field.disturbed("bell-removed"):
        for bell in Path(f"{field.path}-durio").glob("*.bell"):
            bell.unlink(missing_ok=True)
        field.sleep(1.0, 2.0)


def hold_writer_lock(field: Field) -> None:
    """Hold the writers' lock in another program, for longer than a lease."""
    with field.disturbed("writer-lock-held"), field.writer_lock():
        field.sleep(1.0, 4.0)


def hold_snapshot(field: Field) -> None:
    """Keep a read open, so that the log cannot be shortened."""
    with field.disturbed("long-reader"), reading(field.path) as db:
        db.execute("begin")
        db.execute("select count(*) from job").fetchall()
        field.sleep(2.0, 4.0)
        db.execute("rollback")


def lay_retention(field: Field) -> None:
    field.extra["DURIO_RETENTION__DONE_SECONDS"] = "0.5"


def delete_final_jobs(field: Field) -> None:
    """Delete final jobs under load; live ones are never deleted."""

    def final() -> set[tuple[bytes]]:
        return set(field.select("select id from job where state >= ?", DONE))

    with field.disturbed("retention-pressure"):
        before = until(final, 30, "jobs are final")
        until(lambda: before - final(), 30, "final jobs are deleted")


MACHINE_FAULTS = [
    Fault("fd-exhaustion", "no file descriptor left: no re-run", exhaust_files),
    Fault(
        "disk-full",
        "a full disk, also for longer than a lease",
        fill_disk,
        lay=lay_small_disk,
        heal=drop_disk,
        missing=lacks_mount,
        settings=QUICK,
    ),
    Fault(
        "clock-jump",
        "wall clock jumps by up to an hour: no re-run",
        jump_clock,
        lay=lay_clock,
        heal=catch_up,
    ),
    Fault("bell-removed", "wakeup sockets are deleted: no re-run", remove_wakeups),
    Fault(
        "writer-lock-held",
        "another program holds the writers' lock: no re-run",
        hold_writer_lock,
        settings=QUICK,
    ),
    Fault("long-reader", "a read transaction that does not end", hold_snapshot),
    Fault(
        "retention-pressure",
        "final jobs are deleted at once, under load: no re-run",
        delete_final_jobs,
        lay=lay_retention,
        pause=SLOWLY,
        wanted=Wanted(prunes=True),
    ),
]
