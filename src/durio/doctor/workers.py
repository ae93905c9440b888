"""Checks of the workers of a store."""

from collections.abc import Iterator

from durio.doctor.snapshot import StoreSnapshot
from durio.model.finding import Finding, error, fine, warning
from durio.model.quantities import counted
from durio.model.version import __version__


def leases(snapshot: StoreSnapshot) -> Iterator[Finding]:
    """Report workers whose lease has ended and whose jobs are not rescued yet."""
    name = "workers.leases"
    over = [row for row in snapshot.workers if row.lease_seconds_left <= 0]
    if not over:
        yield fine(name, f"{len(snapshot.live_workers)} alive, no expired lease")
        return
    evidence = ", ".join(
        f"{row.info['name']} ({row.lease_text()}, {counted(row.running, 'job')})"
        for row in over
    )
    if snapshot.live_workers:
        fix = "Its jobs are taken back within seconds. If it stays: see its log."
        yield warning(name, evidence, fix)
    else:
        fix = "Start a worker: it takes the jobs back."
        yield error(name, f"{evidence}; and no other worker is alive", fix)


def versions(snapshot: StoreSnapshot) -> Iterator[Finding]:
    """Report several releases on one store: fine during a deploy, but not for a week."""
    name = "workers.versions"
    found = sorted({str(row.info["version"]) for row in snapshot.live_workers})
    if len(found) > 1:
        fix = "Finish the deploy: restart the workers of the older release."
        yield warning(name, f"workers of several releases: {', '.join(found)}", fix)
    elif found and found != [__version__]:
        fix = "Restart the workers, or use their release here."
        yield warning(name, f"workers run {found[0]}, this is {__version__}", fix)
    else:
        yield fine(name, f"all workers run {__version__}" if found else "none at work")


def durability(snapshot: StoreSnapshot) -> Iterator[Finding]:
    """Report workers that do not wait for the disk, which weakens the guarantees of all."""
    name = "workers.synchronous"
    found = sorted(
        (str(row.info["name"]), str(row.info["synchronous"]))
        for row in snapshot.live_workers
        if "synchronous" in row.info
    )
    kinds = {kind for _, kind in found}
    if len(kinds) > 1:
        evidence = ", ".join(f"{worker}: {kind}" for worker, kind in found)
        fix = "Give all of them the same URL: ?synchronous= must agree."
        yield warning(
            name, f"workers on one file differ in durability: {evidence}", fix
        )
    elif "normal" in kinds:
        fix = "Leave ?synchronous=normal out, unless losing the last jobs is fine."
        yield warning(name, "a power cut may lose acknowledged jobs", fix)
    else:
        yield fine(name, "all sync each commit to disk" if found else "none at work")


CHECKS = {
    "workers.leases": leases,
    "workers.versions": versions,
    "workers.synchronous": durability,
}
