"""The App and the store of a command: from user code, or made from name and URL."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from durio.app.app import App
from durio.app.configuration import DEFAULT_NAME, configuration
from durio.app.connect import (
    absolute_url,
    connect,
    is_server,
    masked,
    store_module,
)
from durio.app.cures import quoted, with_flags
from durio.cli.load_app import (
    AppPlace,
    configured_place,
    load_placed_app,
    typed_once,
)
from durio.cli.stall import StallWatch
from durio.client.namespaces import apps_in
from durio.model.errors import StoreError, StoreUnavailable, UsageError
from durio.telemetry.emit import JobEvent
from durio.telemetry.names import WARNING, EmissionMeaning

T = TypeVar("T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
NAME_CURE = "Name it: --name NAME, --app MODULE:APP, DURIO_NAME or DURIO_APP."


class SeveralApps(UsageError):
    """The store has several Apps, and the command does not name one."""

    code = "several_apps"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSelection:
    """The App and the store, as given on the command line."""

    app_path: str | None
    store: str | None
    name: str | None
    is_json: bool

    # --- which App and which name

    def place(self) -> AppPlace | None:
        """Return where the App's code is; --store alone never imports any."""
        if self.app_path is not None:
            return AppPlace(self.app_path)
        return None if self.store is not None else configured_place()

    def app(self) -> App:
        """Return the App from user code, or one that knows only its name and store."""
        if self.app_path is not None and self.name is not None:
            raise UsageError(
                "--app and --name are both given",
                cure="Leave one of them out: an App has a name.",
            )
        place = self.place()
        if place is None:
            return self.app_without_code()
        app = load_placed_app(place, self.store, is_needed=False)
        return app if self.name in {None, app.name} else bare_app(app.url, self.name)

    def app_without_code(self) -> App:
        """Return an App that knows only its name and store."""
        return bare_app(self.store, self.named())

    def named(self) -> str | None:
        """Return the namespace that --name, DURIO_NAME or the settings file names."""
        return self.name or configuration(self.store, None).name

    def scope(self, app: App) -> str | None:
        """Return the namespace that was named; None if none was."""
        return self.named() if app.origin is None else app.name

    def with_namespace(self, app: App, if_empty: str | None = None) -> App:
        """Return the App; if none was named, under the name of the only App of the store."""
        if self.scope(app) is not None:
            return app
        found = run_in_app(app, find_apps)
        return bare_app(self.store, only_app(found, shown_url(app), if_empty))

    def flags(self) -> str:
        """Return the typed flags, for a command to paste; a password is masked."""
        store = None if self.store is None else quoted(masked(self.store))
        typed = {"--app": self.app_path, "--store": store, "--name": self.name}
        return "".join(f" {flag} {value}" for flag, value in typed.items() if value)

    # --- which store

    def is_default_store(self) -> bool:
        """Return whether nothing names the store."""
        origin = configuration(self.store, None).origin("url")
        return origin.kind == "default" and self.place() is None

    def store_origin(self) -> str:
        """Return what names the store, as text."""
        if self.store is not None:
            return "named by --store"
        if (place := self.place()) is not None:
            return f"the store of the App {place.path}"
        origin = configuration(None, None).origin("url")
        if origin.kind == "default":
            return "the default, because nothing names a store"
        return f"named by {origin.location}"

    def require_store(self, app: App) -> None:
        """Raise StoreUnavailable if there is no store; nothing is created."""
        connect(app.url, app.clock, app.settings)  # raises if the URL names no store
        survey = store_module(app.url, "schema_status")
        if not survey.MADE_AT_OPEN:
            return  # opening raises when it does not exist
        url = absolute_url(app.url, app.folder)
        if survey.is_missing(url):
            raise StoreUnavailable(
                f"there is no store at {masked(url)} ({self.store_origin()})",
                cure="Name another: --app MODULE:APP, --store URL, DURIO_APP or "
                "DURIO_URL.\nA worker, or the first enqueue of an App, creates it."
                + (project_hint() if self.is_default_store() else ""),
            )
        if not survey.status(url).applied:
            raise StoreUnavailable(
                f"{masked(url)} ({self.store_origin()}) is a SQLite file without a "
                "Durio store",
                cure="Name another: --app MODULE:APP, --store URL, DURIO_APP or "
                "DURIO_URL.\nTo keep jobs in this file too: durio migrate --store "
                f"{quoted(masked(url))}",
            )

    # --- running

    def run(self, work: Callable[[App], Awaitable[T]]) -> T:
        """Run the work for one App on an existing store; its name is the namespace."""
        app = self.app()
        self.require_store(app)
        return run_in_app(self.with_namespace(app), work)

    def run_enqueue(self, task: str, work: Callable[[App], Awaitable[T]]) -> T:
        """Run an enqueue; it creates a SQLite store that was named, never the default."""
        app = self.app()
        if self.is_default_store():
            self.require_store(app)
        return run_in_app(app if "." in task else self.first_named(app), work)

    def run_first(self, work: Callable[[App], Awaitable[T]]) -> T:
        """Run what may come before any job; it creates a SQLite store that was named."""
        return run_in_app(self.first_app(), work)

    def first_app(self) -> App:
        """Return the App; its store may not exist yet, if something names it."""
        app = self.app()
        if self.is_default_store():
            self.require_store(app)
        return self.first_named(app)

    def first_named(self, app: App) -> App:
        """Return the App under its name; an empty SQLite store gets the default one."""
        return self.with_namespace(app, None if is_server(app.url) else DEFAULT_NAME)

    def run_unscoped(self, work: Callable[[App], Awaitable[T]]) -> T:
        """Run work that needs no namespace, such as on jobs by their ids."""
        app = self.app()
        self.require_store(app)
        return run_in_app(app, work)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSelection(AppSelection):
    """The App and the store of a command that lists jobs, queues or workers."""

    all_apps: bool

    def run_list(self, work: Callable[[App, str | None], Awaitable[T]]) -> T:
        """Run the work for one namespace; None: for all of them."""
        if self.all_apps and (self.app_path is not None or self.name is not None):
            raise UsageError(
                "--all-apps is given with --app or --name",
                cure="Leave one of them out.",
            )
        app = self.app()
        self.require_store(app)
        if self.all_apps:
            return run_in_app(app, lambda app: work(app, None))
        try:
            app = self.with_namespace(app, DEFAULT_NAME)
        except SeveralApps as error:
            error.cure += "\nOr see all: --all-apps"
            raise

        async def work_in_app(app: App) -> T:
            await warn_of_unknown_app(app)
            return await work(app, app.name)

        return run_in_app(app, work_in_app)


