"""`admin/users` and `admin/tokens`: admins give rights, at most their own."""

from typing import Any

import pytest

from durio import App
from durio.web import User
from tests.unit.app.app_harness import virtual
from tests.web.browser import browser, dashboard
from tests.web.logins import PASSWORD, add_users, log_in, token_of, users_of

ADMIN = User("ann", "admin")
USERS, TOKENS = "/admin/users", "/admin/tokens"


@virtual(name="shop")
async def test_an_admin_manages_users(app: App):
    served = dashboard(app, ADMIN)
    async with browser(served) as client:
        body = {
            "name": "bob",
            "password": PASSWORD,
            "role": "viewer",
            "queues": ["mail"],
        }
        made = await client.post(USERS, json=body)
        assert made.status_code == 201
        assert made.json() == {
            "name": "bob",
            "role": "viewer",
            "queues": ["mail"],
            "payloads": False,
            "created_at": made.json()["created_at"],
            "last_login_at": None,
        }
        assert PASSWORD not in made.text
        again = await client.post(USERS, json=body)
        assert (again.status_code, again.json()["code"]) == (409, "user_conflict")
        change = {"role": "operator", "queues": None}
        changed = (await client.patch(f"{USERS}/bob", json=change)).json()
        assert (changed["role"], changed["queues"]) == ("operator", None)
        (listed,) = (await client.get(USERS)).json()["items"]
        assert listed == changed
        gone = await client.request("DELETE", f"{USERS}/bob", json={})
        assert gone.json() == {"status": "removed"}
        for method, path in (("PATCH", f"{USERS}/bob"), ("DELETE", f"{USERS}/bob")):
            answer = await client.request(method, path, json={})
            assert (answer.status_code, answer.json()["code"]) == (
                404,
                "user_not_found",
            )
    lines = await (await app.store()).audit("shop", limit=9)
    assert [(line.verb, line.target) for line in reversed(lines)] == [
        ("add user", "user bob"),
        ("change user", "user bob"),
        ("remove user", "user bob"),
    ]
    details = lines[1].read_details() or {}
    assert details["before"] == {"role": "viewer", "queues": ["mail"]}
    assert details["after"] == {"role": "operator", "queues": None}


@virtual(name="shop")
async def test_a_new_password_ends_the_sessions_of_its_user(app: App):
    await add_users(app)
    served = dashboard(app)
    async with browser(served) as olga, browser(served) as ann:
        await log_in(olga)
        await log_in(ann, "ann")
        assert (await olga.get("/admin/me")).status_code == 200
        change = {"password": "another horse"}
        answer = await ann.patch(f"{USERS}/olga", json=change)
        assert answer.status_code == 200
        assert (await olga.get("/admin/me")).status_code == 401
        assert (await ann.get("/admin/me")).status_code == 200
    (line,) = await (await app.store()).audit("shop", limit=1)
    assert "another horse" not in line.details


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"name": ""}, 400),
        ({"name": "a b"}, 400),
        ({"name": "x" * 129}, 400),
        ({"name": "a\u202eb"}, 400),
        ({"password": "short"}, 400),
        ({"password": "x" * 1025}, 400),
        ({"role": "root"}, 422),
        ({"role": None}, 422),
        ({"queues": "mail"}, 422),
        ({"payloads": "yes"}, 422),
        ({"admin": True}, 422),
    ],
)
def test_users_that_cannot_be(change: dict[str, Any], status: int):
    @virtual(name="shop")
    async def ask(app: App):
        body = {"name": "bob", "password": PASSWORD, "role": "viewer", **change}
        async with browser(dashboard(app, ADMIN)) as client:
            answer = await client.post(USERS, json=body)
            assert answer.status_code == status, answer.text
        assert await (await users_of(app)).is_empty()

    ask()


@virtual(name="shop")
async def test_users_and_tokens_are_listed_in_pages(app: App):
    users = await add_users(app)
    for n in range(3):
        await token_of(app, name=f"t{n}")
    async with browser(dashboard(app, ADMIN)) as client:
        for path, key, wanted in (
            (USERS, "name", [user.name for user in await users.list()]),
            (TOKENS, "name", ["t0", "t1", "t2"]),
        ):
            found: list[str] = []
            cursor = ""
            while cursor is not None:
                params = {"limit": 2, "cursor": cursor}
                page = (await client.get(path, params=params)).json()
                found += [item[key] for item in page["items"]]
                cursor = page["cursor"]
            assert sorted(found) == wanted


@virtual(name="shop")
async def test_an_admin_makes_and_revokes_tokens(app: App):
    async with browser(dashboard(app, ADMIN)) as client:
        body = {
            "name": "web",
            "purposes": ["enqueue"],
            "tasks": ["send", "email:*"],
            "queues": ["mail"],
            "expires": "90d",
        }
        made = (await client.post(TOKENS, json=body)).json()
        (listed,) = (await client.get(TOKENS)).json()["items"]
        assert (listed["id"], listed["role"]) == (made["id"], None)
        assert listed["tasks"] == ["shop.send", "shop.email:*"]
        assert listed["expires_at"] > listed["created_at"]
        assert listed["created_by"] == "ann@192.0.2.7 via dashboard"
        assert made["token"] not in (await client.get(TOKENS)).text
        bearer = {"Authorization": f"Bearer {made['token']}"}
        job = {"task": "send", "queue": "mail"}
        sent = await client.post("/admin/jobs", json=job, headers=bearer)
        assert sent.status_code == 201
        gone = await client.request("DELETE", f"{TOKENS}/{made['id']}", json={})
        assert gone.json() == {"status": "revoked"}
        sent = await client.post("/admin/jobs", json=job, headers=bearer)
        assert sent.status_code == 401
        for path in (made["id"], "x", "0" * 300):
            answer = await client.request("DELETE", f"{TOKENS}/{path}", json={})
            assert answer.status_code == 404
        for wrong in (
            {"name": "x"},
            {"name": "x", "role": "admin", "expires": "soon"},
            {"name": "x", "role": "admin", "expires": 0},
            {"name": "", "role": "admin"},
        ):
            assert (await client.post(TOKENS, json=wrong)).status_code == 400, wrong
    verbs = [line.verb for line in await (await app.store()).audit("shop", limit=9)]
    assert verbs == ["revoke token", "enqueue", "create token"]


@pytest.mark.parametrize(
    "admin",
    [
        User("q", "admin", queues=["mail"]),
        User("p", "admin", payloads=False),
    ],
)
def test_an_admin_cannot_give_more_than_its_own_rights(admin: User):
    @virtual(name="shop")
    async def ask(app: App):
        await add_users(app)
        async with browser(dashboard(app, admin)) as client:
            user = {"name": "x", "password": PASSWORD, "role": "admin"}
            token = {"name": "x", "role": "admin"}
            for method, path, body in (
                ("POST", USERS, user),
                ("POST", USERS, {**user, "role": "viewer", "payloads": True}),
                ("POST", TOKENS, token),
                ("PATCH", f"{USERS}/vera", {"payloads": True}),
                ("PATCH", f"{USERS}/vera", {"role": "admin"}),
            ):
                answer = await client.request(method, path, json=body)
                assert answer.status_code == 403, (method, path, body)
        assert {user.name for user in await (await users_of(app)).list()} == {
            "ann",
            "olga",
            "vera",
        }

    ask()
