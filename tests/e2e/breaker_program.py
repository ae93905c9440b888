"""An App whose jobs call a service on loopback behind a breaker."""

import asyncio
import os

from durio import App, Retry
from durio.limits import Breaker

PORT = "DURIO_TEST_SERVICE_PORT"
OPEN_SECONDS = 2.0

app = App(
    name="shop",
    breakers=[Breaker("service", failures=10, window="1h", open_for=OPEN_SECONDS)],
)


@app.task(breaker="service", retry=Retry(500, base=0.2, factor=1, jitter=False))
async def call(number: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ[PORT]))
    try:
        writer.write(f"{number}\n".encode())
        answer = await reader.readline()
    finally:
        writer.close()
    if answer != b"good\n":
        raise ConnectionError("the service failed")
