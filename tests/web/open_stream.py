"""A viewer of the stream, without a network: it speaks ASGI, and may be slow or leave."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from durio import App
from durio.web.application import DashboardApplication
from tests.web.browser import ADDRESS, HOST

STEP_SECONDS = 0.05


class OpenStream:
    """What a browser has got of one stream so far."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.status = 0
        self.headers: dict[str, str] = {}
        self.events: deque[dict[str, Any]] = deque()
        self.last_id = ""
        self.heartbeats = 0
        self.is_over = False
        self.body = b""
        self.reads = asyncio.Event()  # cleared: the viewer is slow
        self.reads.set()
        self.is_gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            return
        self.body += message["body"]
        if self.headers["content-type"].startswith("text/event-stream"):
            *blocks, self.body = self.body.split(b"\n\n")
            for block in blocks:
                self.take(block.decode())
        self.is_over = not message.get("more_body", False)

    def take(self, block: str) -> None:
        """Read one event as browsers do: an id without data only sets the id."""
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        self.heartbeats += "" in fields
        self.last_id = fields.get("id", self.last_id)
        if "data" in fields:
            event = {"event": fields.get("event", "message"), "id": self.last_id}
            self.events.append({**event, **json.loads(fields["data"])})

    async def next(self, seconds: float = 5.0) -> dict[str, Any]:
        """Return the next event; fails if there is none within this time."""
        await self.until(lambda: bool(self.events), seconds)
        return self.events.popleft()

    async def over(self, seconds: float = 5.0) -> None:
        """Wait until the server has ended the stream."""
        await self.until(lambda: self.is_over, seconds)

    async def until(self, holds: Any, seconds: float) -> None:
        end = self.app.clock.monotonic() + seconds
        while not holds():
            if self.app.clock.monotonic() >= end:
                raise AssertionError(f"not within {seconds} s; got {list(self.events)}")
            await self.app.clock.sleep(STEP_SECONDS)

    async def quiet(self, seconds: float) -> None:
        """Fail if an event comes within this time."""
        await self.app.clock.sleep(seconds)
        assert not self.events, list(self.events)

    @property
    def problem(self) -> dict[str, Any]:
        return json.loads(self.body)


@asynccontextmanager
async def stream(
    app: App,
    asgi: DashboardApplication,
    topics: str,
    last_id: str | None = None,
) -> AsyncGenerator[OpenStream]:
    """An open stream for the length of a block; at its end the viewer leaves."""
    viewer = OpenStream(app)
    headers = [(b"host", HOST.encode())]
    if last_id is not None:
        headers.append((b"last-event-id", last_id.encode()))
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "path": "/admin/stream",
        "root_path": "",
        "query_string": f"topics={topics}".encode(),
        "headers": headers,
        "client": (ADDRESS, 4711),
    }
    async with asyncio.TaskGroup() as group:
        answer: Any = asgi(scope, viewer.receive, viewer.send)
        running = group.create_task(answer)
        try:
            await viewer.until(lambda: viewer.status, 10.0)
            yield viewer
        finally:
            viewer.is_gone.set()
            viewer.reads.set()
            await running
