"""Access on PostgreSQL: users, sessions, tokens, limits of tries, and a server that only reads."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from durio import App
from durio.web import User
from durio.web.access.tokens import Tokens
from durio.web.access.users import UserChange
from tests.web.browser import browser, dashboard
from tests.web.logins import PASSWORD, add_users, log_in, token_of

if TYPE_CHECKING:
    from tests.conformance.postgres import ScratchSchema
    from tests.servers.postgres import PostgresServer

ADMIN = User("ann", "admin")


def test_a_session_is_known_to_every_dashboard_until_its_user_changes(
    grounds: "ScratchSchema",
) -> None:
    async def main() -> None:
        async with (
            App(grounds.url, name="shop") as app,
            App(grounds.url, name="shop") as other,
        ):
            users = await add_users(app)
            async with browser(dashboard(app)) as client:
                await log_in(client)
                cookies = client.cookies
                async with browser(dashboard(other), cookies=cookies) as second:
                    assert (await second.get("/admin/me")).json()["user"] == "olga"
                    await users.change("olga", UserChange(role="viewer"))
                    assert (await second.get("/admin/me")).status_code == 401
                for _ in range(5):
                    assert (
                        await log_in(client, password="wrong horse")
                    ).status_code == 401
                async with browser(dashboard(other)) as second:
                    assert (await log_in(second)).status_code == 429

    asyncio.run(main())


def test_a_token_ends_on_every_dashboard(grounds: "ScratchSchema") -> None:
    async def main() -> None:
        async with (
            App(grounds.url, name="shop") as app,
            App(grounds.url, name="shop") as other,
        ):
            headers = {"Authorization": f"Bearer {await token_of(app)}"}
            async with browser(dashboard(other), headers=headers) as client:
                assert (await client.get("/admin/me")).json()["user"] == "ci"
                tokens = Tokens(await app.store(), "shop", app.clock)
                (stored,) = await tokens.list()
                await tokens.revoke(stored.id)
                assert (await client.get("/admin/me")).status_code == 401

    asyncio.run(main())


@pytest.fixture
def hand(postgres: "PostgresServer") -> "Iterator[psycopg.Connection]":
    with psycopg.connect(postgres.url(), autocommit=True) as hand:
        hand.execute("create role reading login superuser")
        yield hand
        hand.execute("drop role reading")


def test_a_store_that_takes_no_writes_is_shown_and_not_changed(
    postgres: "PostgresServer", grounds: "ScratchSchema", hand: "psycopg.Connection"
) -> None:
    """As a replica: a token works, its use is not written, and nobody can log in."""

    async def main() -> None:
        async with App(grounds.url, name="shop") as app:
            await add_users(app)
            bearer = {"Authorization": f"Bearer {await token_of(app, role='admin')}"}
            job = await app.named("send").enqueue()
        hand.execute("alter role reading set default_transaction_read_only = on")
        async with App(postgres.url(user="reading"), name="shop") as app:
            async with browser(dashboard(app), headers=bearer) as client:
                me = (await client.get("/admin/me")).json()
                assert "its server is read-only" in me["read_only"]
                assert not any(me["may"].values())
                assert (await client.get(f"/admin/jobs/{job.id}")).status_code == 200
                answer = await client.post(f"/admin/jobs/{job.id}/cancel", json={})
                assert (answer.status_code, answer.json()["code"]) == (409, "read_only")
            async with browser(dashboard(app)) as client:
                page = await log_in(client, "ann", PASSWORD)
                assert page.status_code == 409
                assert "only tokens and the host" in page.text
            async with browser(dashboard(app, ADMIN)) as client:
                assert (await client.get("/admin/me")).json()["via"] == "hook"

    asyncio.run(main())
