"""Actions on users and tokens, and the end of the session."""

import re

from playwright.sync_api import Locator, expect

from tests.browser.site import PASSWORD
from tests.browser.visit import Line, Visit

SECRET = re.compile(r"durio_\w+_\w+")


def row(visit: Visit, name: str) -> Locator:
    return visit.main.get_by_role("row").filter(has_text=name)


def add_user(visit: Visit) -> Line:
    visit.open("users")
    visit.press("New user")
    visit.fill("Name", "bob")
    visit.fill("Password", PASSWORD)
    visit.dialog.get_by_label("Role").select_option("operator")
    visit.confirm("Save")
    visit.said("bob may come in")
    expect(row(visit, "bob")).to_contain_text("operator")
    return Line("add user", "user bob")


def change_user(visit: Visit) -> Line:
    visit.open("users")
    visit.press("Change", row(visit, "bob"))
    visit.dialog.get_by_label("Role").select_option("viewer")
    visit.fill("Queues", "mail, payments")
    visit.confirm("Save")
    visit.said("bob is changed")
    expect(row(visit, "bob")).to_contain_text("mail, payments")
    (bob,) = [each for each in visit.read("users")["items"] if each["name"] == "bob"]
    assert (bob["role"], bob["queues"]) == ("viewer", ["mail", "payments"])
    return Line("change user", "user bob")


def delete_user(visit: Visit) -> Line:
    visit.open("users")
    visit.press("Delete bob", row(visit, "bob"))
    visit.confirm("Delete")
    visit.said("bob is deleted")
    expect(row(visit, "bob")).to_have_count(0)
    return Line("remove user", "user bob")


def create_token(visit: Visit) -> Line:
    """Its secret is shown once, and works."""
    visit.open("users")
    visit.press("New token")
    visit.fill("Name", "ci")
    visit.dialog.get_by_role("checkbox", name="enqueue").check()
    visit.fill("Tasks", "page_of")
    visit.press("Make the token", visit.dialog)
    secret = visit.dialog.get_by_text(SECRET)
    expect(secret).to_be_visible()
    text = secret.inner_text()
    visit.confirm("I have it")
    expect(row(visit, "ci")).to_contain_text("shop.page_of")
    assert text not in visit.page.content()
    answer = visit.page.request.post(
        "admin/jobs",
        data={"task": "page_of", "kwargs_json": '{"number": 1}'},
        headers={"Authorization": f"Bearer {text}"},
    )
    assert answer.status == 201, answer.text()
    (token,) = visit.read("tokens")["items"]
    return Line("create token", token["id"])


def revoke_token(visit: Visit) -> Line:
    visit.open("users")
    token = visit.first("tokens")["id"]
    visit.press("Revoke", row(visit, "ci"))
    visit.confirm("Revoke")
    visit.said("ci is revoked")
    expect(row(visit, "ci")).to_have_count(0)
    return Line("revoke token", token)


def log_out(visit: Visit) -> None:
    """The last action: a session leaves no line, and nothing can be read after it."""
    visit.open("./")
    visit.page.get_by_role("link", name="Sign out").click()
    visit.page.get_by_role("button", name="Log out").click()
    expect(visit.page.get_by_label("Password")).to_be_visible()
    assert visit.page.request.get("admin/me").status == 401
    visit.open("jobs")  # the page without a session
    expect(visit.page.get_by_label("Password")).to_be_visible()
