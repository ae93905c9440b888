"""Load the App of a command from user code; explain why it cannot be loaded."""

import importlib
import os
import pkgutil
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from durio.app.app import App
from durio.app.configuration import configuration
from durio.app.connect import absolute_url, current_folder, masked
from durio.app.cures import quoted
from durio.app.tasks import Task
from durio.cli.main import AppImportFailed, DepsFailed
from durio.model.errors import DurioError, InvalidOption, UsageError
from durio.model.failure import error_text
from durio.model.names import did_you_mean

DEFAULT_ATTRIBUTE = "app"
PACKAGE_FOLDER = str(Path(__file__).parents[1]) + os.sep
IMPORT_MACHINERY = ("<frozen importlib", importlib.__file__)


class AppPlace(NamedTuple):
    """MODULE:APP, and what names it when it was not typed."""

    path: str
    origin: str = ""  # DURIO_APP, or the path of a settings file


def configured_place() -> AppPlace | None:
    """Return the App that DURIO_APP or the settings file names, if one does."""
    known = configuration(None, None)
    return (
        None if known.app is None else AppPlace(known.app, known.origin("app").location)
    )


def typed_once(argument: str | None, option: str | None) -> str | None:
    """Return the App that was typed, as an argument or with --app."""
    if argument is not None and option is not None:
        raise UsageError("the App is named twice", cure="Leave out --app.")
    return option if argument is None else argument


def required_place(typed: str | None) -> AppPlace:
    """Return the App of a command that needs one."""
    place = configured_place() if typed is None else AppPlace(typed)
    if place is None:
        raise UsageError(
            "no App is named",
            cure="Write MODULE:APP, such as: durio worker app:app\n"
            'Or set DURIO_APP=app:app, or write app = "app:app" in durio.toml.',
        )
    return place


def load_placed_app(place: AppPlace, store: str | None, *, is_needed: bool) -> App:
    """Load an App; an error names DURIO_APP or the file, and the way without its code."""
    try:
        return load_app(place.path, store)
    except AppImportFailed as error:
        raise AppImportFailed(
            f"{place.origin}: {error.what}" if place.origin else error.what,
            cure=error.cure if is_needed else f"{error.cure}\n{way_without_code()}",
            traceback_text=error.traceback_text,
        ) from error.__cause__


def way_without_code() -> str:
    """Return how to run a command that does not need the App's code."""
    known = configuration(None, None)
    url, name = absolute_url(known.url, current_folder()), known.name or "NAME"
    if known.origin("url").kind == "default" or masked(url) != url:
        url = "URL"
    return (
        f"To run this without the App's code, add: --store {quoted(url)} --name {name}"
    )


# --- the module and its App


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
    if not callable(found) or issubclass(type(found), Task):
        raise AppImportFailed(
            f"{path} is a {type(found).__name__}, not an App",
            cure=apps_in(module, attribute),
        )
    try:
        made = found()
    except (Exception, SystemExit) as error:
        reraise_settings_error(error)
        raise import_failed(error, f"{path} returned no App") from error
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
        cure="Correct it, or check that the services it connects to can be reached.",
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
