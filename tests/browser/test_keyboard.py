"""The main actions by keys alone, and keys that are texts while something is typed."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.site import Site
from tests.browser.visit import Visit, acting, button

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The letter after `g`, and the heading of its screen.
SCREENS = {
    "j": "Jobs",
    "q": "Queues",
    "t": "Tasks",
    "e": "Errors",
    "d": "Dead letters",
    "s": "Schedules",
    "p": "Plans",
    "w": "Workers",
    "l": "Limits and breakers",
    "a": "Audit",
    ",": "Settings",
    "u": "Users and tokens",
}


@pytest.fixture(scope="module")
def visit(browser: "Browser", site: Site) -> Iterator[Visit]:
    """The page of a store with something for each action."""
    with acting(browser, site) as visit:
        yield visit


@pytest.fixture(autouse=True)
def faultless(visit: Visit) -> Iterator[None]:
    """Each test ends without a fault of the page."""
    yield
    visit.watch.check()


def keys(visit: Visit, *pressed: str) -> None:
    """Press keys one after the other."""
    for key in pressed:
        visit.page.keyboard.press(key)


def filter_box(visit: Visit) -> Locator:
    return visit.main.get_by_label("Filter jobs")


def test_open_a_job_from_the_list_and_retry_it(visit: Visit) -> None:
    """j and k move, Enter opens, r retries."""
    visit.open("jobs?q=task:refund state:dead queue:payments")
    expect(visit.main.locator("[data-row]")).to_have_count(3)
    keys(visit, "j", "j", "k", "Enter")
    expect(visit.main.get_by_role("heading", name="refund")).to_be_visible()
    job = visit.page.url.rpartition("/")[2]
    died = visit.read(f"jobs/{job}")["finished_at"]
    expect(visit.main.get_by_role("button", name="Retry").first).to_be_enabled()
    keys(visit, "r")
    visit.said("Retrying refund")
    visit.until(
        f"jobs/{job}",
        lambda now: now["state"] == "dead" and now["finished_at"] > died,
        "it has died once more",
    )


def test_filter_by_typing(visit: Visit) -> None:
    """A slash, a term, Enter; Backspace changes the last term; Escape leaves."""
    visit.open("jobs")
    expect(visit.main.locator("[data-row]").first).to_be_visible()
    keys(visit, "/")
    expect(filter_box(visit)).to_be_focused()
    visit.page.keyboard.type("queue:letters")
    keys(visit, "Enter")
    rows = visit.main.locator("[data-row]")
    expect(rows).to_have_count(3)
    expect(visit.page).to_have_url(re.compile(r"q=queue:letters$"))
    keys(visit, "Backspace")
    expect(filter_box(visit)).to_have_value("queue:letters")
    visit.page.keyboard.press("Control+A")
    visit.page.keyboard.type("queue:pick")
    expect(visit.main.get_by_role("option").first).to_contain_text("pickups")
    keys(visit, "Tab")
    expect(visit.page).to_have_url(re.compile(r"q=queue:pickups$"))
    keys(visit, "Escape", "Escape")
    expect(filter_box(visit)).not_to_be_focused()


def test_find_a_queue_in_the_palette_and_pause_it(visit: Visit) -> None:
    """Ctrl K, its name, Enter; p, a reason, Enter; p again."""
    visit.open("./")
    visit.page.wait_for_selector("main h1")
    keys(visit, "Control+K")
    expect(visit.dialog.get_by_role("combobox")).to_be_focused()
    visit.page.keyboard.type("letters")
    found = visit.dialog.get_by_role("option", name="letters", exact=True)
    expect(found).to_be_visible()
    keys(visit, "ArrowDown")  # after the screen of dead letters
    expect(found).to_have_attribute("aria-selected", "true")
    keys(visit, "Enter")
    expect(visit.main.get_by_role("heading", name="Queues")).to_be_visible()
    visit.shown("no bound")  # what unfolds below the queue
    keys(visit, "p")
    expect(visit.dialog.get_by_label("Reason")).to_be_focused()
    visit.page.keyboard.type("by keys")
    keys(visit, "Enter")
    visit.said("letters is paused")
    assert visit.read("queues/letters")["paused"]["reason"] == "by keys"
    visit.shown("by keys")
    keys(visit, "p")
    visit.said("letters goes on")
    assert visit.read("queues/letters")["paused"] is None


def test_select_rows_and_cancel_them(visit: Visit) -> None:
    """j and x choose two of three, c cancels them, Escape lets go of the rest."""
    visit.open("jobs?q=queue:pickups state:scheduled")
    expect(visit.main.locator("[data-row]")).to_have_count(3)
    keys(visit, "j", "x", "j", "x")
    expect(visit.main.get_by_role("checkbox", checked=True)).to_have_count(2)
    keys(visit, "c")
    visit.said("Cancelling 2 jobs")
    expect(visit.main.locator("[data-row]")).to_have_count(1)
    keys(visit, "Control+A")
    expect(visit.page.get_by_role("toolbar")).to_be_visible()
    keys(visit, "Escape")
    expect(visit.page.get_by_role("toolbar")).to_have_count(0)
    assert len(visit.read("jobs?q=queue:pickups state:cancelled")["items"]) == 2


def test_go_to_each_screen(visit: Visit) -> None:
    """A letter after g; focus goes to the screen."""
    visit.open("./")
    visit.page.wait_for_selector("main h1")
    for letter, heading in SCREENS.items():
        keys(visit, "g", letter)
        expect(
            visit.main.get_by_role("heading", name=heading, exact=True).first
        ).to_be_visible()
        expect(visit.main).to_be_focused()
    keys(visit, "g", "o")
    expect(visit.main).to_be_focused()
    expect(visit.page.locator("nav [aria-current=page]").first).to_have_text("Overview")


def test_theme_live_and_the_sheet_of_keys(visit: Visit) -> None:
    """t, l, z and ?, which Escape closes; the theme outlives the page."""
    visit.open("jobs")
    root = visit.page.locator("html")
    expect(root).not_to_have_attribute("data-theme", re.compile(".+"))
    keys(visit, "t", "t")
    expect(root).to_have_attribute("data-theme", "dark")
    visit.page.reload()
    expect(root).to_have_attribute("data-theme", "dark")
    visit.page.wait_for_selector("main h1")
    keys(visit, "t")
    expect(root).not_to_have_attribute("data-theme", re.compile(".+"))
    keys(visit, "l")
    expect(visit.main.get_by_role("button", name="Paused")).to_be_visible()
    keys(visit, "l")
    expect(visit.main.get_by_role("button", name="Live")).to_be_visible()
    keys(visit, "?")
    expect(visit.dialog).to_contain_text("Pause or resume live updates")
    keys(visit, "t")  # a dialog takes all keys
    expect(root).not_to_have_attribute("data-theme", re.compile(".+"))
    keys(visit, "Escape")
    expect(visit.dialog).to_have_count(0)


def test_keys_are_text_while_one_types(visit: Visit) -> None:
    """Nothing moves, switches or opens; Escape gives the keys back."""
    visit.open("jobs")
    expect(visit.main.locator("[data-row]").first).to_be_visible()
    keys(visit, "/")
    visit.page.keyboard.type("gqtlxjr?")
    expect(filter_box(visit)).to_have_value("gqtlxjr?")
    expect(visit.page).to_have_url(re.compile(r"/jobs$"))
    expect(visit.dialog).to_have_count(0)
    expect(visit.main.get_by_role("button", name="Live")).to_be_visible()
    expect(visit.page.locator("html")).not_to_have_attribute(
        "data-theme", re.compile(".+")
    )


def test_single_keys_can_be_switched_off(visit: Visit) -> None:
    """In the settings of this browser; Ctrl K stays."""
    visit.open("settings")
    choice = visit.main.get_by_role("group", name="Single keys")
    button(choice, "Off").click()
    keys(visit, "t", "g", "q", "?")
    expect(visit.main.get_by_role("heading", name="Settings").first).to_be_visible()
    expect(visit.dialog).to_have_count(0)
    keys(visit, "Control+K")
    expect(visit.dialog.get_by_role("combobox")).to_be_focused()
    keys(visit, "Escape")
    button(choice, "On").click()
    keys(visit, "g", "q")
    expect(visit.main.get_by_role("heading", name="Queues")).to_be_visible()
