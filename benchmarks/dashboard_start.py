"""How soon a new `durio dashboard` shows something, and how large the wheel is."""

import asyncio
import sys
import time
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, Page, async_playwright

from benchmarks.dashboard_server import HOST, free_port, process, server_command
from benchmarks.dashboard_workload import PASSWORD, Workload
from durio.web.access.users import Users

CHROMIUM = "/usr/bin/chromium"
USER = "ann"
RETRY_SECONDS = 0.01
TRIES_MAX = 6_000
# When the first text or picture was painted, in milliseconds since 1970.
FIRST_PAINT = """() => new Promise(resolve => {
  const seen = list => {
    for (const entry of list)
      if (entry.name === 'first-contentful-paint')
        resolve(performance.timeOrigin + entry.startTime);
  };
  new PerformanceObserver(list => seen(list.getEntries()))
    .observe({type: 'paint', buffered: true});
})"""


async def first_paints(folder: Path, runs: int) -> dict[str, list[int]]:
    """Return milliseconds from the start of the process to the first paint, per page.

    The login page is that of a new visitor; the overview that of a user with a session.
    """
    url, port = f"sqlite:///{folder / 'start.db'}", free_port()
    load = Workload(url)
    async with load.app:
        users = Users(await load.app.store(), load.app.name, load.app.clock)
        await users.add(USER, PASSWORD, "admin")
    address = f"http://{HOST}:{port}/"
    found: dict[str, list[int]] = {"login": [], "overview": []}
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        for _ in range(runs):
            async with new_page(browser, None) as page:
                with process(server_command(url, port), folder / "start.log"):
                    found["login"].append(await painted(page, f"{address}login"))
                    state = await logged_in(page)
            async with new_page(browser, state) as page:
                with process(server_command(url, port), folder / "start.log"):
                    found["overview"].append(await painted(page, address))
        await browser.close()
    return found


@asynccontextmanager
async def new_page(browser: Browser, state: Any) -> AsyncGenerator[Page]:
    context = await browser.new_context(storage_state=state)
    yield await context.new_page()
    await context.close()


async def painted(page: Page, address: str) -> int:
    """Open the page as soon as the server listens; return milliseconds since now."""
    began, where = time.time(), urlsplit(address)
    for _ in range(TRIES_MAX):
        try:
            _, writer = await asyncio.open_connection(where.hostname, where.port)
        except ConnectionRefusedError:
            await asyncio.sleep(RETRY_SECONDS)
        else:
            writer.close()
            break
    await page.goto(address, wait_until="commit")
    return round(await page.evaluate(FIRST_PAINT) - 1000 * began)


async def logged_in(page: Page) -> Any:
    """Log in by the form; return the cookies."""
    await page.fill("input[name=user]", USER)
    await page.fill("input[name=password]", PASSWORD)
    async with page.expect_navigation(wait_until="commit"):
        await page.press("input[name=password]", "Enter")
    return await page.context.storage_state()


async def wheel_bytes(folder: Path) -> dict[str, int]:
    """Build the wheel; return its size, and what the page and its server take in it."""
    building = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
        *("--no-build-isolation", "--wheel-dir", str(folder), "."),
    )
    if await building.wait():
        sys.exit("the wheel cannot be built")
    return await asyncio.to_thread(sizes_in, folder)


def sizes_in(folder: Path) -> dict[str, int]:
    (wheel,) = folder.glob("durio-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        sizes = {each.filename: each.compress_size for each in packed.infolist()}
    return {
        "wheel": wheel.stat().st_size,
        "page": sum(n for name, n in sizes.items() if "/web/static/" in name),
        "web": sum(n for name, n in sizes.items() if "/web/" in name),
    }
