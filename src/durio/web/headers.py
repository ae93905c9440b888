"""Headers of every answer: no scripts or frames from elsewhere, nothing kept by caches."""

from collections.abc import Sequence

Headers = list[tuple[bytes, bytes]]

POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; font-src 'self'; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors {frames}; require-trusted-types-for 'script'"
)
FIXED: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b""),
]
NO_STORE = (b"cache-control", b"no-store")


def security_headers(embed_in: Sequence[str]) -> Headers:
    """Return the headers; `embed_in` are origins that may show the page in a frame."""
    frames = " ".join(embed_in) or "'none'"
    policy = POLICY.format(frames=frames).encode()
    return [(b"content-security-policy", policy), *FIXED]


def completed(headers: Headers, security: Headers) -> Headers:
    """Return the headers of an answer with ours; a route may choose its own caching."""
    ours = {name for name, _ in security}
    kept = [(name, value) for name, value in headers if name.lower() not in ours]
    names = {name.lower() for name, _ in kept}
    return [*kept, *security, *([] if NO_STORE[0] in names else [NO_STORE])]
