"""Actions on queues."""

from playwright.sync_api import expect

from tests.browser.action_scene import LATER
from tests.browser.visit import Line, Visit, button

WHY = "until the printer has paper"


def pause(visit: Visit) -> Line:
    visit.open("queues?open=letters")
    visit.press("Pause")
    visit.fill("Reason", WHY)
    visit.confirm("Pause")
    visit.said("letters is paused")
    visit.shown(WHY)
    assert visit.read("queues/letters")["paused"]["reason"] == WHY
    return Line("pause", f"letters ({WHY})")


def resume(visit: Visit) -> Line:
    visit.open("queues?open=letters")
    visit.press("Resume")
    visit.said("letters goes on")
    assert visit.read("queues/letters")["paused"] is None
    return Line("resume", "letters")


def close(visit: Visit) -> Line:
    visit.open("queues?open=letters")
    visit.press("Close")
    visit.fill("Reason", WHY)
    visit.confirm("Close")
    visit.said("letters takes no new jobs")
    visit.shown("closed: takes no new jobs")
    assert visit.read("queues/letters")["state"] == "closed"
    return Line("close", "letters")


def open_again(visit: Visit) -> Line:
    visit.open("queues?open=letters")
    visit.press("Open")
    visit.said("letters takes jobs again")
    assert visit.read("queues/letters")["state"] == "open"
    return Line("open", "letters")


def bound(visit: Visit) -> Line:
    visit.open("queues?open=letters")
    visit.press("Set bound")
    visit.fill("How many jobs may wait", "many")
    expect(button(visit.dialog, "Save")).to_be_disabled()
    visit.fill("How many jobs may wait", "50")
    visit.confirm("Save")
    visit.said("The bound of letters is set")
    visit.shown("50 waiting jobs")
    assert visit.read("queues/letters")["bound"] == 50
    return Line("limit", "letters maxsize")


def give_the_bound_back(visit: Visit) -> Line:
    visit.open("queues?open=letters")
    visit.press("Set bound")
    visit.confirm("As in the code")
    visit.said("The bound of letters is set")
    visit.shown("no bound")
    assert visit.read("queues/letters")["bound"] is None
    return Line("limit", "letters maxsize")


def move(visit: Visit) -> Line:
    visit.open("queues?open=moving")
    visit.press("Move jobs")
    visit.fill("To the queue", "letters")
    visit.confirm("Move jobs")
    visit.said(f"Moved {LATER['moving']} jobs")
    moved = visit.read("jobs?q=queue:letters state:scheduled")["items"]
    assert len(moved) == LATER["letters"] + LATER["moving"]
    return Line("move", "moving")


def purge(visit: Visit) -> Line:
    visit.open("queues?open=drafts")
    visit.press("Purge")
    visit.dialog.get_by_label("scheduled").check()
    yes = button(visit.dialog.locator("footer"), f"Purge {LATER['drafts']} jobs")
    visit.fill("Type drafts to go on", "draft")
    expect(yes).to_be_disabled()
    visit.fill("Type drafts to go on", "drafts")
    yes.click()
    visit.said(f"Purged {LATER['drafts']} jobs")
    assert visit.read("jobs?q=queue:drafts state:scheduled")["items"] == []
    return Line("cancel", "drafts")
