"""Hashes of passwords: scrypt, at most two at a time, equally slow for unknown users."""

import asyncio
import hashlib
import hmac

from durio.model.errors import InvalidOption, OperatingError
from durio.ports.clock import Clock
from durio.web.threads import BesideLoop

COST, BLOCK, PARALLEL = 2**14, 8, 1  # 16 MiB for about 50 ms
SALT_BYTES = 16
HASH_BYTES = 32
PASSWORD_CHARS_MIN = 8
PASSWORD_BYTES_MAX = 1024
WAIT_SECONDS_MAX = 10.0

HASHING = BesideLoop(2)
# Compared with when there is no such user. No password has it as its hash.
UNKNOWN_USER = (
    f"scrypt${COST}${BLOCK}${PARALLEL}${'00' * SALT_BYTES}${'00' * HASH_BYTES}"
)


class HashingBusy(OperatingError):
    """More passwords wait to be checked than this process can check."""

    code = "busy"
    http_status = 503


def check_password(password: object) -> str:
    """Return a new password if it can be used; the error does not show it."""
    fits = isinstance(password, str) and len(password) >= PASSWORD_CHARS_MIN
    if not fits or password_bytes(password) is None:
        raise InvalidOption(
            "this password cannot be used",
            cure=f"Give {PASSWORD_CHARS_MIN} characters or more, at most "
            f"{PASSWORD_BYTES_MAX} bytes.",
        )
    return str(password)


def password_bytes(password: object) -> bytes | None:
    """Return the bytes that are hashed; None if they are too many or not text."""
    try:
        raw = str(password).encode()
    except UnicodeEncodeError:
        return None
    return raw if len(raw) <= PASSWORD_BYTES_MAX else None


async def new_hash(clock: Clock, password: str) -> str:
    """Return the text that is stored of a password."""
    salt = clock.secret_bytes(SALT_BYTES)
    found = await hashed(check_password(password), salt)
    return f"scrypt${COST}${BLOCK}${PARALLEL}${salt.hex()}${found.hex()}"


async def is_right(password: str, stored: str | None) -> bool:
    """Whether a password has this hash; without a hash it takes as long, and is False."""
    _, _, _, _, salt, wanted = (stored or UNKNOWN_USER).split("$")
    found = await hashed(password, bytes.fromhex(salt))
    return hmac.compare_digest(found, bytes.fromhex(wanted)) and stored is not None


async def hashed(password: str, salt: bytes) -> bytes:
    raw = password_bytes(password)
    if raw is None:
        raise InvalidOption("the password is too long", cure="Give a shorter one.")
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return await HASHING.run(scrypt, raw, salt)
    except TimeoutError:
        raise HashingBusy(
            "too many passwords are being checked", cure="Try again."
        ) from None


def scrypt(password: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(
        password, salt=salt, n=COST, r=BLOCK, p=PARALLEL, dklen=HASH_BYTES
    )
