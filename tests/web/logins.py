"""Users, and the way through the login form."""

import re
from typing import Any

import httpx

from durio import App
from durio.web.access.tokens import TokenRequest, Tokens
from durio.web.access.users import Users

PASSWORD = "correct horse"
ONCE = re.compile(r'name="once" value="([^"]*)"')
OF_USERS = {"ann": "admin", "olga": "operator", "vera": "viewer"}


async def users_of(app: App) -> Users:
    return Users(await app.store(), app.name, app.clock)


async def add_users(app: App) -> Users:
    users = await users_of(app)
    for name, role in OF_USERS.items():
        await users.add(name, PASSWORD, role)
    return users


async def token_of(app: App, **fields: Any) -> str:
    """The text of a new token; an operator's by default."""
    tokens = Tokens(await app.store(), app.name, app.clock)
    fields = {"name": "ci", **fields}
    if "purposes" not in fields:
        fields.setdefault("role", "operator")
    return (await tokens.create(TokenRequest(**fields), by="test")).text


async def once_of(client: httpx.AsyncClient, path: str = "/login") -> str:
    found = ONCE.search((await client.get(path)).text)
    assert found
    return found[1]


async def log_in(
    client: httpx.AsyncClient,
    user: str = "olga",
    password: str = PASSWORD,
    following: str = "",
) -> httpx.Response:
    """Fill in the form and send it, as a browser without JavaScript."""
    fields = {"once": await once_of(client), "user": user, "password": password}
    return await client.post("/login", data={**fields, "next": following})
