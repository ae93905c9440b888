"""A page of Chromium that reports what a good page never does."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import playwright
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    ViewportSize,
    expect,
)

from tests.browser.site import ADMIN, PASSWORD

HEADING = "main h1"
WIDE: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
# A machine that is busy with other tests; never a promise about speed.
PATIENCE_MS = 30_000
EXPECTED_STATUS = "the server responded with a status of 4"  # of a refused request

# The wheel brings the program; its Python part has no types.
AXE = Path(playwright.__file__).parents[1] / "axe_playwright_python/axe.min.js"

expect.set_options(timeout=PATIENCE_MS)


class Watch:
    """What a page has done that it must not do."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page, self.origin = page, origin
        self.faults: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", self._request)
        page.set_default_timeout(PATIENCE_MS)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and EXPECTED_STATUS not in message.text:
            self.faults.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme != "data" and f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.faults.append(f"asked another origin: {request.url}")

    def check(self) -> None:
        """Fail with all that was seen."""
        assert not self.faults, "\n".join(self.faults)

    def check_axe(self) -> None:
        """Fail when axe finds something serious or critical on the page."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found: list[dict[str, Any]] = self.page.evaluate("axe.run()")["violations"]
        bad = [one for one in found if one["impact"] in {"serious", "critical"}]
        assert not bad, "\n".join(
            f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes']][:3]}"
            for one in bad
        )

    def check_width(self) -> None:
        """Fail when the page itself scrolls sideways."""
        wider = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wider <= 0, f"the page is {wider} px wider than its window"

    def things(self) -> dict[str, str]:
        """Return ids of what the scene has made, by names for addresses."""
        return {
            "dead": self.first("jobs?q=task:charge state:dead"),
            "done": self.first("jobs?q=task:resize state:done"),
            "running": self.first("jobs?q=task:import_orders state:running"),
            "blocked": self.first("jobs?q=task:import_orders state:blocked"),
            "plan": self.first("plans?state=failed"),
            "error": self.first("errors", "fingerprint"),
        }

    def first(self, path: str, field: str = "id") -> str:
        """Return a field of the first thing that the API lists."""
        answer = self.page.request.get(f"admin/{path}")
        assert answer.ok, answer.text()
        return answer.json()["items"][0][field]


@contextmanager
def watched(
    browser: Browser, address: str, *, phone: bool = False, theme: str = "light"
) -> Generator[Watch]:
    """Open a page that is not logged in, and check at its end what it did."""
    parts = urlsplit(address)
    context = browser.new_context(
        base_url=address,
        viewport=PHONE if phone else WIDE,
        color_scheme="dark" if theme == "dark" else "light",
        has_touch=phone,
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
    )
    try:
        watch = Watch(context.new_page(), f"{parts.scheme}://{parts.netloc}")
        yield watch
        watch.check()
    finally:
        context.close()


@contextmanager
def logged_in(
    browser: Browser, address: str, *, phone: bool = False, theme: str = "light"
) -> Generator[Watch]:
    """Open a page, log in as the admin of the site, and check at its end what it did."""
    with watched(browser, address, phone=phone, theme=theme) as watch:
        page = watch.page
        page.goto("login")
        page.get_by_label("User name").fill(ADMIN)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector(HEADING)
        yield watch
