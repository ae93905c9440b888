"""Locks and `once` keys as records: who holds one, for how long, and what errors say."""

import msgspec
from msgspec.structs import replace

from durio.model.errors import InvalidOption, LockTimeout
from durio.model.names import check_key
from durio.model.quantities import Duration, format_duration, seconds

HELD_SECONDS = 30.0  # without a renewal a record is free after this time
RENEWAL_SECONDS = 5.0
WAIT_DEFAULT_SECONDS = 5.0
ONCE_DEFAULT_SECONDS = 86400.0


class LockHolder(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Who holds a lock or a key of `once`, as the record has it."""

    worker: str  # the process, `host/pid`
    id: str = ""  # of this one use of the lock
    since: float = 0.0  # seconds since 1970
    job: str | None = None
    task: str | None = None
    is_done: bool = False  # of `once`: its block has succeeded

    def in_words(self) -> str:
        if self.job is None:
            return f"process {self.worker}"
        return f"job {self.job} ({self.task}) on {self.worker}"


_decoder = msgspec.json.Decoder(LockHolder)
NOBODY_KNOWN = LockHolder(worker="unknown")


def locks_kind(namespace: str) -> str:
    return f"lock:{namespace}"


def once_kind(namespace: str) -> str:
    return f"once:{namespace}"


def new_holder_body(
    holder: LockHolder, use: bytes, now: float, *, is_done: bool
) -> bytes:
    """Return the body of a record for a new use by this holder."""
    new = replace(holder, id=use.hex(), since=now, is_done=is_done)
    return msgspec.json.encode(new)


def load_holder(body: bytes) -> LockHolder:
    """Return the holder of a record; one that another release wrote may be unknown."""
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError:
        return NOBODY_KNOWN


def checked_ttl(ttl: Duration) -> float:
    """Return the ttl of `once` in seconds; refuse one that keeps nothing."""
    span = seconds(ttl, "ttl")
    if span <= 0:
        raise InvalidOption(
            f"ttl cannot be {ttl!r}: the key would be free at once",
            cure="Give the time for which the work counts as done, such as '24h'.",
        )
    return span


def checked_lock_name(name: str) -> str:
    return check_key(name, "the name of a lock or a key of once")


def lock_timeout(
    name: str, holder: LockHolder, *, token: int, now: float, waited_seconds: float
) -> LockTimeout:
    """Return the error of a wait that was too short."""
    age = max(0.0, now - holder.since)
    return LockTimeout(
        f"lock {name!r} has been held by {holder.in_words()} for {format_duration(age)} "
        f"(token {token}); waited {format_duration(waited_seconds)}",
        cure="Wait longer with wait=, or raise Snooze('30s') to give the slot to others "
        "meanwhile.",
        name=name,
        job=holder.job,
        worker=holder.worker,
        age_seconds=age,
        token=token,
    )
