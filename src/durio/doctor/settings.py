"""Checks of settings that are allowed but unwise."""

from collections.abc import Iterator

from durio.model.finding import Finding, error, fine, warning
from durio.model.quantities import format_duration
from durio.model.settings import Settings

LEASE_SECONDS_LOW = 10.0
DEAD_SECONDS_LOW = 3600.0


def heartbeat(settings: Settings) -> Iterator[Finding]:
    """Check that a short disturbance does not make a worker lose its jobs."""
    worker = settings.worker
    evidence = (
        f"lease {format_duration(worker.lease_seconds)}, "
        f"heartbeat every {format_duration(worker.heartbeat_seconds)}"
    )
    name = "settings.heartbeat"
    if worker.lease_seconds < LEASE_SECONDS_LOW:
        fix = f"Make worker.lease_seconds {LEASE_SECONDS_LOW:g} or more."
        yield warning(
            name, f"{evidence}: a slow disk may cost a healthy worker its lease", fix
        )
    else:
        yield fine(name, evidence)


def dead_letters(settings: Settings) -> Iterator[Finding]:
    """Check that dead jobs are kept long enough to be examined."""
    kept = settings.retention
    evidence = f"kept for {format_duration(kept.dead_seconds)}, at least the newest {kept.dead_count}"
    name = "settings.dead_letters"
    fix = "Set retention.dead_seconds to days, retention.dead_count to hundreds."
    if not kept.dead_seconds and not kept.dead_count:
        yield error(name, "dead letters are off: they are deleted at once", fix)
    elif kept.dead_seconds < DEAD_SECONDS_LOW:
        yield warning(name, evidence, fix)
    else:
        yield fine(name, evidence)
