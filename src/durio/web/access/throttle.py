"""Limits of failed logins: 5 per account and 20 per address in 5 minutes, in records.

A try is counted before its password is hashed, so that tries at the same time are counted
too; after a success it is taken off again.
"""

import hashlib
import ipaddress
from collections.abc import Callable, Sequence

import msgspec

from durio.model.effects import Effects, Put
from durio.ports.clock import Clock
from durio.ports.records import Record
from durio.ports.store import Store

WINDOW_SECONDS = 300.0
ACCOUNT_TRIES_MAX = 5
ADDRESS_TRIES_MAX = 20
CONFLICTS_MAX = 10
IPV6_PREFIX = 64  # one customer has at least this network

TriesChange = Callable[[Sequence[float]], Sequence[float] | None]

_decoder = msgspec.json.Decoder(list[float])


def throttles_kind(namespace: str) -> str:
    return f"web-throttle:{namespace}"


class Throttle:
    """Counts tries to log in."""

    def __init__(self, store: Store, namespace: str, clock: Clock) -> None:
        self.store = store
        self.kind = throttles_kind(namespace)
        self.clock = clock

    async def begin(self, account: str, address: str) -> float | None:
        """Count a try; return None, or the seconds to wait if it is one too many."""
        wait = await self.count(address_key(address), ADDRESS_TRIES_MAX)
        if wait is not None:
            return wait
        return await self.count(account_key(account), ACCOUNT_TRIES_MAX)

    async def wait_of(self, account: str, address: str) -> float | None:
        """Return the seconds to wait; None if a try is free. Nothing is counted."""
        for key, most in (
            (address_key(address), ADDRESS_TRIES_MAX),
            (account_key(account), ACCOUNT_TRIES_MAX),
        ):
            tries = self.recent(await self.record_of(key))
            if len(tries) >= most:
                return self.wait_after(tries[-most])
        return None

    def wait_after(self, tried_at: float) -> float:
        return max(1.0, tried_at + WINDOW_SECONDS - self.clock.now())

    async def succeed(self, account: str, address: str) -> None:
        """Forget the tries of the account, and one of the address."""
        await self.store.commit(
            Effects(puts=[Put(self.kind, account_key(account), None)])
        )
        await self.change(address_key(address), lambda tries: tries[:-1])

    async def count(self, key: str, most: int) -> float | None:
        now = self.clock.now()
        waits: list[float] = []

        def with_try(tries: Sequence[float]) -> Sequence[float] | None:
            if len(tries) >= most:
                waits.append(self.wait_after(tries[-most]))
                return None
            return [*tries, now]

        if await self.change(key, with_try):
            return None
        return waits[-1] if waits else 1.0

    async def change(self, key: str, change: TriesChange) -> bool:
        """Change the tries of a key; False if the change says None, or others overtake it."""
        for _ in range(CONFLICTS_MAX):
            record = await self.record_of(key)
            changed = change(self.recent(record))
            if changed is None:
                return False
            put = Put(
                self.kind,
                key,
                msgspec.json.encode(list(changed)),
                if_version=0 if record is None else record.version,
                ttl_seconds=WINDOW_SECONDS,
            )
            if (await self.store.commit(Effects(puts=[put]))).conflict is None:
                return True
        return False

    async def record_of(self, key: str) -> Record | None:
        return next(iter(await self.store.records(self.kind, [key])), None)

    def recent(self, record: Record | None) -> list[float]:
        if record is None:
            return []
        since = self.clock.now() - WINDOW_SECONDS
        return [at for at in _decoder.decode(record.body) if at > since]


def account_key(account: str) -> str:
    """Return the key of a name, which need not be that of a user."""
    return "user:" + hashlib.sha256(account.encode("utf-8", "replace")).hexdigest()


def address_key(address: str) -> str:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return "address:unknown"
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ipaddress.ip_network((ip, IPV6_PREFIX), strict=False).network_address
    return f"address:{ip}"
