"""Read groups of errors, mute them, and find the dead jobs of one."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from durio.model.effects import Effects
from durio.model.error_groups import (
    ELSEWHERE,
    GROUPS_MAX,
    OTHERS,
    ErrorGroup,
    Mute,
    errors_kind,
    group_of_job,
    group_put,
    load_group,
)
from durio.model.errors import ErrorGroupNotFound, UsageError, WrongState
from durio.model.job import DEAD
from durio.ports.browse import Query
from durio.ports.control import AuditNote
from durio.ports.store import Store

DIGITS_MIN = 4
TRIES_MAX = 20  # of a change that workers overtake with new counts
PAGE_JOBS = 200
JOBS_MAX = 10_000  # dead jobs of one group that a command changes


class StoredGroup(NamedTuple):
    """A group of errors of an App."""

    namespace: str
    fingerprint: str
    group: ErrorGroup
    version: int  # of its record


async def list_groups(store: Store, namespace: str) -> list[StoredGroup]:
    """Return the groups of an App, that of the last error first."""
    kind = errors_kind(namespace)
    records = await store.list_records(kind, limit=GROUPS_MAX + 1)
    found = [
        StoredGroup(namespace, r.name, load_group(r.body), r.version) for r in records
    ]
    return sorted(found, key=lambda one: -one.group.last_at)


async def find_group(
    store: Store, namespaces: Sequence[str], fingerprint: str
) -> StoredGroup:
    """Return the group whose fingerprint begins so; raises if there is not exactly one."""
    if len(fingerprint) < DIGITS_MIN:
        raise UsageError(
            f"{fingerprint!r} is too short for the beginning of a fingerprint",
            cure=f"Give at least {DIGITS_MIN} characters of it.",
        )
    found: list[StoredGroup] = []
    for namespace in namespaces:
        records = await store.list_records(
            errors_kind(namespace), prefix=fingerprint.lower(), limit=2
        )
        found += [
            StoredGroup(namespace, r.name, load_group(r.body), r.version)
            for r in records
        ]
    if len(found) > 1:
        raise UsageError(
            f"several fingerprints begin with {fingerprint!r}",
            cure="Give more characters, or name the App: --name NAME.",
        )
    if not found:
        raise ErrorGroupNotFound(
            f"there is no group of errors {fingerprint!r}",
            cure="See: durio errors ls --all. Groups without an error for 30 days are gone.",
        )
    return found[0]


async def mute_group(
    store: Store, found: StoredGroup, mute: Mute | None, by: str, details: str = ""
) -> None:
    """Mute a group, or with None show it again."""
    for _ in range(TRIES_MAX):
        group = replace(found.group, mute=mute)
        put = group_put(found.namespace, found.fingerprint, group, found.version)
        verb = "unmute" if mute is None else "mute"
        target = f"errors {found.fingerprint}"
        note = AuditNote(found.namespace, by, verb, target, details=details)
        answer = await store.commit(Effects(puts=[put]), note=note)
        if answer.conflict is None:
            return
        found = await find_group(store, [found.namespace], found.fingerprint)
    raise WrongState(
        f"group {found.fingerprint} changes all the time: not muted",
        cure="Try again.",
    )


async def dead_jobs_of(store: Store, found: StoredGroup) -> list[bytes]:
    """Return the dead jobs whose last error is of this group, at most JOBS_MAX."""
    if found.fingerprint == OTHERS:
        raise UsageError(
            "the group of further errors has no dead jobs of its own",
            cure="Choose them by filters: durio dead retry --error TEXT.",
        )
    tasks = [None] if ELSEWHERE in found.group.tasks else list(found.group.tasks)
    ids: list[bytes] = []
    for task in tasks:
        query = Query(
            found.namespace, states=(DEAD,), task=task, error=found.group.type
        )
        cursor: str | None = None
        while len(ids) < JOBS_MAX:
            page = await store.find(query, limit=PAGE_JOBS, cursor=cursor)
            ids += [j.id for j in page.jobs if group_of_job(j) == found.fingerprint]
            cursor = page.cursor
            if cursor is None:
                break
    return ids[:JOBS_MAX]
