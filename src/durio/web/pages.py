"""What answers without a credential: the page's shell, its assets, health."""

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from durio.web.health import HEALTH_PATHS, health_answer
from durio.web.mount import base_element, path_inside
from durio.web.problems import Refusal
from durio.web.roles import READING
from durio.web.site import Site
from durio.web.static_files import assets, file_text

ASSETS = "/assets/"
# The page answers to the address of each of its screens.
SCREENS = frozenset(
    {
        *("", "overview", "queues", "jobs", "tasks", "errors", "dead", "schedules"),
        *("plans", "workers", "limits", "breakers", "alerts", "audit", "settings"),
        *("users", "tokens"),
    }
)
BASE = '<base href="/">'
FOR_EVER = "public, max-age=31536000, immutable"


class Pages:
    """Answers that hold no data of jobs."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def is_health(self, path: str) -> bool:
        return path in HEALTH_PATHS

    def is_public(self, path: str) -> bool:
        """Whether the path needs no credential."""
        return path.startswith(ASSETS) or screen_of(path) in SCREENS

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a public path."""
        path = path_inside(scope)
        if scope["method"] not in READING:
            raise Refusal(405, "method_not_allowed", "this path is only read")
        await (await self.response(path, scope))(scope, receive, send)

    async def response(self, path: str, scope: Scope) -> Response:
        if path in HEALTH_PATHS:
            is_well = await health_answer(self.site, path)
            return PlainTextResponse(
                "ok" if is_well else "failed", 200 if is_well else 503
            )
        if path.startswith(ASSETS):
            return asset(path.removeprefix(ASSETS))
        return shell(scope)


def screen_of(path: str) -> str:
    """Return the first part of a path: `/jobs/0198...` -> `jobs`."""
    return path[1:].partition("/")[0]


def shell(scope: Scope) -> Response:
    """Return the page; its scripts ask the API for all data."""
    text = file_text("index.html").replace(BASE, base_element(scope), 1)
    return Response(text, media_type="text/html; charset=utf-8")


def asset(name: str) -> Response:
    """Return a file whose name has a hash of its content in it."""
    found = assets().get(name)
    if found is None:
        raise Refusal(404, "not_found", "there is no such file")
    body, kind = found
    return Response(body, media_type=kind, headers={"Cache-Control": FOR_EVER})
