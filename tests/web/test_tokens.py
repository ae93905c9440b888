"""Tokens: what they allow, their ends, and HTTP Basic."""

import pytest

from durio import App
from durio.errors import InvalidOption
from durio.web.access.tokens import TokenRequest, Tokens
from tests.unit.app.app_harness import virtual
from tests.web.browser import browser, dashboard
from tests.web.logins import PASSWORD, add_users, token_of


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}", "Sec-Fetch-Site": ""}


@virtual(name="shop")
async def test_a_token_works_until_it_is_revoked(app: App):
    text = await token_of(app)
    tokens = Tokens(await app.store(), app.name, app.clock)
    (stored,) = await tokens.list()
    assert text.rpartition("_")[2] not in str(stored)
    async with browser(dashboard(app), headers=bearer(text)) as client:
        me = (await client.get("/admin/me")).json()
        assert (me["user"], me["role"], me["via"]) == ("ci", "operator", "token")
        assert (await tokens.list())[0].last_used_at == app.now()
        # Without a cookie there is nothing that another site could use.
        answer = await client.post("/admin/jobs/0198/retry", json={})
        assert answer.status_code == 404
        await tokens.revoke(stored.id)
        assert (await client.get("/admin/me")).status_code == 401
    assert not await tokens.list()


@virtual(name="shop")
async def test_a_use_never_brings_a_revoked_token_back(app: App):
    text = await token_of(app)
    tokens = Tokens(await app.store(), app.name, app.clock)
    (stored,) = await tokens.list()
    await tokens.revoke(stored.id)
    await tokens.touch(stored, 1)
    assert await tokens.find(text) is None


@virtual(name="shop")
async def test_a_token_ends(app: App):
    text = await token_of(app, ends_in_seconds=60.0)
    async with browser(dashboard(app), headers=bearer(text)) as client:
        await app.clock.sleep(59)
        assert (await client.get("/admin/me")).status_code == 200
        await app.clock.sleep(1)
        assert (await client.get("/admin/me")).status_code == 401


@virtual(name="shop")
async def test_a_token_for_a_purpose_is_not_a_login(app: App):
    text = await token_of(app, purposes=("metrics",))
    async with browser(dashboard(app), headers=bearer(text)) as client:
        answer = await client.get("/admin/me")
        assert (answer.status_code, answer.json()["code"]) == (403, "role_too_low")


@virtual(name="shop")
async def test_a_token_sees_its_queues_and_tasks_only(app: App):
    made = {
        (queue, task): (await app.named(task).options(queue=queue).enqueue()).id
        for queue in ("mail", "video")
        for task in ("send:now", "cut")
    }
    text = await token_of(app, queues=("mail",), tasks=("shop.send:*",))
    async with browser(dashboard(app), headers=bearer(text)) as client:
        items = (await client.get("/admin/jobs")).json()["items"]
        assert [item["id"] for item in items] == [made["mail", "send:now"]]
        for key, job_id in made.items():
            answer = await client.get(f"/admin/jobs/{job_id}")
            assert answer.status_code == (200 if key == ("mail", "send:now") else 404)


@pytest.mark.parametrize(
    "text",
    [
        "durio_000000000000_" + "A" * 43,
        "durio_x_y",
        "durio_",
        "durio_" + "A" * 5000,
    ],
)
def test_a_wrong_token_is_refused_whatever_else_is_sent(text: str):
    @virtual(name="shop")
    async def ask(app: App):
        served = dashboard(app, is_dev=True)
        headers = {"Authorization": f"Bearer {text}"}
        place = {"host": "localhost:7700", "address": "127.0.0.1"}
        async with browser(served, **place) as client:
            assert (await client.get("/admin/me")).json()["via"] == "dev"
            answer = await client.get("/admin/me", headers=headers)
            assert answer.status_code == 401

    ask()


@virtual(name="shop")
async def test_a_token_with_another_secret_is_refused(app: App):
    text = await token_of(app)
    other = text[:-1] + ("A" if text[-1] != "A" else "B")
    async with browser(dashboard(app), headers=bearer(other)) as client:
        assert (await client.get("/admin/me")).status_code == 401


@virtual(name="shop")
async def test_a_token_in_the_address_is_refused(app: App):
    text = await token_of(app)
    async with browser(dashboard(app)) as client:
        for name in ("token", "access_token", "q"):
            answer = await client.get("/admin/me", params={name: text})
            assert (answer.status_code, answer.json()["code"]) == (
                400,
                "token_in_address",
            )


@pytest.mark.parametrize(
    "fields",
    [
        {"role": None},
        {"role": "root"},
        {"role": "admin", "purposes": ("fly",)},
        {"role": "admin", "ends_in_seconds": 0.0},
    ],
)
def test_a_token_that_cannot_be_is_refused(fields: dict[str, object]):
    with pytest.raises(InvalidOption):
        TokenRequest(name="ci", **fields).check()


# --- HTTP Basic


@virtual(name="shop")
async def test_basic_is_off_unless_it_is_asked_for(app: App):
    await add_users(app)
    async with browser(dashboard(app), auth=("olga", PASSWORD)) as client:
        assert (await client.get("/admin/me")).status_code == 401


@virtual(name="shop")
async def test_basic_takes_the_same_users_with_the_same_limits(app: App):
    users = await add_users(app)
    served = dashboard(app, is_basic=True)
    async with browser(served) as client:
        asked = await client.get("/admin/me")
        assert asked.headers["www-authenticate"] == 'Basic realm="durio"'
        right, wrong = ("olga", PASSWORD), ("olga", "wrong horse")
        me = (await client.get("/admin/me", auth=right)).json()
        assert (me["user"], me["via"]) == ("olga", "basic")
        cross = {"Sec-Fetch-Site": "cross-site"}
        answer = await client.post(
            "/admin/jobs/0198/retry", json={}, auth=right, headers=cross
        )
        assert (answer.status_code, answer.json()["code"]) == (403, "cross_site")
        await users.remove("olga")  # within the second that a password is known
        assert (await client.get("/admin/me", auth=right)).status_code == 401
        for _ in range(4):
            assert (await client.get("/admin/me", auth=wrong)).status_code == 401
        assert (await client.get("/admin/me", auth=wrong)).status_code == 429
