"""Checks of this machine and its Python."""

import platform
import resource
from collections.abc import Iterator
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from durio.model.finding import Finding, error, fine, warning
from durio.model.version import __version__
from durio.ports.clock import Clock

FILES_MIN = 1024
ZONES = ("UTC", "Europe/Paris")
# 2026-01-01: a clock before this is wrong.
EARLIEST = 1_767_225_600.0


def python() -> Iterator[Finding]:
    """Report the versions; always fine, because an older Python cannot import this release."""
    found = f"Python {platform.python_version()}, durio {__version__}"
    yield fine("machine.python", f"{found}, {platform.system()}")


def clock(wall_clock: Clock) -> Iterator[Finding]:
    """Report a wall clock that was never set; delays and retention depend on it."""
    now = wall_clock.now()
    if now < EARLIEST:
        evidence = f"the wall clock says {now:.0f} s since 1970, before this release"
        yield error("machine.clock", evidence, "Set the clock, and keep it by NTP.")
    else:
        yield fine("machine.clock", "the wall clock is set")


def open_files() -> Iterator[Finding]:
    """Check the limit of file descriptors, which sockets, children and the store need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    evidence = f"{soft} open files at once"
    if 0 <= soft < FILES_MIN:
        most = "more" if hard == resource.RLIM_INFINITY else f"up to {hard}"
        fix = f"ulimit -n {FILES_MIN} ({most}), or LimitNOFILE= of the unit."
        yield warning("machine.open_files", evidence, fix)
    else:
        yield fine("machine.open_files", evidence)


def time_zones() -> Iterator[Finding]:
    """Check for the table of time zones, which slim images lack."""
    missing: list[str] = []
    for zone in ZONES:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, OSError, ValueError):
            missing.append(zone)
    if missing:
        fix = "Install the package tzdata, by pip or from the system."
        evidence = f"there is no time zone {', '.join(missing)}"
        yield warning("machine.time_zones", evidence, fix)
    else:
        yield fine("machine.time_zones", f"{', '.join(ZONES)} can be loaded")
