"""Idempotency keys: what an enqueue does, by policy and state of the key's holder.

`key_answer` is one pure table for every store. A key belongs to one task of one
namespace and is stored as a hash. `while_waiting` releases it at the first claim,
`while_active` and `replace` at the final state, `window` when its time is over and its
job is final.
"""

import hashlib
from enum import Enum
from typing import NamedTuple

import msgspec

from durio.model.job import KeyClaim, State
from durio.model.quantities import Duration, seconds

WAITING, ACTIVE, WINDOW, REPLACE = range(4)
WINDOW_DEFAULT_SECONDS = 86400.0


class KeyPolicy(msgspec.Struct, frozen=True):
    """A policy for `options(key=..., unique=...)`: how long a key holds.

    Use one of the values and functions of `durio.keys`.
    """

    __module__ = "durio.keys"

    name: str
    mode: int  # the number that stores use
    ttl_seconds: float = 0.0
    delay_seconds: float = 0.0


# One job per key waits; the key is free when the job starts. A second enqueue returns the
# handle of the job that waits.
while_waiting = KeyPolicy("while_waiting", WAITING)
# One job per key waits or runs; the key is free when the job has ended. A second enqueue
# returns the handle of that job.
while_active = KeyPolicy("while_active", ACTIVE)
# A second enqueue gives the job that waits the new arguments and due time.
replace = KeyPolicy("replace", REPLACE)


def window(ttl: Duration = WINDOW_DEFAULT_SECONDS) -> KeyPolicy:
    """Return a policy that allows one job per key within `ttl` (default 24 hours).

    A second enqueue returns the handle of that job, also after it is done. With other
    arguments it raises KeyConflict.
    """
    return KeyPolicy("window", WINDOW, ttl_seconds=seconds(ttl, "window"))


def debounce(delay: Duration, max_wait: Duration | None = None) -> KeyPolicy:
    """Return a policy that runs one job, `delay` after the last enqueue with its key.

    The job has the arguments of the last enqueue. With `max_wait` it runs at the latest
    that long after the first enqueue.
    """
    waits = seconds(delay, "debounce")
    limit = 0.0 if max_wait is None else seconds(max_wait, "debounce max_wait")
    return KeyPolicy("debounce", REPLACE, ttl_seconds=limit, delay_seconds=waits)


def key_claim(policy: KeyPolicy, task: str, key: str, payload: bytes) -> KeyClaim:
    """Return the claim on a key that is sent to the store; `task` includes the namespace."""
    return KeyClaim(
        key=key_hash(task, key),
        mode=policy.mode,
        ttl_seconds=policy.ttl_seconds,
        delay_seconds=policy.delay_seconds,
        digest=payload_digest(payload),
    )


def key_hash(task: str, key: str) -> bytes:
    """Return a key as it is stored: it belongs to one task."""
    return hashlib.blake2b(f"{task}\0{key}".encode(), digest_size=16).digest()


def payload_digest(payload: bytes) -> bytes:
    """Return a digest for comparing arguments: equal digests mean the same arguments."""
    return hashlib.blake2b(payload, digest_size=16).digest()


class KeyHolder(NamedTuple):
    """The job that holds a key; its state is None when the job was deleted."""

    state: State | None
    in_window: bool  # the window has not ended
    same_args: bool


class KeyAnswer(Enum):
    """What an enqueue with a key does."""

    NEW = "new"  # insert, take the key
    EXISTING = "existing"  # write nothing, return the holder
    REWRITE = "rewrite"  # same id, new arguments and due time
    CONFLICT = "conflict"  # other arguments under the same window


WAITING_STATES = frozenset({State.SCHEDULED, State.BLOCKED, State.READY})


def key_answer(mode: int, holder: KeyHolder | None) -> KeyAnswer:
    """Decide what an enqueue does; NEW after a running holder means it takes the key."""
    if holder is None or holder.state is None:
        return KeyAnswer.NEW
    if mode == WINDOW:
        return _window(holder)
    if holder.state in WAITING_STATES:
        return KeyAnswer.REWRITE if mode == REPLACE else KeyAnswer.EXISTING
    if holder.state is State.RUNNING and mode == ACTIVE:
        return KeyAnswer.EXISTING
    return KeyAnswer.NEW


def _window(holder: KeyHolder) -> KeyAnswer:
    final = holder.state is None or holder.state.is_final
    if holder.state is State.CANCELLED or (final and not holder.in_window):
        return KeyAnswer.NEW
    return KeyAnswer.EXISTING if holder.same_args else KeyAnswer.CONFLICT
