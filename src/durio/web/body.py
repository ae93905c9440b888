"""Read the body of a request, up to a limit, and hand it on as a whole."""

from starlette.types import Message, Receive, Scope

from durio.web.addresses import header_values
from durio.web.problems import Refusal

BODY_BYTES_MAX = 1024 * 1024 + 64 * 1024


async def read_body(
    scope: Scope, receive: Receive, most: int = BODY_BYTES_MAX
) -> bytes:
    """Return the body; refuse one that is compressed or too long."""
    check_length(scope, most)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise too_long(most)
        if not message.get("more_body", False):
            return b"".join(parts)


def check_length(scope: Scope, most: int) -> None:
    """Refuse by the headers, before anything is read."""
    if any(value.strip() for value in header_values(scope, b"content-encoding")):
        raise Refusal(
            415, "content_encoding", "the body is compressed", "Send it uncompressed."
        )
    for length in header_values(scope, b"content-length"):
        if not length.isdecimal():
            raise Refusal(400, "invalid_length", "Content-Length is not a number")
        if int(length[:20]) > most:
            raise too_long(most)


class Disconnected(Exception):
    """The client went away before its request was read."""


def too_long(most: int) -> Refusal:
    return Refusal(
        413, "body_too_large", f"the body is longer than {most} bytes", "Send less."
    )


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body, then what follows."""
    is_given = False

    async def again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
