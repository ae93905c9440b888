"""Cursors that belong to one query: one of another query, or a changed one, is refused."""

import base64
import binascii
import hashlib

from durio.web.problems import Refusal

CHECK_BYTES = 9


def cursor_of(query: str, inner: str | None) -> str | None:
    """Return the cursor of the store with a check of the query that it continues."""
    if inner is None:
        return None
    raw = check_of(query, inner) + inner.encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def continued(query: str, cursor: str | None) -> str | None:
    """Return the cursor of the store; refuse one that is not of this query."""
    if not cursor:
        return None
    try:
        raw = base64.b64decode(
            cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True
        )
        check, inner = raw[:CHECK_BYTES], raw[CHECK_BYTES:].decode()
    except (ValueError, binascii.Error):
        raise wrong_cursor() from None
    if check != check_of(query, inner):
        raise wrong_cursor()
    return inner


def check_of(query: str, inner: str) -> bytes:
    return hashlib.sha256(f"{query}\0{inner}".encode()).digest()[:CHECK_BYTES]


def wrong_cursor() -> Refusal:
    return Refusal(
        400,
        "invalid_cursor",
        "the cursor is not of this query",
        "Begin again without a cursor.",
    )
