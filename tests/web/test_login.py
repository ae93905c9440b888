"""The login form, sessions and their ends, limits of tries."""

import pytest

from durio import App
from durio.web.access.sessions import Sessions
from durio.web.access.users import UserChange
from tests.unit.app.app_harness import virtual
from tests.web.browser import browser, dashboard
from tests.web.logins import PASSWORD, add_users, log_in, once_of, users_of

HOUR = 3600.0


@virtual(name="shop")
async def test_a_login_begins_a_session_that_a_logout_ends(app: App):
    await add_users(app)
    async with browser(dashboard(app)) as client:
        assert (await client.get("/admin/me")).status_code == 401
        answer = await log_in(client, following="jobs/0198?tab=log")
        assert (answer.status_code, answer.headers["location"]) == (
            303,
            "/jobs/0198?tab=log",
        )
        cookies = answer.headers.get_list("set-cookie")
        assert "HttpOnly; SameSite=Strict" in cookies[0]
        assert cookies[0].startswith("durio_shop_")
        assert "Path=/;" in cookies[0]
        assert "Secure" not in cookies[0]
        me = (await client.get("/admin/me")).json()
        assert (me["user"], me["role"], me["via"]) == ("olga", "operator", "session")
        old = dict(client.cookies)
        left = await client.post(
            "/logout", data={"once": await once_of(client, "/logout")}
        )
        assert (left.status_code, left.headers["location"]) == (303, "/login")
        assert (await client.get("/admin/me")).status_code == 401
        for name, value in old.items():  # also for one who has kept the cookie
            client.cookies.set(name, value)
        assert (await client.get("/admin/me")).status_code == 401
    assert (await (await users_of(app)).get("olga")).user.last_login_at == app.now()


@virtual(name="shop")
async def test_a_login_says_how_to_make_the_first_user(app: App):
    async with browser(dashboard(app)) as client:
        assert "durio users add NAME --role admin" in (await client.get("/login")).text
        await add_users(app)
        page = await client.get("/login")
    assert "durio users add" not in page.text
    assert "script" not in page.text


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("olga", "wrong horse"),
        ("nobody", PASSWORD),
        ("", PASSWORD),
        ("olga", "x" * 1025),
    ],
)
def test_a_wrong_login_is_refused(user: str, password: str):
    @virtual(name="shop")
    async def ask(app: App):
        await add_users(app)
        async with browser(dashboard(app)) as client:
            answer = await log_in(client, user, password)
            assert answer.status_code == 401
            assert "Wrong user name or password" in answer.text
            assert (await client.get("/admin/me")).status_code == 401

    ask()


@virtual(name="shop")
async def test_a_password_of_a_megabyte_is_not_read(app: App):
    async with browser(dashboard(app)) as client:
        answer = await log_in(client, password="x" * 1_000_000)
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


@virtual(name="shop")
async def test_tries_are_limited_per_account(app: App):
    await add_users(app)
    async with browser(dashboard(app)) as client:
        for _ in range(5):
            assert (await log_in(client, password="wrong horse")).status_code == 401
        answer = await log_in(client)
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "300"
        assert (await log_in(client, "ann")).status_code == 303  # another account
        await app.clock.sleep(300)
        assert (await log_in(client)).status_code == 303


@virtual(name="shop")
async def test_tries_are_limited_per_address(app: App):
    await add_users(app)
    async with browser(dashboard(app)) as client:
        for n in range(20):
            assert (await log_in(client, f"user{n}")).status_code == 401
        assert (await log_in(client)).status_code == 429


@virtual(name="shop")
async def test_a_right_password_costs_no_try(app: App):
    await add_users(app)
    async with browser(dashboard(app)) as client:
        for n in range(30):
            wrong = await log_in(client, password="wrong horse") if n % 5 == 0 else None
            assert wrong is None or wrong.status_code == 401
            if n % 5 == 4:
                await app.clock.sleep(80)
            assert (await log_in(client)).status_code == 303


@virtual(name="shop")
async def test_a_form_needs_its_one_time_value_and_our_own_page(app: App):
    await add_users(app)
    fields = {"user": "olga", "password": PASSWORD}
    async with browser(dashboard(app)) as client:
        assert (await client.post("/login", data=fields)).status_code == 403
        once = await once_of(client)
        wrong = await client.post("/login", data={**fields, "once": once[::-1]})
        assert wrong.status_code == 403
        for headers in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "", "Origin": "http://evil.example.com"},
            {"Sec-Fetch-Site": "", "Origin": "null"},
        ):
            sent = {**fields, "once": once}
            answer = await client.post("/login", data=sent, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "cross_site")
        as_json = await client.post("/login", json={**fields, "once": once})
        assert as_json.status_code == 415


