"""The dashboard of an App, as one ASGI application."""

from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from durio.model.version import __version__
from durio.web.access.authentication import Authentication
from durio.web.api.routers import PREFIX, ROUTERS
from durio.web.guard import Guard
from durio.web.options import DashboardOptions
from durio.web.pages import Pages
from durio.web.problems import PROBLEM_ANSWERS, handle_problems
from durio.web.roles import checked_routes
from durio.web.site import Site

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
            case _:
                await send({"type": "websocket.close", "code": GOING_AWAY})


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
