"""What an App has for its dashboard: `app.dashboard(...)`, to mount in a web application.

The dashboard is loaded on first use: programs that do not mount it need no web framework.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol


class Dashboard(Protocol):
    """The dashboard of an App, as an ASGI application."""

    @property
    def wsgi(self) -> Callable[..., Iterable[bytes]]:
        """The same as a WSGI application: without streams, so the page polls."""
        ...

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        ...

    def asgi_at(self, path: str, other: Callable[..., Any]) -> Callable[..., Any]:
        """Return an ASGI application with the dashboard at a path of another one."""
        ...

    def wsgi_at(self, path: str, other: Callable[..., Any]) -> Callable[..., Any]:
        """Return a WSGI application with the dashboard at a path of another one."""
        ...


class MountingApp:
    """The part of an App that makes its dashboard."""

    def dashboard(  # noqa: PLR0913 - the choices of a dashboard, all keywords
        self,
        *,
        # Says who sends a request: `f(request)` returns a `durio.web.User`, or None. It may
        # be async, is asked on every request and has 2 s; an error in it is a refusal.
        # Users and tokens of `durio users` and `durio tokens` work too.
        auth: Callable[..., Any] | None = None,
        title: str = "Durio",  # of the page
        # A word and a colour that say which environment this is: `("live", "#c00")`.
        badge: tuple[str, str] | None = None,
        # Links to logs and traces by name: `{"logs": "https://logs.example.com/?job={id}"}`.
        links: Mapping[str, str] | None = None,
        # Hides fields: `f(task, name, value)` returns what is shown for the `args`,
        # `kwargs`, `meta` or `result` of a job. An error in it, or 50 ms, hides them all.
        mask: Callable[[str, str, Any], Any] | None = None,
        embed_in: Sequence[str] = (),  # origins whose pages may show it in a frame
        # Addresses or networks whose X-Forwarded-* headers count.
        trusted_proxies: Sequence[str] = (),
        basic: bool = False,  # take HTTP Basic with the users of `durio users` too
        read_only: bool = False,  # change nothing
    ) -> Dashboard:
        """Return the dashboard, an ASGI application to mount in your own.

        It shows and operates the jobs of this App, below any path. Without a login it shows
        nothing. `.wsgi` is the same for Flask and for Django without ASGI.

            served = app.dashboard(title="The shop")  # api.mount("/durio", served)
        """
        web = importlib.import_module("durio.web.application")
        return web.make_dashboard(
            self,
            auth=auth,
            title=title,
            badge=badge,
            links={} if links is None else links,
            mask=mask,
            embed_in=embed_in,
            trusted_proxies=trusted_proxies,
            is_basic=basic,
            is_read_only=read_only,
        )
