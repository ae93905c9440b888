"""Actions on jobs, one by one and many at a time."""

from playwright.sync_api import expect

from tests.browser.action_scene import LATER, RETURNS
from tests.browser.visit import Line, Visit, button


def id_of(visit: Visit, query: str) -> str:
    """Return the id of the newest job that matches."""
    return visit.first(f"jobs?q={query}")["id"]


def opened(visit: Visit, query: str) -> str:
    """Open a job; return its id."""
    job = id_of(visit, query)
    visit.open(f"jobs/{job}")
    return job


def retry(visit: Visit) -> Line:
    job = opened(visit, "key:to-retry state:dead")
    died = visit.read(f"jobs/{job}")["finished_at"]
    visit.press("Retry")
    visit.said("Retrying charge")
    # The bank refuses the card again.
    visit.until(
        f"jobs/{job}",
        lambda now: now["state"] == "dead" and now["finished_at"] > died,
        "it has died once more",
    )
    return Line("retry", job)


def edit_and_retry(visit: Visit) -> Line:
    job = opened(visit, "key:to-edit state:dead")
    visit.press("Edit and retry")
    visit.fill("Arguments", '{"order_id": 1, ')
    expect(button(visit.dialog, "Retry with this")).to_be_disabled()
    visit.fill("Arguments", '{"order_id": 1, "amount": "42"}')
    visit.confirm("Retry with this")
    visit.said("Retrying charge")
    done = visit.until(f"jobs/{job}", lambda now: now["state"] == "done", "it is paid")
    assert done["result_json"] == '"paid"'
    return Line("retry_edited", job)


def duplicate(visit: Visit) -> Line:
    job = opened(visit, "task:resize state:done")
    visit.press("Duplicate")
    visit.said("Made a copy of resize")
    expect(visit.page).not_to_have_url(f"jobs/{job}")
    copy = visit.page.url.rpartition("/")[2]
    assert copy != job
    visit.until(f"jobs/{copy}", lambda now: now["state"] == "done", "the copy ran")
    return Line("duplicate", job)


def cancel(visit: Visit) -> Line:
    job = opened(visit, "key:to-cancel")
    visit.press("Cancel")
    visit.said("Cancelling page_of")
    expect(visit.main.locator(".st.big", has_text="cancelled")).to_be_visible()
    assert visit.read(f"jobs/{job}")["state"] == "cancelled"
    return Line("cancel", job)


def run_now(visit: Visit) -> Line:
    job = opened(visit, "key:to-run")
    visit.press("Run now")
    visit.said("page_of is ready to run")
    visit.until(f"jobs/{job}", lambda now: now["state"] == "done", "it ran")
    return Line("run_now", job)


def discard(visit: Visit) -> Line:
    job = opened(visit, "key:to-discard state:dead")
    visit.press("Discard")
    visit.confirm("Discard 1 job")
    visit.said("Discarded charge")
    expect(visit.main.get_by_role("heading", name="Jobs")).to_be_visible()
    assert visit.page.request.get(f"admin/jobs/{job}").status == 404
    return Line("discard", job)


def new_job(visit: Visit) -> Line:
    """With arguments that the task refuses, and then with right ones."""
    visit.open("jobs")
    visit.press("New job")
    yes = button(visit.dialog, "Make the job")
    visit.fill("Task", "page_of")
    visit.fill("Arguments", '{"number": 1')
    expect(yes).to_be_disabled()
    visit.fill("Arguments", '{"size": 1}')
    yes.click()
    expect(visit.dialog.get_by_role("alert")).to_contain_text("number")
    visit.fill("Arguments", '{"number": 7}')
    yes.click()
    visit.said("page_of is made")
    expect(visit.dialog).to_have_count(0)
    job = visit.page.url.rpartition("/")[2]
    done = visit.until(f"jobs/{job}", lambda now: now["state"] == "done", "it ran")
    assert (done["kwargs_json"], done["result_json"]) == ('{"number": 7}', "7")
    return Line("enqueue", job)


def retry_all_that_match(visit: Visit) -> Line:
    """More than 100: the number is typed; the page shows how it ended."""
    visit.open("jobs?q=queue:returns state:dead")
    visit.main.get_by_label("Select all rows").check()
    visit.press(f"All {RETURNS} that match", visit.page.get_by_role("toolbar"))
    visit.press("Retry", visit.page.get_by_role("toolbar"))
    yes = button(visit.dialog, f"Retry {RETURNS} jobs")
    expect(visit.dialog).to_contain_text("refund")
    expect(yes).to_be_disabled()
    visit.fill(f"Type {RETURNS} to go on", str(RETURNS - 1))
    expect(yes).to_be_disabled()
    visit.fill(f"Type {RETURNS} to go on", str(RETURNS))
    visit.confirm(f"Retry {RETURNS} jobs")
    visit.said(f"{RETURNS} jobs retried")
    return Line("retry", "returns")


def cancel_selected(visit: Visit) -> Line:
    visit.open("jobs?q=queue:pickups")
    boxes = visit.main.get_by_label("Select shop.page_of")
    expect(boxes).to_have_count(LATER["pickups"])
    boxes.nth(0).check()
    boxes.nth(1).check()
    visit.press("Cancel", visit.page.get_by_role("toolbar"))
    visit.said("Cancelling 2 jobs")
    left = visit.read("jobs?q=queue:pickups state:scheduled")["items"]
    assert len(left) == LATER["pickups"] - 2
    cancelled = visit.first("jobs?q=queue:pickups state:cancelled")
    return Line("cancel", cancelled["id"])


# --- dead letters, one after the other


def review_and_retry(visit: Visit) -> Line:
    job = id_of(visit, "key:to-review state:dead")
    visit.open(f"dead?q=key:to-review&open={job}")
    visit.press("Retry", visit.main.locator(".rev"))
    visit.said("Retrying charge")
    return Line("retry", job)


def review_and_discard(visit: Visit) -> Line:
    job = id_of(visit, "key:to-forget state:dead")
    visit.open(f"dead?q=key:to-forget&open={job}")
    visit.press("Discard", visit.main.locator(".rev"))
    visit.confirm("Discard 1 job")
    visit.said("Discarded charge")
    assert visit.page.request.get(f"admin/jobs/{job}").status == 404
    return Line("discard", job)


def export(visit: Visit) -> None:
    """It changes nothing, so it has no line in the audit."""
    visit.open("dead?q=queue:labels")
    with visit.page.expect_download() as saved:
        visit.main.get_by_role("link", name="Export JSON Lines").click()
    lines = saved.value.path().read_text(encoding="utf-8").splitlines()
    assert saved.value.suggested_filename == "dead-letters.jsonl"
    assert lines
    assert all("print_label" in line for line in lines)
