"""Actions on error groups, plans, limits, breakers and workers."""

from playwright.sync_api import Locator, expect

from tests.browser.visit import Line, Visit

WHY = "the bank knows of it"


def group_of(visit: Visit, kind: str) -> str:
    """Return the fingerprint of a group of errors by the end of its type."""
    groups = visit.read("errors?limit=50")["items"]
    return next(each["fingerprint"] for each in groups if each["type"].endswith(kind))


def mute(visit: Visit) -> Line:
    group = group_of(visit, "CardRefused")
    visit.open(f"errors?open={group}")
    visit.press("Mute")
    visit.fill("Reason", WHY)
    visit.confirm("Mute")
    visit.said("The group is muted")
    visit.shown(WHY)
    assert visit.read(f"errors/{group}")["muted"]["reason"] == WHY
    return Line("mute", f"errors {group}")


def unmute(visit: Visit) -> Line:
    group = visit.first("errors?muted=true")["fingerprint"]
    visit.open(f"errors?muted=1&open={group}")
    visit.press("Unmute")
    visit.said("The group is shown again")
    assert visit.read(f"errors/{group}")["muted"] is None
    return Line("unmute", f"errors {group}")


def retry_group(visit: Visit) -> Line:
    group = group_of(visit, "OSError")
    visit.open(f"errors?open={group}")
    visit.press("Retry 3 dead")
    visit.said("3 jobs retried")
    run = visit.first("bulk")
    assert (run["verb"], run["done"]) == ("retry", 3)
    return Line("retry", group)


# --- plans


def retry_plan(visit: Visit) -> Line:
    plan = visit.first("plans?state=failed")["id"]
    visit.open(f"plans/{plan}")
    visit.press("Retry 1 failed")
    visit.said("Retrying the failed jobs of the plan")
    visit.shown("once")  # how often it was retried
    assert visit.read(f"plans/{plan}")["resumed"] == 1
    return Line("retry", f"plan {plan}")


def cancel_plan(visit: Visit) -> Line:
    plan = visit.first("plans?state=running")["id"]
    visit.open(f"plans/{plan}")
    visit.press("Cancel the rest")
    visit.confirm("Cancel the rest")
    visit.said("Cancelling the rest of the plan")
    visit.until(f"plans/{plan}", lambda now: now["state"] == "cancelled", "it ended")
    return Line("cancel", f"plan {plan}")


# --- what holds jobs back


def row(visit: Visit, name: str) -> Locator:
    return visit.main.get_by_role("row").filter(has_text=name)


def change_limit(visit: Visit) -> Line:
    visit.open("limits")
    visit.press("Change", row(visit, "import_orders"))
    visit.fill("Jobs at once", "2")
    visit.confirm("Save")
    visit.said("import_orders is changed")
    expect(row(visit, "import_orders")).to_contain_text("set by hand")
    visit.until(
        "jobs?q=task:import_orders state:running",
        lambda jobs: len(jobs["items"]) == 2,
        "a second job runs",
    )
    return Line("set limit", "import_orders")


def give_limit_back(visit: Visit) -> Line:
    visit.open("limits")
    visit.press("Change", row(visit, "import_orders"))
    visit.confirm("As in the code")
    visit.said("import_orders is as the code declares it")
    expect(row(visit, "import_orders")).not_to_contain_text("set by hand")
    assert visit.read("limits/import_orders")["limit"]["size"] == 1
    return Line("reset limit", "import_orders")


def open_breaker(visit: Visit) -> Line:
    visit.open("limits")
    visit.press("Open", row(visit, "carrier"))
    visit.fill("Reason", WHY)
    visit.confirm("Open")
    visit.said("carrier is open")
    expect(row(visit, "carrier")).to_contain_text("open by hand")
    assert visit.read("breakers/carrier")["forced"]["reason"] == WHY
    return Line("open", f"breaker carrier ({WHY})")


def close_breaker(visit: Visit) -> Line:
    visit.open("limits")
    visit.press("Close now", row(visit, "carrier"))
    visit.said("carrier is closed")
    expect(row(visit, "carrier")).to_contain_text("closed by hand")
    return Line("close", "breaker carrier")


def reset_breaker(visit: Visit) -> Line:
    visit.open("limits")
    visit.press("Forget the failures of carrier", row(visit, "carrier"))
    visit.said("carrier begins anew")
    expect(row(visit, "carrier")).not_to_contain_text("by hand")
    assert visit.read("breakers/carrier")["state"] == "closed"
    return Line("reset", "breaker carrier")


# --- workers


def show_stack(visit: Visit) -> Line:
    worker = visit.first("workers")
    visit.open("workers")
    visit.press(f"Stack of {worker['name']}")
    expect(visit.dialog).to_contain_text("import_orders")
    visit.press("Close", visit.dialog)
    return Line("stack", f"worker {worker['id']}")


def drain(visit: Visit) -> Line:
    worker = visit.first("workers")
    visit.open("workers")
    visit.press(f"Drain {worker['name']}")
    visit.confirm("Drain")
    visit.said(f"{worker['name']} drains")
    expect(row(visit, worker["name"])).to_contain_text("draining")
    return Line("drain", f"worker {worker['id']}")
