"""Chromium, and a site on each store."""

from collections.abc import Iterator
from shutil import which
from typing import TYPE_CHECKING

import pytest

from tests.browser.site import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.conftest import Require
    from tests.servers.postgres import PostgresServer

CHROMIUM = which("chromium")
# The other switches keep it from asking hosts of its maker.
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser(require: "Require") -> "Iterator[Browser]":
    """Debian's Chromium, without a window."""
    require(CHROMIUM, "Chromium (apt-get install chromium)")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - it takes a second

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A filled SQLite file with its worker."""
    folder = tmp_path_factory.mktemp("site")
    yield from running(Site(f"sqlite:///{folder}/shop.db", folder))


@pytest.fixture(scope="module")
def postgres_site(
    postgres: "PostgresServer", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """The same on PostgreSQL."""
    yield from running(Site(postgres.url(), tmp_path_factory.mktemp("site")))


def running(site: Site) -> Iterator[Site]:
    try:
        site.begin()
        yield site
    finally:
        site.end()
