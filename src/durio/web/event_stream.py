"""An open stream of events: sends what its viewer gets, and checks its credential."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from durio.model.errors import DurioError
from durio.ports.clock import Clock
from durio.web.feeds import BYE, Feeds, Viewer

CHECK_SECONDS = 2.5  # with a check of up to 2 s: a revoked stream ends within 5 s
CHECK_SECONDS_MAX = 2.0
HEARTBEAT_SECONDS = 15.0
SEND_SECONDS_MAX = 60.0  # that a viewer may block


class EventStream(Response):
    """Answers with server-sent events until one side ends."""

    media_type = "text/event-stream"

    def __init__(
        self,
        feeds: Feeds,
        viewer: Viewer,
        clock: Clock,
        still_valid: Callable[[], Awaitable[bool]],
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.feeds = feeds
        self.viewer = viewer
        self.clock = clock
        self.still_valid = still_valid

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the viewer ends or goes away."""
        _ = scope
        try:
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(self.until_gone(receive)),
                    group.create_task(self.check()),
                ]
                await self.send_all(send)
                for task in beside:
                    task.cancel()
        finally:
            self.feeds.leave(self.viewer)

    async def send_all(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        try:
            async with asyncio.timeout(None) as limit:
                while (text := await self.viewer.next()) is not None:
                    limit.reschedule(loop_time() + SEND_SECONDS_MAX)
                    await send(body_message(text, more=True))
                    limit.reschedule(None)
                await send(body_message(b"", more=False))
        except (TimeoutError, OSError):
            return  # the viewer is gone, or does not read

    async def until_gone(self, receive: Receive) -> None:
        """End when the browser has closed the connection."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.viewer.end()

    async def check(self) -> None:
        """End when the credential does; send a heartbeat from time to time."""
        heartbeat_at = self.clock.monotonic() + HEARTBEAT_SECONDS
        while True:
            await self.clock.sleep(CHECK_SECONDS)
            if not await self.is_valid():
                self.viewer.end(BYE)
                return
            if self.clock.monotonic() >= heartbeat_at:
                heartbeat_at += HEARTBEAT_SECONDS
                if not self.viewer.waiting:
                    self.viewer.send(
                        f": heartbeat\nid: {self.feeds.mark()}\n\n".encode()
                    )

    async def is_valid(self) -> bool:
        """Whether the credential still holds; not, if that cannot be found out."""
        try:
            async with asyncio.timeout(CHECK_SECONDS_MAX):
                return await self.still_valid()
        except (TimeoutError, DurioError):
            return False


def loop_time() -> float:
    return asyncio.get_running_loop().time()


def body_message(text: bytes, *, more: bool) -> dict[str, object]:
    return {"type": "http.response.body", "body": text, "more_body": more}
