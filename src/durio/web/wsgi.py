"""The dashboard for WSGI servers: each request runs on the App's own event loop.

That loop has a thread of its own, which starts on first use and again after a fork. There are
no streams: an answer is sent when it is whole, and the page polls.
"""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Scope

from durio.web.body import BODY_BYTES_MAX

if TYPE_CHECKING:
    from durio.app.app import App

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
WITHOUT_STREAMS = "durio.without_streams"  # in the scope of such a request
HTTP = "HTTP_"


class WsgiDashboard:
    """Answers WSGI requests with an ASGI application."""

    def __init__(self, app: "App", asgi: ASGIApp) -> None:
        self.app = app
        self.asgi = asgi

    def __call__(
        self, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Answer one request."""
        body = read_input(environ)
        started: list[Message] = []
        parts: list[bytes] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)
            else:
                parts.append(message.get("body", b""))

        async def answer() -> None:
            await self.asgi(scope_of(environ), receive, send)

        self.app.run_sync(answer())
        status = HTTPStatus(started[0]["status"])
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in started[0]["headers"]
        ]
        start_response(f"{status.value} {status.phrase}", headers)
        return parts


def scope_of(environ: Environ) -> Scope:
    """Return the ASGI scope of a WSGI request."""
    root = text_of(environ.get("SCRIPT_NAME", ""))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": environ["REQUEST_METHOD"],
        "scheme": environ.get("wsgi.url_scheme", "http"),
        "path": root + text_of(environ.get("PATH_INFO", "")),
        "root_path": root,
        "query_string": environ.get("QUERY_STRING", "").encode("latin-1"),
        "headers": list(headers_of(environ)),
        "client": (environ.get("REMOTE_ADDR", ""), 0),
        "wsgi.environ": environ,  # for a hook of the host application
        WITHOUT_STREAMS: True,
    }


def headers_of(environ: Environ) -> Iterable[tuple[bytes, bytes]]:
    for key, value in environ.items():
        if key.startswith(HTTP):
            name = key.removeprefix(HTTP)
        elif key in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
            name = key
        else:
            continue
        yield name.replace("_", "-").lower().encode("latin-1"), value.encode("latin-1")


def text_of(value: str) -> str:
    """Decode a path, which WSGI gives as latin-1 of its bytes."""
    return value.encode("latin-1").decode("utf-8", "replace")


def read_input(environ: Environ) -> bytes:
    """Read the body, at most one byte more than the guard accepts."""
    length = str(environ.get("CONTENT_LENGTH") or "")
    if length.isdecimal():
        most = min(int(length[:20]), BODY_BYTES_MAX + 1)
    else:
        most = BODY_BYTES_MAX + 1 if environ.get("wsgi.input_terminated") else 0
    return environ["wsgi.input"].read(most) if most else b""
