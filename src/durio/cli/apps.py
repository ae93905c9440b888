"""The App and the store of a command: from user code, or made from name and URL."""

import asyncio
import functools
import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import click

from durio.app.app import App
from durio.app.configuration import configuration
from durio.app.connect import connect, masked, store_module
from durio.cli.main import AppImportFailed, DepsFailed
from durio.cli.stall import StallWatch
from durio.model.errors import (
    DurioError,
    InvalidOption,
    StoreUnavailable,
    UsageError,
)
from durio.model.failure import error_text
from durio.model.names import did_you_mean
from durio.telemetry.emit import JobEvent
from durio.telemetry.names import WARNING, EmissionMeaning

T = TypeVar("T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
DEFAULT_ATTRIBUTE = "app"
DEFAULT_NAME = "app"
PACKAGE_FOLDER = str(Path(__file__).parents[1]) + os.sep
IMPORT_MACHINERY = ("<frozen importlib", importlib.__file__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSelection:
    """The App and the store, as given on the command line."""

    app_path: str | None
    store: str | None
    name: str | None
    is_json: bool

    def app(self) -> App:
        """Return the App from user code, or one that knows only its name and store."""
        if self.app_path is not None:
            if self.name is not None:
                raise UsageError(
                    "--app and --name are both given",
                    cure="An App has a name: give one.",
                )
            return load_app(self.app_path, self.store)
        app = App(self.store, name=self.namespace() or DEFAULT_NAME)
        app.emit.subscribers[:] = [WarningPrinter()]
        return app

    def namespace(self) -> str | None:
        """The selected namespace; None if none was named."""
        return self.name or configuration(self.store, None).name

    def is_named(self) -> bool:
        """Whether one App is selected; otherwise lists show every App in the store."""
        return self.app_path is not None or self.namespace() is not None

    def scope_of(self, app: App) -> str | None:
        """Return the namespace that a list is limited to.

        None means every App in the store.
        """
        return app.name if self.is_named() else None

    def run(self, work: Callable[[App], Awaitable[T]]) -> T:
        """Run the work on an existing store; raises StoreUnavailable when there is none."""
        app = self.app()
        connect(app.url, app.clock, app.settings)  # raises if the URL names no store
        survey = store_module(app.url, "schema_status")
        if not survey.MADE_AT_OPEN:
            return run_in_app(app, work)  # opening raises if it does not exist
        if survey.is_missing(app.url):
            raise StoreUnavailable(
                f"there is no store at {masked(app.url)}",
                cure="Name it with --store or DURIO_URL; a worker or an enqueue makes it.",
            )
        if not survey.status(app.url).applied:
            raise StoreUnavailable(
                f"{masked(app.url)} holds no jobs: it is a file of another program",
                cure="Name the store with --store or DURIO_URL. To keep jobs beside "
                "what is in this file: durio migrate.",
            )
        return run_in_app(app, work)


def run_in_app(app: App, work: Callable[[App], Awaitable[T]]) -> T:
    async def opened() -> T:
        async with app:
            return await work(app)

    async def watched() -> T:
        return await StallWatch(app.stall).wait_for(opened())

    return asyncio.run(watched())


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
    "--json", "is_json", is_flag=True, help="Answer with one JSON object."
)
STORE_OPTION = click.option(
    "--store", metavar="URL", help="The store; beats the App's own URL and DURIO_URL."
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
            chosen = {n: given.pop(n) for n in kind.__slots__ if n in given}
            return function(**{parameter: kind(**chosen)}, **given)

        return with_options(*options)(called)

    return decorate


selection_options = grouped_options(
    "selection",
    AppSelection,
    click.option(
        "--app",
        "app_path",
        metavar="MODULE:APP",
        help="Take name and store from this App.",
    ),
    STORE_OPTION,
    click.option(
        "--name",
        metavar="NAME",
        help="The App's name, without its code; or DURIO_NAME.",
    ),
    JSON_OPTION,
)


# --- loading


def load_app(path: str, store: str | None = None) -> App:
    """Load `module:object`, an App or a function that makes one, and the App's imports."""
    module_name, _, attribute = path.partition(":")
    check_path(path, module_name, attribute)
    if sys.path[:1] != [str(Path.cwd())]:
        sys.path.insert(0, str(Path.cwd()))
    app = find_app(load_module(module_name), attribute or DEFAULT_ATTRIBUTE, path)
    app.origin = path
    if store is not None:
        app.url = store
    for name in app.imports:
        load_module(name)
    return app


def check_path(path: str, module: str, attribute: str) -> None:
    """Refuse a path that cannot name a module, and suggest the likely spelling."""
    name = attribute or DEFAULT_ATTRIBUTE
    if "/" in module or module.endswith(".py"):
        meant = module.removesuffix(".py").strip("./").replace("/", ".")
        cure = f"Give a module, not a file: {meant}:{name}"
    elif all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
        return
    else:
        cure = "Write MODULE:APP, such as app:app or shop.jobs:app."
    raise AppImportFailed(f"{path!r} names no App", cure=cure)


def load_module(name: str) -> ModuleType:
    """Import a user module; an error shows only the user's frames."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise import_failed(error, f"{name} cannot be imported") from error
        known = [module.name for module in pkgutil.iter_modules([str(Path.cwd())])]
        raise AppImportFailed(
            f"there is no module {missing!r}",
            cure=f"Looked in {Path.cwd()} and the installed packages."
            f"{did_you_mean(name, known)}",
        ) from None
    except (Exception, SystemExit) as error:
        reraise_settings_error(error)
        raise import_failed(error, f"{name} cannot be imported") from error


def reraise_settings_error(error: BaseException) -> None:
    """Raise an error of a settings file or variable unchanged: user code is not its cause."""
    if isinstance(error, InvalidOption) and "place" in error.values:
        raise error


def find_app(module: ModuleType, attribute: str, path: str) -> App:
    """Return the App that an attribute is or returns."""
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise AppImportFailed(
                f"{module.__name__} has no {attribute!r}",
                cure=apps_in(module, attribute),
            )
        found = getattr(found, part)
    if isinstance(found, App):
        return found
    if not callable(found):
        raise AppImportFailed(
            f"{path} is a {type(found).__name__}, not an App",
            cure=apps_in(module, attribute),
        )
    try:
        made = found()
    except (Exception, SystemExit) as error:
        reraise_settings_error(error)
        raise import_failed(error, f"{path} made no App") from error
    if not isinstance(made, App):
        raise AppImportFailed(
            f"{path} gave a {type(made).__name__}, not an App",
            cure="Name an App, or a function without arguments that returns one.",
        )
    return made


def apps_in(module: ModuleType, attribute: str) -> str:
    """Return the cure for a wrong attribute, which lists the Apps of the module."""
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    if names:
        return f"Its Apps: {', '.join(f'{module.__name__}:{name}' for name in names)}."
    hint = did_you_mean(attribute, [n for n in vars(module) if not n.startswith("_")])
    return f"There is no App in {module.__file__}.{hint}"


def import_failed(error: BaseException, what: str) -> AppImportFailed:
    """Return the user's error with its traceback, without our frames."""
    problem, cure = (
        f"{type(error).__name__}: {error_text(error)}",
        "Correct it, and try again.",
    )
    if isinstance(error, DurioError):
        problem, cure = f"{error.what} [{error.code}]", error.cure or cure
    elif isinstance(error, SystemExit):
        cure = "Guard what runs as a program: if __name__ == '__main__': ..."
    shown = user_traceback(error)
    return AppImportFailed(f"{what}: {problem}", cure=cure, traceback_text=shown)


def deps_failed(error: BaseException) -> DepsFailed:
    """Return the error of the user's `deps=` with its traceback, without our frames."""
    return DepsFailed(
        f"deps= raised {type(error).__name__}: {error_text(error)}",
        cure="Correct it, or see that what it needs can be reached.",
        traceback_text=user_traceback(error),
    )


def user_traceback(error: BaseException) -> str:
    """Return a traceback without the frames of this package and of the import system."""
    trace = traceback.TracebackException.from_exception(error, compact=True)
    hide_frames(trace)
    return "".join(trace.format())


def hide_frames(trace: traceback.TracebackException) -> None:
    """Remove our frames from every exception of the chain."""
    hidden = (PACKAGE_FOLDER, *IMPORT_MACHINERY)
    kept = [frame for frame in trace.stack if not frame.filename.startswith(hidden)]
    trace.stack[:] = kept
    for other in (trace.__cause__, trace.__context__):
        if other is not None:
            hide_frames(other)
