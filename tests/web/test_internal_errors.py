"""An error that no refusal explains is a problem, too, and is in the log."""

import pytest

from durio import App
from durio.web import User
from tests.unit.app.app_harness import virtual
from tests.unit.app.test_ends import Listener
from tests.web.browser import browser, dashboard


@virtual(name="shop")
async def test_a_bug_is_a_problem_without_its_text(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    async def broken() -> None:
        raise ZeroDivisionError("a secret")

    listener = Listener(app)
    async with browser(dashboard(app, User("ann", "admin"))) as client:
        monkeypatch.setattr(app, "store", broken)
        answer = await client.get("/admin/queues")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "internal"
    assert "secret" not in answer.text
    assert "content-security-policy" in answer.headers
    found = [fields for name, fields in listener.heard if name == "web.failed"]
    assert [fields["error"] for fields in found] == ["ZeroDivisionError: a secret"]
