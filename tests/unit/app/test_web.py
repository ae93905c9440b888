"""Statuses and details as answers of web frameworks: FastAPI, Flask, Django."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import django
import flask
import pytest
from django.conf import settings
from django.http import JsonResponse
from django.test import RequestFactory
from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import FastAPIError

from durio import App, Job, JobDetails, JobStatus, Progress, Retry
from tests.tidy.house import ROOT
from tests.unit.app.app_harness import drained

SHOWN = {"state": "scheduled", "task": "shop.work", "attempt": 2, "max_attempts": 3}


@pytest.fixture
def app(tmp_path: Path) -> App:
    """An App with one job that has failed once."""
    app = App(f"sqlite:///{tmp_path}/jobs.db", name="shop")

    @app.task(name="work", retry=Retry(2, base=3600))
    async def work() -> None:
        raise ValueError("no such order")

    async def prepare() -> None:
        async with app:
            await work.enqueue()
            await drained(app)

    asyncio.run(prepare())
    return app


async def ask(api: FastAPI, path: str) -> tuple[int, Any]:
    """One GET request to an ASGI application; its status code and JSON body."""
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "headers": [],
        "query_string": b"",
    }
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        messages.append(message)

    await api(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in messages)
    return messages[0]["status"], json.loads(body)


def routes(app: App) -> FastAPI:
    api = FastAPI()

    async def first() -> JobDetails:
        (job,) = [job async for job in app.jobs()]
        return replace(job, progress=Progress(4, 10))

    async def status() -> JobStatus:
        job = await app.job((await first()).id)
        return replace(await job.status(), progress=Progress(4, 10))

    @api.get("/bare")
    async def bare() -> Any:
        return await status()

    @api.get("/annotated")
    async def annotated() -> JobStatus:
        return await status()

    @api.get("/model", response_model=JobStatus)
    async def model() -> Any:
        return await first()  # details: the model leaves out what is not in a status

    @api.get("/list")
    async def listed() -> list[JobStatus]:
        return [await status()]

    @api.get("/details")
    async def details() -> JobDetails:
        return await first()

    return api


@pytest.mark.parametrize("path", ["/bare", "/annotated", "/model", "/list", "/details"])
def test_fastapi(app: App, path: str):
    async def main() -> tuple[int, Any]:
        async with app:
            return await ask(routes(app), path)

    code, answer = asyncio.run(main())
    assert code == 200
    if path == "/list":
        (answer,) = answer
    assert answer.items() >= SHOWN.items()
    assert answer["progress"]["done"] == 4
    assert answer["last_error"]["type"] == "ValueError"
    assert ("errors" in answer) is (path == "/details")
    assert ("traceback" in json.dumps(answer)) is (path == "/details")


def test_errors_about_handles_are_those_in_troubleshooting(app: App):
    @app.task(name="send")
    async def send() -> None: ...

    async def start() -> Job[None]:
        return await send.enqueue()

    page = (ROOT / "docs/how-to/troubleshooting.md").read_text(encoding="utf-8")
    words = "'Job' object is not iterable"
    with pytest.raises(ValueError, match=words):
        jsonable_encoder(send.enqueue_sync())
    assert words in page
    words = "Invalid args for response field!"
    with pytest.raises(FastAPIError, match=words):
        FastAPI().get("/")(start)
    assert words in page


def test_fastapi_describes_a_status(app: App):
    described = routes(app).openapi()["components"]["schemas"]
    assert set(described["JobStatus"]["required"]) >= {"id", "state", "max_attempts"}
    assert described["State"]["enum"][0] == "scheduled"


ANSWERS: dict[str, Callable[[JobStatus], Any]] = {
    "a dict": lambda status: status.to_dict(),
    "a list": lambda status: [status.to_dict()],
    "jsonify": flask.jsonify,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_flask(app: App, answer: str):
    web = flask.Flask("shop")

    @web.get("/")
    def show() -> Any:
        job = app.job_sync(next(iter(app.jobs())).id)
        return ANSWERS[answer](job.status_sync())

    response = web.test_client().get("/")
    shown = response.get_json()
    if answer == "a list":
        (shown,) = shown
    assert response.status_code == 200
    assert shown.items() >= SHOWN.items()
    app.run_sync(app.close())


def test_django(app: App):
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["testserver"])
        django.setup()

    def show(_request: Any) -> JsonResponse:
        job = app.job_sync(next(iter(app.jobs())).id)
        return JsonResponse(job.status_sync().to_dict())

    response = show(RequestFactory().get("/"))
    shown = json.loads(response.content)
    assert shown.items() >= SHOWN.items()
    assert shown["created_at"].endswith("Z")
    app.run_sync(app.close())
