"""`durio tokens`: credentials of programs for the admin API."""

from typing import Any, cast, get_args

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, selection_options
from durio.cli.main import keep_lines
from durio.cli.output import age, show_json, show_table, show_text
from durio.cli.prompts import BY_OPTION, YES_OPTION, confirm, operator
from durio.cli.table import Column
from durio.cli.users import ROLE, limit_options
from durio.model.job import utc_datetime
from durio.model.names import task_name
from durio.model.quantities import seconds
from durio.ports.control import AuditNote
from durio.web.access.tokens import (
    NewToken,
    Purpose,
    StoredToken,
    TokenRequest,
    Tokens,
)
from durio.web.identity import Role

COLUMNS = (
    Column("id"),
    Column("name", least=12),
    Column("role", 1),
    Column("purposes", 2, least=8),
    Column("queues", 4, least=10),
    Column("tasks", 3, least=10),
    Column("ends"),
    Column("used", 5),
)


@click.group("tokens", short_help="Create, list and revoke tokens for the admin API.")
@keep_lines
def command() -> None:
    r"""Create, list and revoke tokens for the admin API.

    A token is for a program: `Authorization: Bearer durio_...`. It has a role, as a user,
    or purposes, which allow one thing each: enqueue, work, metrics, scale. The store keeps
    only a hash, so a token is shown once. A revoked token is refused from then on.

    A token that may enqueue any task may run all code that your workers have: name the
    tasks.

    \b
    Examples:
      durio tokens create grafana --purpose metrics
      durio tokens create shop-web --purpose enqueue --task send_receipt --expires 90d
      durio tokens create on-call --role operator

    \b
    Exit codes:
      0  done
      1  there is no such token
      2  usage, or not confirmed
      3, 4, 5  store, import of the App, schema
    """


@command.command("create")
@click.argument("label", metavar="NAME")
@click.option(
    "--role", type=ROLE, help="What the token may do, as a user of this role."
)
@click.option(
    "--purpose",
    "purposes",
    type=click.Choice(get_args(Purpose)),
    multiple=True,
    help="What it may do without a role; repeat it for several.",
)
@click.option(
    "--task",
    "tasks",
    metavar="NAME",
    multiple=True,
    help="Only this task, or all that begin so: email:*; repeat it for several.",
)
@limit_options
@click.option("--expires", metavar="TIME", help="When it ends: 90d (default: never).")
@BY_OPTION
@selection_options
@keep_lines
def create_token(
    *, selection: AppSelection, label: str, role: Role | None, **given: Any
) -> None:
    """Create a token and print it, once.

    With --json: {"id", "name", "token"}.
    """
    left = None if given["expires"] is None else seconds(given["expires"], "--expires")

    async def work(app: App) -> NewToken:
        tasks = tuple(task_name(app.name, task) for task in given["tasks"])
        request = TokenRequest(
            name=label,
            role=role,
            purposes=cast("tuple[Purpose, ...]", tuple(given["purposes"])),
            queues=tuple(given["queues"]) or None,
            tasks=tasks or None,
            payloads=given["payloads"],
            ends_in_seconds=left,
        )
        by = operator(given["by"])
        note = AuditNote(app.name, by, "create token")
        return await (await tokens_of(app)).create(request, by=by, note=note)

    new = selection.run_first(work)
    if selection.is_json:
        show_json({"id": new.stored.id, "name": label, "token": new.text})
    else:
        show_text(new.text)
        click.echo("It is not shown again: keep it now.", err=True)


@command.command("ls")
@selection_options
@keep_lines
def list_tokens(*, selection: AppSelection) -> None:
    """List tokens, without their secrets.

    With --json: {"tokens": [{"id", "name", "role", "purposes", "queues", "tasks",
    "payloads", "created_at", "created_by", "expires_at", "last_used_at"}]}.
    """

    async def work(app: App) -> tuple[list[StoredToken], float]:
        return await all_tokens(await tokens_of(app)), app.now()

    tokens, now = selection.run_first(work)
    if selection.is_json:
        show_json({"tokens": [token_fields(token) for token in tokens]})
    else:
        none = "no tokens; create one: durio tokens create NAME --role operator"
        show_table(COLUMNS, [cells(token, now) for token in tokens], none)


@command.command("revoke")
@click.argument("token_id", metavar="ID")
@YES_OPTION
@BY_OPTION
@selection_options
@keep_lines
def revoke_token(
    *, selection: AppSelection, token_id: str, yes: bool, by: str | None
) -> None:
    """Revoke a token: requests with it are refused from now on.

    With --json: {"id", "name", "revoked"}.
    """
    confirm(f"token {token_id} will be revoked", yes=yes)

    async def work(app: App) -> StoredToken:
        note = AuditNote(app.name, operator(by), "revoke token", f"token {token_id}")
        return await (await tokens_of(app)).revoke(token_id, note)

    token = selection.run_first(work)
    if selection.is_json:
        show_json({"id": token.id, "name": token.name, "revoked": True})
    else:
        show_text(f"revoked {token.id} ({token.name})")


# --- parts


async def tokens_of(app: App) -> Tokens:
    return Tokens(await app.store(), app.name, app.clock)


async def all_tokens(tokens: Tokens) -> list[StoredToken]:
    found: list[StoredToken] = []
    while page := await tokens.list(after=found[-1].id if found else ""):
        found += page
    return found


def token_fields(token: StoredToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "purposes": token.purposes,
        "queues": token.queues,
        "tasks": token.tasks,
        "payloads": token.identity().user.sees_payloads,
        "created_at": utc_datetime(token.created_at),
        "created_by": token.created_by,
        "expires_at": utc_datetime(token.ends_at),
        "last_used_at": utc_datetime(token.last_used_at),
    }


def cells(token: StoredToken, now: float) -> list[Any]:
    return [
        token.id,
        token.name,
        token.role,
        ", ".join(token.purposes) or None,
        "all" if token.queues is None else ", ".join(token.queues),
        "all" if token.tasks is None else ", ".join(token.tasks),
        utc_datetime(token.ends_at),
        age(utc_datetime(token.last_used_at), now),
    ]
