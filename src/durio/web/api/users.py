"""`admin/users` and `admin/tokens`: who may use the dashboard; for admins."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter
from msgspec import UNSET
from pydantic import Field

from durio.model.job import utc_datetime
from durio.model.names import task_name
from durio.model.quantities import seconds
from durio.web.access.tokens import (
    PURPOSES,
    Purpose,
    StoredToken,
    TokenRequest,
    Tokens,
)
from durio.web.access.users import StoredUser, UserChange, Users
from durio.web.api.cursors import continued, cursor_of
from durio.web.api.shapes import LIMIT_DEFAULT, Answer, Body, Cursor, Items, Limit
from durio.web.call import WebCall
from durio.web.identity import Role, User
from durio.web.problems import Refusal
from durio.web.roles import Admin, may

router = APIRouter(tags=["users"])

LISTED_USERS, LISTED_TOKENS = "users", "tokens"


class UserItem(Answer):
    name: str
    role: Role
    queues: list[str] | None  # None: all of them
    payloads: bool
    created_at: datetime | None
    last_login_at: datetime | None


class NewUserBody(Body):
    name: str
    password: str
    role: Role
    queues: list[str] | None = None
    payloads: bool | None = None  # None: as the role says


class UserBody(Body):
    """What to change; what is left out stays as it is."""

    password: str | None = None
    role: Role | None = None
    queues: list[str] | None = None
    payloads: bool | None = None


class TokenItem(Answer):
    id: str
    name: str
    role: Role | None  # None: it has only purposes
    purposes: list[Purpose]
    queues: list[str] | None
    tasks: list[str] | None
    payloads: bool
    created_at: datetime | None
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None


class NewTokenBody(Body):
    name: str
    role: Role | None = None
    purposes: list[Purpose] = Field(default_factory=list[Purpose])
    queues: list[str] | None = None
    tasks: list[str] | None = None
    payloads: bool | None = None
    expires: str | float | None = None  # such as `90d`; None: never


class NewTokenAnswer(Answer):
    id: str
    token: str  # shown this once


class Removed(Answer):
    status: str


# --- users


@router.get("/users")
async def list_users(
    call: Admin, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> Items[UserItem]:
    """Return users by name."""
    users = await users_of(call)
    after = continued(LISTED_USERS, cursor) or ""
    found = await users.list(after=after, limit=limit + 1)
    following = found[limit - 1].name if len(found) > limit else None
    return Items(
        items=[user_item(user) for user in found[:limit]],
        cursor=cursor_of(LISTED_USERS, following),
    )


@router.post("/users", status_code=201)
async def add_user(
    call: Annotated[WebCall, may("change_users")], body: NewUserBody
) -> UserItem:
    """Add a user."""
    check_rights(call, User("new", body.role, payloads=body.payloads))
    note = call.note(f"user {body.name}"[:200], verb="add user", after=rights(body))
    user = await (await users_of(call)).add(
        body.name,
        body.password,
        body.role,
        queues=body.queues,
        payloads=body.payloads,
        note=note,
    )
    return user_item(user)


@router.patch("/users/{name}")
async def change_user(
    call: Annotated[WebCall, may("change_users")], name: str, body: UserBody
) -> UserItem:
    """Change a user's password, role or limits, and end the user's sessions."""
    given = body.model_fields_set
    users = await users_of(call)
    before = (await users.get(name)).user
    values: dict[str, Any] = {key: getattr(body, key) for key in given}
    for key in ("password", "role"):
        if key in given and values[key] is None:
            raise Refusal(422, "invalid_request", f"{key} cannot be null")
    change = UserChange(
        password=values.get("password", UNSET),
        role=values.get("role", UNSET),
        queues=UNSET if "queues" not in given else queues_of(body.queues),
        payloads=values.get("payloads", UNSET),
    )
    after = User(
        name,
        body.role or before.role,
        payloads=body.payloads if "payloads" in given else before.payloads,
    )
    check_rights(call, after)
    changed = {key: value for key, value in values.items() if key != "password"}
    note = call.note(
        f"user {name}",
        verb="change user",
        before={key: getattr(before, key) for key in changed},
        after={**changed, **({"password": "changed"} if "password" in given else {})},
    )
    return user_item(await users.change(name, change, note))


@router.delete("/users/{name}")
async def remove_user(
    call: Annotated[WebCall, may("change_users")], name: str
) -> Removed:
    """Delete a user, and end the user's sessions."""
    check_rights(call)
    users = await users_of(call)
    await users.remove(name, call.note(f"user {name}", verb="remove user"))
    return Removed(status="removed")


