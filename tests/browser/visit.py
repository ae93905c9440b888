"""The admin in front of the page: what it clicks, types and reads."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.site import ADMIN, Site, wait_until
from tests.browser.watch import HEADING, Watch, logged_in

BY = f"{ADMIN}@127.0.0.1 via dashboard"


class Line(NamedTuple):
    """What the audit says of a change: its verb, and a part of its target."""

    verb: str
    target: str


class Visit:
    """A page where the admin has logged in, one action after the other."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    @property
    def page(self) -> Page:
        return self.watch.page

    @property
    def main(self) -> Locator:
        return self.page.locator("main")

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    # --- what it does

    def open(self, path: str) -> None:
        """Open a screen as a link does; keys are heard from when it has its heading."""
        self.page.goto(path)
        self.page.wait_for_selector(HEADING)

    def press(self, name: str, within: Locator | None = None) -> None:
        """Click the first button of this name."""
        button(within or self.main, name).click()

    def fill(self, label: str, text: str) -> None:
        """Type into a field of the dialog."""
        self.dialog.get_by_label(label).first.fill(text)

    def confirm(self, name: str) -> None:
        """Click the button that ends the dialog with a yes."""
        button(self.dialog.locator("footer"), name).click()
        expect(self.dialog).to_have_count(0)

    # --- what it sees

    def said(self, text: str) -> None:
        """Wait for a message at the end of the page."""
        expect(self.page.locator(".toast", has_text=text).first).to_be_visible()

    def shown(self, text: str | re.Pattern[str]) -> None:
        """Wait for a text of the screen."""
        expect(self.main.get_by_text(text).first).to_be_visible()

    # --- what the API says

    def read(self, path: str) -> Any:
        """Return the answer of the API."""
        answer = self.page.request.get(f"admin/{path}")
        assert answer.ok, answer.text()
        return answer.json()

    def first(self, path: str) -> Any:
        """Return the first thing that the API lists."""
        return self.read(path)["items"][0]

    def until(self, path: str, condition: Callable[[Any], bool], what: str) -> Any:
        """Read a path until its answer is as wanted; return that."""
        wait_until(lambda: condition(self.read(path)), what)
        return self.read(path)

    def check_audit(self, line: Line) -> None:
        """Fail if the audit does not have this line."""
        lines = self.read("audit?limit=200")["items"]
        found = [(each["verb"], each["target"]) for each in lines if each["by"] == BY]
        assert any(
            verb == line.verb and line.target in target for verb, target in found
        ), f"{line} is not in {found[:10]}"


def button(within: Locator, name: str) -> Locator:
    """Return the first button of this name."""
    return within.get_by_role("button", name=name, exact=True).first


@contextmanager
def acting(browser: Browser, site: Site) -> Generator[Visit]:
    """Log in to a dashboard of a store that has something for each action."""
    site.python("-m", "tests.browser.action_scene")
    site.add_user(ADMIN, "admin")
    with logged_in(browser, site.dashboard()) as watch:
        yield Visit(watch)
