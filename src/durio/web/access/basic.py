"""HTTP Basic with the same users, for programs that know nothing else; off by default."""

import base64
import binascii
import hashlib

from durio.ports.clock import Clock
from durio.web.access.passwords import is_right, password_bytes
from durio.web.access.throttle import Throttle
from durio.web.access.users import StoredUser, Users
from durio.web.problems import Refusal

KNOWN_SECONDS = 1.0  # a password that was right is not hashed again for this time
KNOWN_MAX = 256


class BasicLogin:
    """Checks the user name and the password of each request."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        # Digest of a header -> until when, and for which stored hash, it is right.
        self.known: dict[bytes, tuple[float, str]] = {}

    async def user_of(
        self, value: str, address: str, users: Users, throttle: Throttle
    ) -> StoredUser | None:
        """Return the user of an `Authorization: Basic` value."""
        pair = decoded(value)
        if pair is None or password_bytes(pair[1]) is None:
            return None
        name, password = pair
        found = await users.find(name)
        stored = None if found is None else found.user
        key = hashlib.sha256(value.encode()).digest()
        until, hashed = self.known.get(key, (0.0, ""))
        if stored is not None and hashed == stored.password and self.now() < until:
            return stored
        wait = await throttle.wait_of(name, address)
        if wait is not None:
            raise too_many_tries(wait)
        if await is_right(password, None if stored is None else stored.password):
            self.remember(key, stored)
            return stored
        await throttle.begin(name, address)
        return None

    def remember(self, key: bytes, stored: StoredUser | None) -> None:
        if stored is None:
            return
        if len(self.known) >= KNOWN_MAX:
            self.known.clear()
        self.known[key] = (self.now() + KNOWN_SECONDS, stored.password)

    def now(self) -> float:
        return self.clock.monotonic()


def decoded(value: str) -> tuple[str, str] | None:
    try:
        name, colon, password = (
            base64.b64decode(value, validate=True).decode().partition(":")
        )
    except (binascii.Error, ValueError):
        return None
    return (name, password) if colon else None


def too_many_tries(wait_seconds: float) -> Refusal:
    return Refusal(
        429,
        "too_many_tries",
        "too many failed logins",
        f"Wait {wait_seconds:.0f} s.",
        headers={"Retry-After": f"{wait_seconds:.0f}"},
    )
