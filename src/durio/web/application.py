"""The dashboard of an App, as one ASGI application."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from durio.model.errors import InvalidOption
from durio.model.version import __version__
from durio.web.access.authentication import Authentication
from durio.web.api.routers import PREFIX, ROUTERS
from durio.web.guard import Guard
from durio.web.mount import is_plain, path_inside
from durio.web.options import DashboardOptions
from durio.web.pages import Pages
from durio.web.problems import PROBLEM_ANSWERS, handle_problems
from durio.web.roles import checked_routes
from durio.web.site import Site
from durio.web.wsgi import WsgiDashboard

if TYPE_CHECKING:
    from durio.app.app import App

GOING_AWAY = 1001


class DashboardApplication:
    """An ASGI application that shows and operates the jobs of an App.

    It needs no lifespan: the App opens its store on first use.
    """

    def __init__(self, app: "App", options: DashboardOptions | None = None) -> None:
        self.site = Site(app, options or DashboardOptions())
        self.routes = checked_routes(ROUTERS, PREFIX)
        self.api = build_api()
        self.wsgi = WsgiDashboard(app, self)
        self.guard = Guard(
            self.site, self.api, Pages(self.site), Authentication(self.site)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection of the server."""
        match scope["type"]:
            case "http":
                await self.guard(scope, receive, send)
            case "lifespan":
                await answer_lifespan(receive, send)
                self.end_streams()
            case _:
                await send({"type": "websocket.close", "code": GOING_AWAY})

    def end_streams(self) -> None:
        """End all open streams: call it when a server begins to stop.

        uvicorn waits for open answers before it ends a lifespan.
        """
        self.site.end_streams()

    def asgi_at(self, path: str, other: ASGIApp) -> ASGIApp:
        """Return an ASGI application with the dashboard at a path of another one."""
        root = checked_path(path)

        async def both(scope: Scope, receive: Receive, send: Send) -> None:
            inside = path_inside(scope) if scope["type"] == "http" else ""
            if inside == root or inside.startswith(f"{root}/"):
                scope = {**scope, "root_path": scope.get("root_path", "") + root}
                await self(scope, receive, send)
            else:
                await other(scope, receive, send)

        return both

    def wsgi_at(self, path: str, other: Callable[..., Any]) -> Callable[..., Any]:
        """Return a WSGI application with the dashboard at a path of another one."""
        root = checked_path(path)

        def both(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            inside = environ.get("PATH_INFO", "")
            if inside != root and not inside.startswith(f"{root}/"):
                return other(environ, start_response)
            below = {
                **environ,
                "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + root,
                "PATH_INFO": inside[len(root) :],
            }
            return self.wsgi(below, start_response)

        return both


def make_dashboard(app: "App", **choices: Any) -> DashboardApplication:
    """Return the dashboard of an App; raises InvalidOption for a choice that cannot be."""
    return DashboardApplication(app, DashboardOptions(**choices))


def checked_path(path: str) -> str:
    """Return the path of a mount without a slash at its end."""
    root = path.rstrip("/")
    if not root.startswith("/") or not is_plain(root):
        raise InvalidOption(
            f"a dashboard cannot be mounted at {path!r:.80}",
            cure='Give a path such as "/durio".',
        )
    return root


def build_api() -> FastAPI:
    """Return the routes of the API; their pages of documentation load foreign scripts."""
    api = FastAPI(
        title="Durio admin API",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        responses=PROBLEM_ANSWERS,
    )
    for router in ROUTERS:
        api.include_router(router, prefix=PREFIX)
    handle_problems(api)
    return api


async def answer_lifespan(receive: Receive, send: Send) -> None:
    """Say yes to a server that asks: nothing has to be started or ended."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
