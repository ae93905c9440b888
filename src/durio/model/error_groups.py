"""Groups of errors that have one cause: their fingerprint, and what is counted of them.

A fingerprint is a hash of the type of an error and of the frames of the user's code: the
last two parts of each file's path and the function, without line numbers. So a group stays
the same on other machines, and in a version in which other lines of the file have changed.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from durio.model.effects import Put
from durio.model.failure import HIDDEN, failures
from durio.model.job import StoredJob
from durio.model.settings import DAY

GROUPS_MAX = 1_000  # of one App; errors of further groups are counted as OTHERS
NAMES_MAX = 50  # of tasks, versions and hosts that a group counts by name
FRAMES_MAX = 20
KEPT_SECONDS = 30 * DAY  # after the last error of the group
OTHERS = "others"  # fingerprint of the group that takes the errors of further groups
ELSEWHERE = ""  # counts what is beyond NAMES_MAX
UNKNOWN_VERSION = "unknown"

TRACEBACK_START = "Traceback (most recent call last):"
FRAME_LINE = re.compile(r'File "([^"]+)", line \d+, in (.+)')
# Frames of Python itself and of installed packages.
NOT_OF_THE_USER = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<frozen ")
VARIABLE_PART = re.compile(r"0x[0-9a-fA-F]+|\d+")


class ErrorOccurrence(NamedTuple):
    """One failed attempt, for the group of its error."""

    fingerprint: str
    frames: tuple[str, ...]
    type: str
    message: str
    at: float
    task: str
    version: str
    host: str
    job: str
    is_dead: bool  # the job is dead because of it


class Mute(msgspec.Struct, frozen=True):
    """Who has muted a group, and why."""

    by: str
    at: float
    reason: str | None = None


class ErrorGroup(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is counted of the errors with one fingerprint."""

    type: str
    message: str  # of the last one
    frames: tuple[str, ...]
    first_at: float
    last_at: float
    last_job: str
    failed: int = 0  # attempts
    dead: int = 0  # jobs
    tasks: dict[str, int] = {}
    versions: dict[str, int] = {}
    hosts: dict[str, int] = {}
    mute: Mute | None = None

    def with_occurrences(self, new: Sequence[ErrorOccurrence]) -> "ErrorGroup":
        """Return the group with these failed attempts counted."""
        last = max(new, key=lambda one: one.at)
        is_newer = last.at >= self.last_at
        return replace(
            self,
            message=last.message if is_newer else self.message,
            last_job=last.job if is_newer else self.last_job,
            first_at=min(self.first_at, *(one.at for one in new)),
            last_at=max(self.last_at, last.at),
            failed=self.failed + len(new),
            dead=self.dead + sum(one.is_dead for one in new),
            tasks=counted_too(self.tasks, [one.task for one in new]),
            versions=counted_too(self.versions, [one.version for one in new]),
            hosts=counted_too(self.hosts, [one.host for one in new]),
        )


def new_group(new: Sequence[ErrorOccurrence], fingerprint: str) -> ErrorGroup:
    """Return a group of these errors only."""
    first = new[0]
    is_others = fingerprint == OTHERS
    return ErrorGroup(
        type=f"{OTHERS}: more than {GROUPS_MAX} groups" if is_others else first.type,
        message="",
        frames=() if is_others else first.frames,
        first_at=first.at,
        last_at=first.at,
        last_job=first.job,
    ).with_occurrences(new)


def counted_too(counts: Mapping[str, int], names: Sequence[str]) -> dict[str, int]:
    """Return the counts with these names added; new ones beyond NAMES_MAX as ELSEWHERE."""
    found = dict(counts)
    for name in names:
        is_counted = name in found or len(found) < NAMES_MAX
        key = name if is_counted else ELSEWHERE
        found[key] = found.get(key, 0) + 1
    return found


# --- fingerprints


def fingerprint_of(
    error_type: str, message: str, traceback: str, task: str
) -> tuple[str, tuple[str, ...]]:
    """Return the fingerprint of an error and the frames that it is made of.

    An error without frames of the user's code, such as a time limit or a lost process, is
    told apart by its task and by its message without numbers.
    """
    frames = user_frames(traceback)
    known = frames or (task, VARIABLE_PART.sub("N", message))
    text = "\n".join((error_type, *known))
    return blake2b(text.encode(), digest_size=6).hexdigest(), frames


def user_frames(traceback: str) -> tuple[str, ...]:
    """Return the frames of the last exception in the user's code, normalised, outermost first."""
    last = traceback[traceback.rfind(TRACEBACK_START) + 1 :]
    found: dict[str, None] = {}  # a frame of a recursion once
    for path, function in FRAME_LINE.findall(last):
        if path != HIDDEN and not NOT_OF_THE_USER.search(path):
            found[f"{'/'.join(path.split('/')[-2:])} in {function}"] = None
    return tuple(found)[-FRAMES_MAX:]


def group_of_job(job: StoredJob) -> str | None:
    """Return the fingerprint of the last error of a job; None if it has none."""
    for last in failures(job.errors)[-1:]:
        return fingerprint_of(last.type, last.message, last.traceback, job.task)[0]
    return None


# --- as records


def errors_kind(namespace: str) -> str:
    """Return the kind of an App's groups of errors; each record has its fingerprint as name."""
    return f"error:{namespace}"


def load_group(body: bytes) -> ErrorGroup:
    return msgspec.json.decode(body, type=ErrorGroup)


def group_put(namespace: str, fingerprint: str, group: ErrorGroup, version: int) -> Put:
    """Return the write of a group over this version; 0: it is new."""
    body = msgspec.json.encode(group)
    return Put(
        errors_kind(namespace),
        fingerprint,
        body,
        if_version=version,
        ttl_seconds=KEPT_SECONDS,
    )
