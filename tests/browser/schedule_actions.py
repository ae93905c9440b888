"""Actions on schedules."""

from playwright.sync_api import expect

from tests.browser.visit import Line, Visit, button


def create(visit: Visit) -> Line:
    """With a rule that is refused, and then with a right one."""
    visit.open("schedules")
    visit.press("New schedule")
    visit.fill("Name", "hourly")
    visit.fill("Task", "page_of")
    visit.fill("Arguments", '{"number": 5}')
    visit.fill("Minute, hour", "61 * * * *")
    expect(visit.dialog.get_by_role("alert")).to_contain_text("61")
    expect(button(visit.dialog, "Save")).to_be_disabled()
    visit.fill("Minute, hour", "7 * * * *")
    visit.fill("Time zone", "Europe/Paris")
    expect(visit.dialog.locator(".next li")).to_have_count(5)
    visit.confirm("Save")
    visit.said("hourly is made")
    visit.shown("hourly")
    made = visit.read("schedules/hourly")
    assert (made["cron"], made["tz"]) == ("7 * * * *", "Europe/Paris")
    return Line("create", "schedule hourly")


def change(visit: Visit) -> Line:
    visit.open("schedules?open=hourly")
    visit.press("Change")
    visit.press("Interval", visit.dialog)
    visit.fill("Every", "45m")
    expect(visit.dialog.locator(".next li")).to_have_count(5)
    visit.confirm("Save")
    visit.said("hourly is changed")
    visit.shown("45 min")
    assert visit.read("schedules/hourly")["every"] == 45 * 60
    return Line("change", "schedule hourly")


def pause(visit: Visit) -> Line:
    visit.open("schedules?open=hourly")
    visit.press("Pause")
    visit.fill("Reason", "the shop is closed")
    visit.confirm("Pause")
    visit.said("hourly is paused")
    visit.shown("the shop is closed")
    assert visit.read("schedules/hourly")["state"] == "paused"
    return Line("pause: the shop is closed", "schedule hourly")


def resume(visit: Visit) -> Line:
    visit.open("schedules?open=hourly")
    visit.press("Resume")
    visit.said("hourly goes on")
    assert visit.read("schedules/hourly")["state"] == "active"
    return Line("resume", "schedule hourly")


def run(visit: Visit) -> Line:
    visit.open("schedules?open=hourly")
    visit.press("Run now")
    visit.said("hourly runs now")
    visit.until(
        "jobs?q=schedule:hourly state:done", lambda jobs: jobs["items"], "it ran"
    )
    return Line("run", "schedule hourly")


def backfill(visit: Visit) -> Line:
    visit.open("schedules?open=daily_report")
    visit.press("Backfill")
    visit.fill("From, UTC", "2026-01-01T00:00")
    visit.fill("To, UTC", "2026-01-04T00:00")
    button(visit.dialog, "Count the ticks").click()
    expect(visit.dialog.get_by_role("status")).to_have_text("3 ticks are in the range.")
    visit.confirm("Make 3 jobs")
    visit.said("Backfill of daily_report has begun")
    visit.until(
        "jobs?q=schedule:daily_report state:done",
        lambda jobs: len(jobs["items"]) == 3,
        "the jobs of all three ticks ran",
    )
    return Line("backfill 3 ticks", "schedule daily_report")


def reset(visit: Visit) -> Line:
    """Change one that the code declares, and take that back."""
    visit.open("schedules?open=sync_stock")
    visit.press("Change")
    visit.fill("Every", "3h")
    expect(visit.dialog.locator(".next li")).to_have_count(5)
    visit.confirm("Save")
    visit.said("sync_stock is changed")
    assert visit.read("schedules/sync_stock")["every"] == 3 * 3600
    visit.press("As in the code")
    visit.said("sync_stock is as the code declares it")
    assert visit.read("schedules/sync_stock")["every"] == 3600
    return Line("reset", "schedule sync_stock")


def delete(visit: Visit) -> Line:
    visit.open("schedules?open=hourly")
    visit.press("Delete")
    visit.confirm("Delete")
    visit.said("hourly is deleted")
    expect(visit.main.get_by_text("hourly")).to_have_count(0)
    assert visit.page.request.get("admin/schedules/hourly").status == 404
    return Line("delete", "schedule hourly")
