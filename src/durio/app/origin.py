"""Find the App of a worker again in a child process.

The command line names it as `module:attribute`. Other programs have no such name; then the
App is found by the functions of its tasks, each by its module and name. A script that was
started by its file is loaded again under another module name, so that the code below `if
__name__ == "__main__"` does not run again.
"""

import os
import runpy
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from durio.app.app import App
from durio.app.connect import loading
from durio.app.tasks import TaskCalls, function_location
from durio.host.child_wire import AppOrigin, TaskOrigin
from durio.model.errors import UsageError
from durio.ports.handler import Handler

MAIN = "__main__"
MAIN_AGAIN = "__durio_main__"
DEFAULT_ATTRIBUTE = "app"
WRITE_APP = (
    "Write MODULE:APP, as in shop.jobs:app: an App, or a function that returns one."
)


# --- in the worker


def origin_of(app: App) -> AppOrigin:
    """Return where the App and its tasks with process=True are defined."""
    handlers = [h for h in app.registry.handlers.values() if h.is_process]
    main = sys.modules[MAIN]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if file is not None and file.startswith("<"):  # `python - < script.py`
        file = None
    if app.origin is None:
        for handler in handlers:
            check_importable(handler, file)
    return AppOrigin(
        app=app.origin,
        tasks=[task_origin(handler) for handler in handlers],
        path=list(sys.path),
        main_module=None if spec is None else spec.name,
        main_file=None if file is None else os.path.abspath(file),  # noqa: PTH100
    )


def task_origin(handler: Handler) -> TaskOrigin:
    function = handler.function
    module = getattr(function, "__module__", None) or MAIN
    return TaskOrigin(handler.task, module, getattr(function, "__qualname__", ""))


def check_importable(handler: Handler, main_file: str | None) -> None:
    """Refuse a task whose function a child process cannot find by name."""
    found = task_origin(handler)
    if "<" in found.name or not found.name:
        raise UsageError(
            f"{handler.task} has process=True, but no child process can find it: "
            f"{found.name or 'it'} ({function_location(handler.function)}) is not at the top of "
            "a module",
            cure="Move it there, or start the worker with: durio worker module:app.",
        )
    if found.module == MAIN and main_file is None:
        raise UsageError(
            f"{handler.task} has process=True, but no child process can find it: it "
            "was defined interactively, not in a file",
            cure="Write the App to a file.",
        )


# --- in the child


def find_app(origin: AppOrigin) -> App:
    sys.path[:] = origin.path
    if origin.app is not None:
        app = named_app(origin.app)
        app.origin = origin.app
    else:
        app = app_of_tasks(origin)
    for name in app.imports:
        import_named(name)
    return app


def import_named(name: str) -> ModuleType:
    """Import a module; importlib's own function would add frames to tracebacks."""
    __import__(name)
    return sys.modules[name]


def named_app(path: str) -> App:
    """Return the App of `module:attribute`, which is an App or a function that makes one."""
    module, _, attribute = path.partition(":")
    if not module:
        raise UsageError(f"{path!r} names no App", cure=WRITE_APP)
    found: Any = import_named(module)
    for part in (attribute or DEFAULT_ATTRIBUTE).split("."):
        found = getattr(found, part)
    is_factory = callable(found) and not issubclass(type(found), App | TaskCalls)
    made: Any = found() if is_factory else found
    if not isinstance(made, App):
        kind = type(made).__name__
        raise UsageError(f"{path} is or gave a {kind}, not an App", cure=WRITE_APP)
    return made


def app_of_tasks(origin: AppOrigin) -> App:
    """Return the App on which these functions are tasks."""
    modules = {
        found.module: load_module(found.module, origin) for found in origin.tasks
    }
    for found in origin.tasks:
        value: Any = modules[found.module]
        for part in found.name.split("."):
            value = getattr(value, part, None)
        app = value._client if isinstance(value, TaskCalls) else None  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        for candidate in (app, *apps_in(modules.values())):
            if isinstance(candidate, App) and found.task in candidate.registry.by_name:
                return candidate
    raise UsageError(
        f"no App here has the tasks {', '.join(found.task for found in origin.tasks)}",
        cure="Make the App when its module is imported, or start: durio worker module:app.",
    )


def apps_in(modules: Iterable[ModuleType]) -> list[App]:
    """Return every App that is a global of these modules."""
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, App)
    ]


def load_module(module: str, origin: AppOrigin) -> ModuleType:
    """Return a module, even the one that the worker's program was started as."""
    if module != MAIN:
        return import_named(module)
    name, file = origin.main_module, origin.main_file or ""
    with loading(name or file):
        if name is not None:
            made = runpy.run_module(name, run_name=MAIN_AGAIN, alter_sys=True)
        else:
            made = runpy.run_path(file, run_name=MAIN_AGAIN)
    again = ModuleType(MAIN_AGAIN)
    vars(again).update(made)
    # Annotations and dataclasses look up a class's module in sys.modules.
    sys.modules[MAIN] = sys.modules[MAIN_AGAIN] = again
    return again
