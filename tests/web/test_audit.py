"""`admin/audit`, `admin/settings`, `admin/doctor`, `admin/openapi.json`."""

from pathlib import Path
from typing import Any

import pytest

from durio import App
from durio.model.effects import Effects
from durio.ports.control import AuditNote
from durio.web import User
from durio.web.api import audit
from tests.unit.app.app_harness import real, virtual
from tests.web.browser import browser, dashboard

ADMIN, VIEWER = User("ann", "admin"), User("vera", "viewer")
PATH = "/admin/audit"


async def note(app: App, who: str, verb: str, target: str, details: str = "") -> None:
    line = AuditNote("shop", who, verb, target, details=details)
    await (await app.store()).commit(Effects(), note=line)


async def targets(client: Any, **params: Any) -> list[str]:
    return [
        i["target"] for i in (await client.get(PATH, params=params)).json()["items"]
    ]


@virtual(name="shop")
async def test_changes_are_listed_with_their_details(app: App):
    job = await app.named("send").enqueue()
    async with browser(dashboard(app, ADMIN)) as client:
        await client.post(f"/admin/jobs/{job.id}/cancel", json={})
        await client.post("/admin/queues/default/pause", json={"reason": "down"})
        pause, cancel = (await client.get(PATH)).json()["items"]
        assert (cancel["verb"], cancel["target"], cancel["count"]) == (
            "cancel",
            job.id,
            1,
        )
        assert cancel["by"] == "ann@192.0.2.7 via dashboard"
        assert cancel["address"] == "192.0.2.7"
        assert len(cancel["request_id"]) == 32
        assert pause["verb"] == "pause"
        assert await targets(client, verb="cancel") == [job.id]
        assert await targets(client, who="ANN@") == [pause["target"], job.id]
        assert await targets(client, who="bob") == []


@virtual(name="shop")
async def test_values_are_hidden_as_payloads_are(app: App):
    await note(app, "ann@x", "change", "a", '{"before": {"x": 1}, "after": {"x": 2}}')
    for user, after in ((ADMIN, '{"x": 2}'), (VIEWER, None)):
        async with browser(dashboard(app, user)) as client:
            (item,) = (await client.get(PATH)).json()["items"]
            assert item["after"] == after


@virtual(name="shop")
async def test_damaged_details_hide_no_line(app: App):
    for details in ("{", "[1]", '"x"', '{"address": 1}'):
        await note(app, "ann@x", "change", "a", details)
    async with browser(dashboard(app, ADMIN)) as client:
        items = (await client.get(PATH)).json()["items"]
    assert [item["request_id"] for item in items] == [None] * 4


@virtual(name="shop")
async def test_the_audit_is_read_in_pages(app: App):
    for n in range(7):
        await note(app, "ann@x" if n % 2 else "bob@x", "change", str(n))
    async with browser(dashboard(app, ADMIN)) as client:
        found: list[str] = []
        params: dict[str, Any] = {"limit": 2, "who": "bob"}
        while True:
            page = (await client.get(PATH, params=params)).json()
            found += [item["target"] for item in page["items"]]
            if page["cursor"] is None:
                break
            params["cursor"] = page["cursor"]
        assert found == ["6", "4", "2", "0"]
        other = await client.get(PATH, params={**params, "who": "ann"})
        assert other.status_code == 400


def test_a_long_look_is_partial(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit, "READ_LINES", 2)
    monkeypatch.setattr(audit, "LOOK_LINES_MAX", 4)

    @virtual(name="shop")
    async def ask(app: App):
        await note(app, "bob@x", "change", "first")
        for n in range(6):
            await note(app, "ann@x", "change", str(n))
        async with browser(dashboard(app, ADMIN)) as client:
            page = (await client.get(PATH, params={"who": "bob"})).json()
            assert (page["items"], page["partial"]) == ([], True)
            params = {"who": "bob", "cursor": page["cursor"]}
            page = (await client.get(PATH, params=params)).json()
            assert [item["target"] for item in page["items"]] == ["first"]
            assert not page["partial"]

    ask()


@virtual(name="shop")
async def test_a_user_of_one_queue_sees_its_own_changes_only(app: App):
    await note(app, "ann@x via dashboard", "change", "a")
    await note(app, "bob@x via dashboard", "change", "b")
    async with browser(dashboard(app, User("bob", "admin", queues=["mail"]))) as client:
        assert await targets(client) == ["b"]


def test_operators_see_the_settings_without_passwords():
    @real(name="shop", settings={"worker": {"concurrency": 7}})
    async def ask(app: App):
        async with browser(dashboard(app, User("o", "operator"))) as client:
            found = (await client.get("/admin/settings")).json()
            known = {item["name"]: item for item in found["settings"]}
            assert known["worker.concurrency"]["value"] == "7"
            assert known["worker.concurrency"]["origin"].startswith("code")
            assert found["store"]["url_redacted"] == "sqlite:///:memory:"
            assert found["versions"]["durio"]

    ask()


def test_the_doctor_examines_at_most_every_ten_seconds(tmp_path: Path):
    @real(name="shop")
    async def ask(_: App):
        app = App(f"sqlite:///{tmp_path}/jobs.db", name="shop")
        async with app, browser(dashboard(app, User("o", "operator"))) as client:
            await app.named("send").enqueue()
            first = (await client.get("/admin/doctor")).json()
            codes = {finding["code"] for finding in first["findings"]}
            assert {"machine.python", "store.schema"} <= codes
            assert any(code.startswith(("queue", "worker")) for code in codes)
            again = (await client.get("/admin/doctor")).json()
            assert again["ran_at"] == first["ran_at"]

    ask()


@virtual(name="shop")
async def test_the_document_names_the_mount(app: App):
    async with browser(dashboard(app, VIEWER), root="/x/y") as client:
        document = (await client.get("/admin/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    assert document["servers"] == [{"url": "/x/y"}]
    assert "/admin/jobs/{job_id}/retry" in document["paths"]