def check_rights(call: WebCall, given: User | None = None) -> None:
    """Refuse to give rights that the admin does not have."""
    if not call.sees_all:
        raise Refusal(
            403,
            "limited_admin",
            f"{call.user.name} is for some queues or tasks only",
            "Ask an admin who sees all of them.",
        )
    if given is not None and given.sees_payloads and not call.user.sees_payloads:
        raise Refusal(
            403,
            "payloads_masked",
            f"{call.user.name} does not see payloads, and cannot give that right",
            'Send "payloads": false.',
        )


async def users_of(call: WebCall) -> Users:
    return Users(await call.store(), call.app.name, call.app.clock)


def queues_of(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def rights(body: NewUserBody) -> dict[str, Any]:
    return {"role": body.role, "queues": body.queues, "payloads": body.payloads}


def user_item(user: StoredUser) -> UserItem:
    return UserItem(
        name=user.name,
        role=user.role,
        queues=None if user.queues is None else list(user.queues),
        payloads=user.user().sees_payloads,
        created_at=utc_datetime(user.created_at),
        last_login_at=utc_datetime(user.last_login_at),
    )


# --- tokens


@router.get("/tokens")
async def list_tokens(
    call: Admin, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> Items[TokenItem]:
    """Return tokens by id, without their secrets."""
    tokens = await tokens_of(call)
    after = continued(LISTED_TOKENS, cursor) or ""
    found = await tokens.list(after=after, limit=limit + 1)
    following = found[limit - 1].id if len(found) > limit else None
    return Items(
        items=[token_item(token) for token in found[:limit]],
        cursor=cursor_of(LISTED_TOKENS, following),
    )


@router.post("/tokens", status_code=201)
async def create_token(
    call: Annotated[WebCall, may("change_tokens")], body: NewTokenBody
) -> NewTokenAnswer:
    """Create a token; its text is in this answer, and nowhere else."""
    app = call.app
    request = TokenRequest(
        name=body.name,
        role=body.role,
        purposes=tuple(body.purposes),
        queues=queues_of(body.queues),
        tasks=None
        if body.tasks is None
        else tuple(task_name(app.name, task) for task in body.tasks),
        payloads=body.payloads,
        ends_in_seconds=None
        if body.expires is None
        else seconds(body.expires, "expires"),
    )
    kept = {"role": request.role, "purposes": request.purposes, "tasks": request.tasks}
    check_rights(call, User("new", body.role or "viewer", payloads=body.payloads))
    note = call.note("token", verb="create token", after=kept)
    note.target = ""  # of the new id
    new = await (await tokens_of(call)).create(request, by=call.by, note=note)
    return NewTokenAnswer(id=new.stored.id, token=new.text)


@router.delete("/tokens/{token_id}")
async def revoke_token(
    call: Annotated[WebCall, may("change_tokens")], token_id: str
) -> Removed:
    """Revoke a token: it is refused from now on."""
    check_rights(call)
    tokens = await tokens_of(call)
    note = call.note(f"token {token_id}"[:200], verb="revoke token")
    await tokens.revoke(token_id, note)
    return Removed(status="revoked")


async def tokens_of(call: WebCall) -> Tokens:
    return Tokens(await call.store(), call.app.name, call.app.clock)


def token_item(token: StoredToken) -> TokenItem:
    return TokenItem(
        id=token.id,
        name=token.name,
        role=token.role,
        purposes=[each for each in PURPOSES if each in token.purposes],
        queues=None if token.queues is None else list(token.queues),
        tasks=None if token.tasks is None else list(token.tasks),
        payloads=token.identity().user.sees_payloads,
        created_at=utc_datetime(token.created_at),
        created_by=token.created_by,
        expires_at=utc_datetime(token.ends_at),
        last_used_at=utc_datetime(token.last_used_at),
    )
