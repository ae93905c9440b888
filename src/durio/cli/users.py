"""`durio users`: the people who may log in to the dashboard."""

import sys
from typing import Any, get_args

import click

from durio.app.app import App
from durio.cli.apps import (
    AppSelection,
    Decorator,
    selection_options,
    with_options,
)
from durio.cli.main import keep_lines
from durio.cli.output import age, show_json, show_table, show_text
from durio.cli.prompts import BY_OPTION, YES_OPTION, confirm, is_interactive, operator
from durio.cli.table import Column
from durio.host.clock import HostClock
from durio.model.errors import UsageError
from durio.model.job import utc_datetime
from durio.ports.control import AuditNote
from durio.web.access.passwords import PASSWORD_BYTES_MAX, check_password
from durio.web.access.users import StoredUser, UserChange, Users, check_user_name
from durio.web.identity import Role

COLUMNS = (
    Column("name", least=12),
    Column("role"),
    Column("queues", 2, least=10),
    Column("payloads", 3),
    Column("created", 4),
    Column("login", 1),
)
ROLE = click.Choice(get_args(Role))
GENERATED_BYTES = 12

PASSWORD_OPTIONS = (
    click.option(
        "--password-stdin",
        is_flag=True,
        help="Read the password from standard input, one line.",
    ),
    click.option(
        "--generate", is_flag=True, help="Make a password, and print it once."
    ),
)
LIMIT_OPTIONS = (
    click.option(
        "--queue",
        "queues",
        metavar="NAME",
        multiple=True,
        help="Only jobs of this queue; repeat it for several.",
    ),
    click.option(
        "--payloads/--no-payloads",
        default=None,
        help="Show arguments, results and tracebacks (default: not to viewers).",
    ),
)


def password_options(function: Any) -> Any:
    return with_options(*PASSWORD_OPTIONS)(function)


limit_options: Decorator = with_options(*LIMIT_OPTIONS)


@click.group("users", short_help="Add, change, list and remove users of the dashboard.")
@keep_lines
def command() -> None:
    r"""Add, change, list and remove users of the dashboard.

    Users are kept in the store, so every dashboard of an App knows them. A viewer reads;
    an operator also retries, cancels, pauses and enqueues; an admin may do everything.
    A new password or role, and a removal, end all sessions of the user at once.
    Changes are recorded: `durio audit ls`.

    \b
    Examples:
      durio users add ann --role admin
      durio users add bob --role viewer --queue mail
      durio users role bob operator

    \b
    Exit codes:
      0  done
      1  there is no such user, or there is one already
      2  usage, or not confirmed
      3, 4, 5  store, import of the App, schema
    """


@command.command("add")
@click.argument("user", metavar="NAME")
@click.option("--role", type=ROLE, required=True, help="What the user may do.")
@limit_options
@password_options
@BY_OPTION
@selection_options
@keep_lines
def add_user(*, selection: AppSelection, user: str, role: Role, **given: Any) -> None:
    r"""Add a user; asks for the password.

    \b
    Examples:
      durio users add ann --role admin
      pass show durio/ci | durio users add ci --role operator --password-stdin

    With --json: {"name", "role", "password"}; "password" is null unless it was made
    with --generate.
    """
    check_user_name(user)
    password, made = new_password(given)

    async def work(app: App) -> StoredUser:
        note = AuditNote(app.name, operator(given["by"]), "add user", f"user {user}")
        return await (await users_of(app)).add(
            user,
            password,
            role,
            queues=given["queues"] or None,
            payloads=given["payloads"],
            note=note,
        )

    added = selection.run_first(work)
    show_change(selection, added, f"added {user} as {role}", made)


@command.command("passwd")
@click.argument("user", metavar="NAME")
@password_options
@BY_OPTION
@selection_options
@keep_lines
def change_password(*, selection: AppSelection, user: str, **given: Any) -> None:
    """Give a user a new password, and end the user's sessions.

    With --json: {"name", "role", "password"}.
    """
    password, made = new_password(given)
    change = UserChange(password=password)
    after = changed(selection, user, change, "change password", given["by"])
    show_change(selection, after, f"{user} has a new password", made)