@virtual(name="shop")
async def test_a_login_ignores_the_session_it_is_given(app: App):
    """Session fixation: a new id, and the old one is ended."""
    await add_users(app)
    async with browser(dashboard(app)) as client:
        await log_in(client, "vera")
        (name, old) = next(
            (k, v) for k, v in client.cookies.items() if k.startswith("durio_shop_")
        )
        await log_in(client, "ann")
        assert client.cookies[name] != old
        sessions = Sessions(await app.store(), app.name, app.clock)
        assert await sessions.find(old) is None
        planted = "A" * 43
        client.cookies.set(name, planted, domain="dash.example.com", path="/")
        await log_in(client, "ann")
    assert await sessions.find(planted) is None


@virtual(name="shop")
async def test_a_session_ends_idle_and_at_last(app: App):
    await add_users(app)
    async with browser(dashboard(app)) as client:
        await log_in(client)
        await app.clock.sleep(11.9 * HOUR)
        assert (await client.get("/admin/me")).status_code == 200
        await app.clock.sleep(11.9 * HOUR)
        assert (await client.get("/admin/me")).status_code == 200
        await app.clock.sleep(12 * HOUR)
        assert (await client.get("/admin/me")).status_code == 401
        await log_in(client)
        for _ in range(16):
            await app.clock.sleep(10 * HOUR)
            assert (await client.get("/admin/me")).status_code == 200
        await app.clock.sleep(8 * HOUR)
        assert (await client.get("/admin/me")).status_code == 401


@virtual(name="shop")
async def test_a_changed_user_has_no_sessions_any_more(app: App):
    users = await add_users(app)
    changes = [
        UserChange(password="another horse"),
        UserChange(role="viewer"),
        UserChange(queues=("mail",)),
    ]
    password = PASSWORD
    async with browser(dashboard(app)) as client:
        for change in changes:
            assert (await log_in(client, password=password)).status_code == 303
            assert (await client.get("/admin/me")).status_code == 200
            await users.change("olga", change)
            assert (await client.get("/admin/me")).status_code == 401
            password = "another horse"
        await log_in(client, password=password)
        await users.remove("olga")
        assert (await client.get("/admin/me")).status_code == 401
        await users.add("olga", password, "admin")
        assert (await client.get("/admin/me")).status_code == 401


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ("/x/y/jobs/0198", "/x/y/jobs/0198"),
        ("jobs?q=state:dead", "/x/y/jobs?q=state:dead"),
        ("//evil.example.com", "/x/y/"),
        ("https://evil.example.com/", "/x/y/"),
        ("javascript:alert(1)", "/x/y/"),
        ("/\\evil.example.com", "/x/y/"),
        ("jobs/../../admin", "/x/y/"),
        ("/x/y//evil.example.com", "/x/y/"),
        ("jobs\r\nSet-Cookie: a=b", "/x/y/"),
        ("login?next=login", "/x/y/"),
        ("", "/x/y/"),
    ],
)
def test_next_stays_in_the_mount(asked: str, path: str):
    @virtual(name="shop")
    async def ask(app: App):
        await add_users(app)
        async with browser(dashboard(app), root="/x/y") as client:
            answer = await log_in(client, following=asked)
            assert answer.headers["location"] == path
            cookie = answer.headers.get_list("set-cookie")[0]
            assert "Path=/x/y/;" in cookie

    ask()


@virtual(name="shop")
async def test_cookies_are_secure_on_https(app: App):
    await add_users(app)
    proxied = {"X-Forwarded-Proto": "https"}
    trusted = dashboard(app, trusted_proxies=("192.0.2.0/24",))
    async with browser(trusted, headers=proxied) as client:
        assert "Secure" in (await client.get("/login")).headers["set-cookie"]
    async with browser(dashboard(app), headers=proxied) as client:
        assert "Secure" not in (await client.get("/login")).headers["set-cookie"]


@virtual(name="shop")
async def test_two_dashboards_on_one_host_have_their_own_sessions(app: App):
    await add_users(app)
    async with App("sqlite:///:memory:", name="mail", clock=app.clock) as other:
        await add_users(other)
        async with browser(dashboard(app)) as client:
            await log_in(client)
            names = {k for k in client.cookies if "_login_" not in k}
            async with browser(dashboard(other), cookies=client.cookies) as second:
                assert (await second.get("/admin/me")).status_code == 401
                await log_in(second)
                assert {k for k in second.cookies if "_login_" not in k} - names
