"""The dashboard below a path of FastAPI, Starlette, Django and Flask: by ASGI and WSGI."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.routing import Mount
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from durio import App
from durio.errors import InvalidOption
from durio.web import User
from tests.web.browser import browser
from tests.web.logins import add_users, log_in

ROOT = "/x/durio"
MEMORY = "sqlite:///:memory:"
FOREIGN = {"Sec-Fetch-Site": "cross-site"}


def in_fastapi(app: App, **options: Any) -> Any:
    api = FastAPI()
    api.mount(ROOT, app.dashboard(**options))

    @api.get("/")
    def index() -> str:
        return "mine"

    _ = index
    return api


def in_starlette(app: App, **options: Any) -> Any:
    inner = Mount("/durio", app=app.dashboard(**options))
    return Starlette(routes=[Mount("/x", routes=[inner])])


def configure_django() -> None:
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=())


def in_django_asgi(app: App, **options: Any) -> Any:
    configure_django()
    return app.dashboard(**options).asgi_at(ROOT, get_asgi_application())


def in_django_wsgi(app: App, **options: Any) -> Any:
    configure_django()
    return app.dashboard(**options).wsgi_at(ROOT, get_wsgi_application())


def in_flask(app: App, **options: Any) -> Any:
    flask = Flask("host")
    dashboard = app.dashboard(**options)
    flask.wsgi_app = DispatcherMiddleware(flask.wsgi_app, {ROOT: dashboard.wsgi})  # type: ignore[method-assign]
    return flask.wsgi_app


Host = Callable[..., Any]
BY_ASGI: list[Host] = [in_fastapi, in_starlette, in_django_asgi]
BY_WSGI: list[Host] = [in_django_wsgi, in_flask]


class InThread(httpx.AsyncBaseTransport):
    """Speaks WSGI from a thread, as a server does: there is no loop in it."""

    def __init__(self, wsgi: Any) -> None:
        self.inner = httpx.WSGITransport(wsgi, remote_addr="192.0.2.7")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        sent = httpx.Request(
            request.method, request.url, headers=request.headers, content=body
        )

        def ask() -> httpx.Response:
            answer = self.inner.handle_request(sent)
            answer.read()
            return httpx.Response(
                answer.status_code, headers=answer.headers, content=answer.content
            )

        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, ask)


def client_of(host: Host, app: App, **options: Any) -> httpx.AsyncClient:
    """A client for the mount; it can ask the host too, by `../..`."""
    served = host(app, **options)
    if host in BY_ASGI:
        transport: Any = httpx.ASGITransport(served, client=("192.0.2.7", 1))
    else:
        transport = InThread(served)
    headers = {"Sec-Fetch-Site": "same-origin"}
    return httpx.AsyncClient(
        transport=transport, base_url=f"http://shop.example.com{ROOT}", headers=headers
    )


@pytest.mark.parametrize("host", [*BY_ASGI, *BY_WSGI])
def test_the_dashboard_works_below_a_path(host: Host):
    async def main() -> None:
        app = App(MEMORY, name="shop")
        job = await app.named("send").enqueue()
        await job.cancel()
        hook = {"auth": lambda request: who(request.headers.get("x-user"))}
        async with client_of(host, app, title="Shop", **hook) as client:
            page = await client.get("/jobs")
            assert f'<base href="{ROOT}/">'.encode() in page.content
            assert (await client.get("/admin/me")).status_code == 401
            client.headers["X-User"] = "olga"
            me = (await client.get("/admin/me")).json()
            assert (me["user"], me["title"], me["app"]) == ("olga", "Shop", "shop")
            listed = (await client.get("/admin/jobs?state=cancelled")).json()
            assert [item["id"] for item in listed["items"]] == [job.id]
            path = f"/admin/jobs/{job.id}/retry"
            cross = await client.post(path, json={}, headers=FOREIGN)
            assert (cross.status_code, cross.json()["code"]) == (403, "cross_site")
            form = await client.post(path, data={"a": "b"})
            assert form.status_code == 415
            answer = await client.post(path, json={})
            assert answer.json() == {"status": "retrying", "state": "ready"}
        await app.close()

    asyncio.run(main())


@pytest.mark.parametrize("host", BY_WSGI)
def test_a_page_below_wsgi_polls_because_there_is_no_stream(host: Host):
    async def main() -> None:
        app = App(MEMORY, name="shop")
        async with client_of(host, app, auth=lambda _: who("olga")) as client:
            refused = await client.get("/admin/stream?topics=jobs")
            assert (refused.status_code, refused.json()["code"]) == (501, "no_stream")
            first = (await client.get("/admin/poll?topics=jobs,overview")).json()
            assert [each["topic"] for each in first["events"]] == ["overview"]
            path = f"/admin/poll?topics=jobs,overview&since={first['since']}"
            assert (await client.get(path)).json()["events"] == []
        await app.close()

    asyncio.run(main())


def who(name: str | None) -> User | None:
    return User(name, "operator") if name else None


@pytest.mark.parametrize("host", [in_starlette, in_flask])
def test_a_login_works_below_a_path(host: Host):
    async def main() -> None:
        app = App(MEMORY, name="shop")
        await add_users(app)
        async with client_of(host, app) as client:
            answer = await log_in(client, following=f"{ROOT}/jobs?q=state:dead")
            assert answer.headers["location"] == f"{ROOT}/jobs?q=state:dead"
            assert (await client.get("/admin/me")).json()["user"] == "olga"
        await app.close()

    asyncio.run(main())


@pytest.mark.parametrize("host", [in_fastapi, in_django_asgi, in_django_wsgi, in_flask])
def test_the_host_keeps_its_own_paths(host: Host):
    async def main() -> None:
        app = App(MEMORY, name="shop")
        async with client_of(host, app) as client:
            for path in ("/none", "/x/durioso", "/admin/me"):
                answer = await client.get(f"http://shop.example.com{path}")
                assert answer.status_code == 404
                assert "content-security-policy" not in answer.headers
        await app.close()

    asyncio.run(main())


def test_a_dashboard_needs_no_lifespan_and_answers_one():
    async def main() -> None:
        app = App(MEMORY, name="shop")
        served = app.dashboard()
        events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
        sent: list[str] = []

        async def receive() -> Any:
            return next(events)

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await served({"type": "lifespan"}, receive, send)
        await served({"type": "websocket"}, receive, send)
        assert sent == [
            "lifespan.startup.complete",
            "lifespan.shutdown.complete",
            "websocket.close",
        ]
        async with browser(served) as client:  # after its host has said goodbye
            assert (await client.get("/")).status_code == 200

    asyncio.run(main())


@pytest.mark.parametrize("path", ["durio", "", "/", "/a/../b", "//evil"])
def test_a_path_that_cannot_be(path: str):
    for method in ("asgi_at", "wsgi_at"):
        with pytest.raises(InvalidOption):
            getattr(App(MEMORY, name="shop").dashboard(), method)(path, None)


@pytest.mark.parametrize(
    "choices",
    [
        {"auth": "ann"},
        {"mask": 3},
        {"title": ""},
        {"title": "x" * 61},
        {"badge": "live"},
        {"badge": ("live", "red; background: url(//evil)")},
        {"badge": ("x" * 25, "red")},
        {"links": {"logs": "javascript:alert(1)"}},
        {"links": {"logs": "//evil.example.com/{id}"}},
        {"embed_in": ["https://evil.example.com; script-src *"]},
        {"embed_in": ["*"]},
        {"trusted_proxies": ["everyone"]},
    ],
)
def test_choices_that_cannot_be_are_refused_where_they_are_written(
    choices: dict[str, Any],
):
    with pytest.raises(InvalidOption):
        App(MEMORY, name="shop").dashboard(**choices)