async def warn_of_unknown_app(app: App) -> None:
    """Print a warning if the store has Apps, but not this one; its list is empty."""
    known = await find_apps(app)
    if known and app.name not in known:
        text = f"App {app.name} has not used this store; its Apps: {', '.join(known)}"
        click.echo(f"warning: {text}", err=True)


def project_hint() -> str:
    """Return the nearest folder above that has settings or a store; or nothing."""
    with suppress(OSError):  # a folder above may be closed to this user
        for folder in Path.cwd().parents:
            for name in ("durio.toml", "durio.db"):
                if (folder / name).is_file():
                    return f"\nThere is a {name} in {folder}: run this command there."
    return ""


def bare_app(url: str | None, name: str | None) -> App:
    """Return an App without tasks, which prints warnings."""
    app = App(url, name=name or DEFAULT_NAME)
    app.emit.subscribers[:] = [WarningPrinter()]
    return app


def run_in_app(app: App, work: Callable[[App], Awaitable[T]]) -> T:
    async def opened() -> T:
        async with app:
            return await work(app)

    async def watched() -> T:
        return await StallWatch(app.stall).wait_for(opened())

    try:
        return asyncio.run(watched())
    except StoreError as error:
        error.cure = with_flags(error.cure, app)
        raise


def shown_url(app: App) -> str:
    """Return the URL of the store with an absolute path and without a password."""
    return masked(absolute_url(app.url, app.folder))


async def find_apps(app: App) -> list[str]:
    return await apps_in(await app.store())


def only_app(names: Sequence[str], url: str, if_empty: str | None) -> str:
    """Return the only App of a store; raises UsageError if there are several, or none."""
    if len(names) > 1:
        raise SeveralApps(
            f"{url} has several Apps: {', '.join(names)}",
            cure=f"Name one: --name {names[0]}",
        )
    if not names and if_empty is None:
        raise UsageError(f"{url} has no App yet", cure=NAME_CURE)
    return names[0] if names else if_empty or DEFAULT_NAME


class WarningPrinter:
    """Prints warnings as text on standard error."""

    def wants(self, meaning: EmissionMeaning) -> bool:
        return meaning.level >= WARNING

    def on_event(
        self, name: str, meaning: EmissionMeaning, fields: dict[str, Any]
    ) -> None:
        if self.wants(meaning):
            details = " ".join(f"{field}={value}" for field, value in fields.items())
            click.echo(f"warning: {meaning.text} ({details}) [{name}]", err=True)

    def on_jobs(self, events: Sequence[JobEvent]) -> None:
        """Do nothing: no jobs run in a command."""


# --- options that commands share

JSON_OPTION = click.option(
    "--json", "is_json", is_flag=True, help="Print one JSON object."
)
APP_OPTION = click.option(
    "--app",
    "app_path",
    metavar="MODULE:APP",
    help="The App that gives name and store (or set DURIO_APP).",
)
STORE_OPTION = click.option(
    "--store", metavar="URL", help="The store; overrides the App's URL and DURIO_URL."
)


def with_options(*options: Decorator) -> Decorator:
    """Add options to a command, in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def grouped_options(parameter: str, kind: type[Any], *options: Decorator) -> Decorator:
    """Add options to a command, which gets them as one object of this class."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(**given: Any) -> Any:
            chosen = {
                field.name: given.pop(field.name)
                for field in fields(kind)
                if field.name in given
            }
            return function(**{parameter: kind(**chosen)}, **given)

        return with_options(*options)(called)

    return decorate


SELECTION_OPTIONS = (
    APP_OPTION,
    STORE_OPTION,
    click.option(
        "--name",
        metavar="NAME",
        help="Name of the App, if its code is not loaded (or DURIO_NAME).",
    ),
    JSON_OPTION,
)
selection_options = grouped_options("selection", AppSelection, *SELECTION_OPTIONS)
list_options = grouped_options(
    "selection",
    ListSelection,
    click.option("--all-apps", is_flag=True, help="Include every App in the store."),
    *SELECTION_OPTIONS,
)


def app_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Accept the App as the first argument; put it below `selection_options`."""

    @functools.wraps(function)
    def called(
        *args: Any, selection: AppSelection, path: str | None, **given: Any
    ) -> Any:
        typed = typed_once(path, selection.app_path)
        return function(*args, selection=replace(selection, app_path=typed), **given)

    argument = click.argument("path", metavar="[MODULE:APP]", required=False)
    return argument(called)
