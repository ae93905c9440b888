"""`durio dashboard`: serves the page and the admin API of an App."""

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import Any

import click

from durio.app.app import App
from durio.cli.apps import (
    AppSelection,
    app_argument,
    selection_options,
    shown_url,
)
from durio.cli.main import keep_lines
from durio.cli.output import show_json
from durio.cli.stall import StallWatch
from durio.host.processes import loop_factory
from durio.host.signals import STOP_SIGNALS, Signals, host_name
from durio.model.errors import UsageError
from durio.model.version import __version__
from durio.telemetry.log import LogWriter, configure
from durio.web.access.tokens import Tokens
from durio.web.access.users import Users
from durio.web.addresses import EVERY_ADDRESS, hosts_at, is_loopback
from durio.web.application import DashboardApplication
from durio.web.options import PORT, DashboardOptions
from durio.web.server import DashboardServer, listening_socket

HOST = "127.0.0.1"


class OpenDashboard(UsageError):
    """The dashboard would be reachable, and nobody could log in."""

    code = "open_dashboard"


def split(text: str | None) -> tuple[str, ...]:
    """Return the parts of a list with commas."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


@click.command("dashboard", short_help="Serve the dashboard and the admin API.")
@click.option(
    "--host",
    default=HOST,
    show_default=True,
    help="Address to listen on; 0.0.0.0: every address of this machine.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="Port to listen on; 0: any free one.",
)
@click.option(
    "--root-path",
    default="",
    metavar="PATH",
    help="Path below which a proxy serves it.",
)
@click.option(
    "--allowed-hosts",
    metavar="NAMES",
    help="Names it answers to, as browsers write them: jobs.example.com,*.internal. "
    "Default: the address that it listens on.",
)
@click.option(
    "--trusted-proxies",
    metavar="NETWORKS",
    help="Addresses whose X-Forwarded-* headers count: 10.0.0.0/8.",
)
@click.option(
    "--basic", "is_basic", is_flag=True, help="Take HTTP Basic with the same users too."
)
@click.option("--read-only", "is_read_only", is_flag=True, help="Change nothing.")
@click.option("--title", default="Durio", show_default=True, help="Title of the page.")
@selection_options
@app_argument
@keep_lines
def command(*, selection: AppSelection, **flags: Any) -> int:
    r"""Serve the dashboard of an App: its page, and the admin API behind it.

    Users log in with a name and a password, programs with tokens: `durio users`,
    `durio tokens`. Any number of dashboards may serve one store. It needs no code of
    the App and runs no jobs. SIGTERM and Ctrl-C end it within 5 seconds.

    \b
    Examples:
      durio users add ann --role admin
      durio dashboard
      durio dashboard --host 0.0.0.0 --allowed-hosts jobs.example.com
      durio dashboard --root-path /jobs --trusted-proxies 10.0.0.0/8

    With --json, one line at the start: {"url", "app", "store"}.

    \b
    Exit codes:
      0  stopped
      1  the port is in use
      2  usage, or an address that others reach without any user or token
      3, 4, 5  store, import of the App, schema
    """
    app = selection.first_app()
    configure(app.settings.log)
    if app.origin is None:
        app.emit.subscribers[:] = [LogWriter()]
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(app, selection, flags))
    return 0


async def serve(app: App, selection: AppSelection, flags: dict[str, Any]) -> None:
    """Serve until a signal stops it."""
    servers: list[DashboardServer] = []

    def on_signal(_signal: str, count: int) -> None:
        for server in servers:
            server.stop(at_once=count > 1)

    signals = Signals(on_signal, STOP_SIGNALS, is_last=True)
    signals.exit_code = 0
    async with signals, AsyncExitStack() as stack:
        await StallWatch(app.stall).wait_for(stack.enter_async_context(app))
        has_login = await check_access(app, flags["host"])
        listening = listening_socket(flags["host"], flags["port"])
        stack.callback(listening.close)
        port = listening.getsockname()[1]
        server = DashboardServer(DashboardApplication(app, options_of(flags, port)))
        servers.append(server)
        if signals.received:
            return
        announce(app, selection, address_of(flags, port), has_login=has_login)
        await server.serve([listening])


async def check_access(app: App, host: str) -> bool:
    """Return whether anybody can log in; refuse to be reached by others if not."""
    store = await app.store()
    has_users = not await Users(store, app.name, app.clock).is_empty()
    has_tokens = not await Tokens(store, app.name, app.clock).is_empty()
    if not (has_users or has_tokens or is_loopback(host)):
        raise OpenDashboard(
            f"other machines would reach {host}, and App {app.name} has no users or "
            "tokens",
            cure="Make a user first: durio users add NAME --role admin\n"
            "Or listen on this machine alone: --host 127.0.0.1",
        )
    return has_users


def options_of(flags: dict[str, Any], port: int) -> DashboardOptions:
    hosts = split(flags["allowed_hosts"]) or hosts_at(flags["host"], port)
    return DashboardOptions(
        title=flags["title"],
        allowed_hosts=hosts,
        trusted_proxies=split(flags["trusted_proxies"]),
        root_path=flags["root_path"].rstrip("/"),
        is_basic=flags["is_basic"],
        is_read_only=flags["is_read_only"],
        port=port,
    )


def address_of(flags: dict[str, Any], port: int) -> str:
    host = host_name() if flags["host"] in EVERY_ADDRESS else flags["host"]
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http://{shown}:{port}{flags['root_path'].rstrip('/')}/"


def announce(
    app: App, selection: AppSelection, address: str, *, has_login: bool
) -> None:
    """Print where the dashboard is, and how to make its first user."""
    if selection.is_json:
        show_json({"url": address, "app": app.name, "store": shown_url(app)})
        sys.stdout.flush()
        return
    lines = [
        f"durio {__version__}  dashboard of {app.name}  {address}",
        f"  store   {shown_url(app)}",
    ]
    if not has_login:
        add = f"durio users add NAME --role admin{selection.flags()}"
        lines.append(f"  users   none yet: {add}")
    click.echo("\n".join([*lines, "  Ctrl-C  stops it"]), err=True)