@command.command("role")
@click.argument("user", metavar="NAME")
@click.argument("role", type=ROLE, metavar="ROLE")
@limit_options
@BY_OPTION
@selection_options
@keep_lines
def change_role(
    *, selection: AppSelection, user: str, role: Role, **given: Any
) -> None:
    """Give a user a role and its limits, and end the user's sessions.

    Limits that are not named are taken away: a user without --queue sees every queue.

    With --json: {"name", "role", "password"}; "password" is null.
    """
    change = UserChange(
        role=role, queues=given["queues"] or None, payloads=given["payloads"]
    )
    verb = f"make {role}"
    after = changed(selection, user, change, verb, given["by"])
    show_change(selection, after, f"{user} is {role} now", None)


@command.command("rm")
@click.argument("user", metavar="NAME")
@YES_OPTION
@BY_OPTION
@selection_options
@keep_lines
def remove_user(
    *, selection: AppSelection, user: str, yes: bool, by: str | None
) -> None:
    """Remove a user, and end the user's sessions.

    With --json: {"name", "removed"}.
    """
    confirm(f"user {user} will be removed", yes=yes)

    async def work(app: App) -> None:
        note = AuditNote(app.name, operator(by), "remove user", f"user {user}")
        await (await users_of(app)).remove(user, note)

    selection.run_first(work)
    if selection.is_json:
        show_json({"name": user, "removed": True})
    else:
        show_text(f"removed {user}")


@command.command("ls")
@selection_options
@keep_lines
def list_users(*, selection: AppSelection) -> None:
    """List the users of an App's dashboards.

    With --json: {"users": [{"name", "role", "queues", "payloads", "created_at",
    "last_login_at"}]}; "queues" is null for every queue.
    """

    async def work(app: App) -> tuple[list[StoredUser], float]:
        return await all_users(await users_of(app)), app.now()

    users, now = selection.run_first(work)
    if selection.is_json:
        show_json({"users": [user_fields(user) for user in users]})
    else:
        none = "no users; add one: durio users add NAME --role admin"
        show_table(COLUMNS, [cells(user, now) for user in users], none)


# --- parts


async def users_of(app: App) -> Users:
    return Users(await app.store(), app.name, app.clock)


async def all_users(users: Users) -> list[StoredUser]:
    found: list[StoredUser] = []
    while page := await users.list(after=found[-1].name if found else ""):
        found += page
    return found


def changed(
    selection: AppSelection, user: str, change: UserChange, verb: str, by: str | None
) -> StoredUser:
    async def work(app: App) -> StoredUser:
        note = AuditNote(app.name, operator(by), verb, f"user {user}")
        return await (await users_of(app)).change(user, change, note)

    return selection.run_first(work)


def new_password(given: dict[str, Any]) -> tuple[str, str | None]:
    """Return the password, and the same again if it was made here."""
    if given["generate"] and given["password_stdin"]:
        raise UsageError(
            "--generate and --password-stdin are both given", cure="Give one."
        )
    if given["generate"]:
        made = HostClock().secret_bytes(GENERATED_BYTES).hex()
        return made, made
    if given["password_stdin"]:
        return check_password(line_of_input()), None
    if not is_interactive():
        raise UsageError(
            "there is no terminal to ask for the password",
            cure="Give it on standard input with --password-stdin, or let one be made: "
            "--generate",
        )
    return check_password(
        click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    ), None


def line_of_input() -> str:
    try:
        return sys.stdin.readline(PASSWORD_BYTES_MAX + 2).rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError(
            "the password on standard input is not text", cure="Send it as UTF-8."
        ) from None


def show_change(
    selection: AppSelection, user: StoredUser, text: str, made: str | None
) -> None:
    if selection.is_json:
        show_json({"name": user.name, "role": user.role, "password": made})
        return
    show_text(text)
    if made is not None:
        show_text(f"password: {made}")


def user_fields(user: StoredUser) -> dict[str, Any]:
    return {
        "name": user.name,
        "role": user.role,
        "queues": user.queues,
        "payloads": user.user().sees_payloads,
        "created_at": utc_datetime(user.created_at),
        "last_login_at": utc_datetime(user.last_login_at),
    }


def cells(user: StoredUser, now: float) -> list[Any]:
    return [
        user.name,
        user.role,
        "all" if user.queues is None else ", ".join(user.queues),
        "yes" if user.user().sees_payloads else "no",
        age(utc_datetime(user.created_at), now),
        age(utc_datetime(user.last_login_at), now),
    ]
