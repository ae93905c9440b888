"""Cookies of the dashboard: HttpOnly, for this mount, with the App in the name."""

import hashlib

from starlette.types import Scope

from durio.web.addresses import Origin, header_values
from durio.web.mount import base_address

MOUNT_CHARS = 8


def session_cookie(app: str, scope: Scope) -> str:
    """Return the name of the session's cookie: cookies do not know ports or mounts."""
    return f"durio_{app}_{mount_mark(scope)}"


def login_cookie(app: str, scope: Scope) -> str:
    """Return the name of the cookie with the one-time value of the login form."""
    return f"durio_login_{app}_{mount_mark(scope)}"


def mount_mark(scope: Scope) -> str:
    return hashlib.sha256(base_address(scope).encode()).hexdigest()[:MOUNT_CHARS]


def cookie_of(scope: Scope, name: str) -> str:
    """Return the value of a cookie; empty if it is absent or there twice."""
    found: list[str] = []
    for value in header_values(scope, b"cookie"):
        for part in value.split(";"):
            key, _, text = part.strip().partition("=")
            if key == name:
                found.append(text)
    return found[0] if len(found) == 1 else ""


def set_cookie(scope: Scope, origin: Origin, name: str, value: str) -> str:
    """Return the header that sets a cookie until the browser ends; empty deletes it."""
    parts = [
        f"{name}={value}",
        f"Path={base_address(scope)}",
        "HttpOnly",
        "SameSite=Strict",
        *(["Secure"] if origin.scheme == "https" else []),
        *([] if value else ["Max-Age=0"]),
    ]
    return "; ".join(parts)
