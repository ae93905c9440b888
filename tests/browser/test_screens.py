"""Every screen: it shows its data, in both themes, below any path, on a phone too."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest
from playwright.sync_api import expect

from tests.browser.site import ADMIN, Site
from tests.browser.watch import Watch, logged_in

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DEEP = "/x/y"


class Look(NamedTuple):
    """One way to look at all screens."""

    theme: str
    root: str
    phone: bool

    def said(self) -> list[str]:
        width = "390px" if self.phone else "1440px"
        return [self.theme, self.root.strip("/").replace("/", "_") or "top", width]


# Each pair of theme, path and width is there.
LOOKS = [
    Look("light", "", phone=False),
    Look("dark", DEEP, phone=False),
    Look("light", DEEP, phone=True),
    Look("dark", "", phone=True),
]
# The address of each screen, and a text that only its data can bring. A name in braces is
# that of one thing of the scene: see `Watch.things`.
SCREENS = {
    "./": "Breaker smtp is open",
    "jobs": "page_of",
    "jobs?q=state:dead": "CardRefused",
    "jobs/{dead}": "CardRefused",
    "jobs/{done}": "1152921504606846977",
    "jobs/{running}": "acme",
    "jobs/{blocked}": "limit",
    "queues": "newsletter",
    "queues?open=newsletter": "the provider asked us to wait",
    "tasks": "send_mail",
    "tasks?open=import_orders": "tenant",
    "errors": "CardRefused",
    "errors?open={error}": "CardRefused",
    "dead": "CardRefused",
    "schedules": "digest",
    "schedules?open=digest": "Europe/Paris",
    "plans": "bind",
    "plans/{plan}": "broken_page",
    "workers": "slots",
    "limits": "smtp",
    "audit": "newsletter",
    "settings": "lease_seconds",
    "users": ADMIN,
}


@pytest.fixture(scope="module")
def addresses(site: Site) -> dict[str, str]:
    """Two dashboards of the store, below different paths."""
    site.add_user(ADMIN, "admin")
    return {root: site.dashboard(root=root) for root in ("", DEEP)}


@pytest.fixture(scope="module", params=LOOKS, ids=lambda look: "-".join(look.said()))
def looking(
    browser: "Browser", addresses: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[tuple[Watch, dict[str, str]]]:
    """A page where the admin has logged in, and what there is to see."""
    look: Look = request.param
    address = addresses[look.root]
    with logged_in(browser, address, phone=look.phone, theme=look.theme) as watch:
        yield watch, watch.things()


@pytest.mark.parametrize("path", SCREENS)
def test_screen(looking: tuple[Watch, dict[str, str]], path: str) -> None:
    """Open it as a link does: its data is there, and nothing that must not be."""
    watch, things = looking
    watch.page.goto(path.format(**things))
    main = watch.page.locator("main")
    expect(main.get_by_text(SCREENS[path]).first).to_be_visible()
    expect(watch.page.locator(".skel")).to_have_count(0)
    watch.check_width()
    watch.check_axe()
    watch.check()
