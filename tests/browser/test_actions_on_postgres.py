"""Every action of the page on PostgreSQL: what it says, and what the audit says after it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.actions import ACTIONS, perform
from tests.browser.site import Site
from tests.browser.visit import Visit, acting

if TYPE_CHECKING:
    from playwright.sync_api import Browser


# The server first: it starts an event loop, and Playwright is one that runs.
@pytest.fixture(scope="module")
def visit(postgres_site: Site, browser: "Browser") -> Iterator[Visit]:
    """The page of a store with something for each action."""
    with acting(browser, postgres_site) as visit:
        yield visit


@pytest.mark.parametrize("name", ACTIONS)
def test_action(visit: Visit, name: str) -> None:
    """Do it as a user does."""
    perform(name, visit)
