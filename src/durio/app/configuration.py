"""Where an App's settings come from, strongest first: code, environment, file, defaults.

The file is `durio.toml` in the current directory, else the `[tool.durio]` table of a
pyproject.toml beside it; parent folders are not searched. `DURIO_X_FILE` names a file that
holds the value of `DURIO_X`, for secrets. Command-line flags override all of these.
"""

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from durio.app.connect import DEFAULT_URL, check_text, is_server, masked
from durio.model.errors import InvalidName, InvalidOption, UsageError
from durio.model.names import check_app, check_name, did_you_mean
from durio.model.routes import Route
from durio.model.settings import (
    Settings,
    merged,
    settings_from,
    settings_from_environment,
)

FILES = ("durio.toml", "pyproject.toml")
PREFIX, SUFFIX = "DURIO_", "_FILE"
DEFAULT_NAME = "app"
SECRET_BYTES_MAX = 64 * 1024
# Keys that a file may have beside the settings: the store, the App's name, and where the
# App is (MODULE:APP), for commands.
TOP_LEVEL_NAMES = ("url", "name", "app")
ROUTES = "routes"  # a file may have routes too, as `[[routes]]`
# By variable: the file that `durio --env-file` read it from.
ENV_FILES: dict[str, str] = {}

GivenSettings = Settings | Mapping[str, Any] | str | os.PathLike[str] | None


class SettingOrigin(NamedTuple):
    kind: str  # code, environment, file, default
    location: str  # argument, variable or path; empty for a default


DEFAULT = SettingOrigin("default", "")


class Configuration(NamedTuple):
    """The settings of an App, and where each value comes from."""

    url: str
    settings: Settings
    name: str | None  # None: nothing names the App
    app: str | None  # MODULE:APP, for commands
    file: str | None  # the settings file that was read
    origins: Mapping[str, SettingOrigin]  # only of values that are not defaults
    routes: Sequence[tuple[str, Route]]  # those of the file

    def name_on(self, url: str) -> str:
        """Return the name of an App on this store; on a server, one must be given."""
        if self.name is None and is_server(url):
            raise UsageError(
                f"an App on {masked(url)} needs a name: services that share a database "
                "would run each other's jobs",
                cure='Write App(name="shop"), set DURIO_NAME=shop, or write name = "shop" '
                "in durio.toml.",
            )
        return self.name or DEFAULT_NAME

    def origin(self, name: str) -> SettingOrigin:
        """Return where a setting comes from, by its dotted name."""
        return self.origins.get(name, DEFAULT)


class SettingsSource(NamedTuple):
    """All values from one source."""

    beside: Mapping[str, Any]  # the values of TOP_LEVEL_NAMES
    tree: Mapping[str, Any]
    origins: Mapping[str, SettingOrigin]
    routes: Sequence[tuple[str, Route]] = ()


def configuration(
    url: str | None, given: GivenSettings, name: str | None = None
) -> Configuration:
    """Merge code, environment and file; a Settings object is used unchanged."""
    if url is not None and not isinstance(url, str):
        check_text(url)
    sources = [source_of_code(url, given, name)]
    if isinstance(given, Settings):
        path = None
        sources.append(source_of_variables(environment(), {}))
    else:
        environ = environment()
        sources.append(source_of_variables(environ, settings_from_environment(environ)))
        path = os.fspath(given) if isinstance(given, str | os.PathLike) else find_file()
        sources += [] if path is None else [source_of_file(path)]
    origins: dict[str, SettingOrigin] = {}
    for source in reversed(sources):
        origins |= source.origins
    url, named, app = (
        first_given(source.beside.get(key) for source in sources)
        for key in TOP_LEVEL_NAMES
    )
    return Configuration(
        url=url or DEFAULT_URL,
        settings=effective_settings(given, sources, origins),
        name=checked_name(named, origins) if name is None else check_app(name),
        app=app,
        file=path,
        origins=origins,
        routes=next((source.routes for source in sources if source.routes), ()),
    )


def version_of_code(given: str | None) -> str | None:
    """Return the version of the user's code: as given, else from `DURIO_VERSION`."""
    version = given or os.environ.get("DURIO_VERSION")
    return check_name("version", version) if version else None


def first_given(values: Iterable[Any]) -> Any:
    """Return the first value that is not empty, or None."""
    return next((value for value in values if value), None)


def checked_name(name: str | None, origins: Mapping[str, SettingOrigin]) -> str | None:
    """Check the name from the environment or a file; an error names its source."""
    try:
        return None if name is None else check_app(name)
    except InvalidName as error:
        raise misplaced(error, origins["name"]) from None


def misplaced(
    error: InvalidName | InvalidOption, origin: SettingOrigin
) -> InvalidOption:
    """Return the error of a value, with the variable or the file that it comes from."""
    file = ENV_FILES.get(origin.location)
    where = origin.location if file is None else f"{origin.location} in {file}"
    return InvalidOption(
        f"{where}: {error.what}", cure=error.cure, place=origin.location
    )


def effective_settings(
    given: GivenSettings,
    sources: list[SettingsSource],
    origins: Mapping[str, SettingOrigin],
) -> Settings:
    """Merge all trees; an error names the source of the wrong value."""
    if isinstance(given, Settings):
        return given
    try:
        return settings_from(merged(*(source.tree for source in reversed(sources))))
    except InvalidOption as error:
        origin = origins.get(error.values.get("setting", ""), DEFAULT)
        if origin.kind not in {"environment", "file"}:
            raise
        raise misplaced(error, origin) from None


# --- code


def source_of_code(
    url: str | None, given: GivenSettings, name: str | None
) -> SettingsSource:
    origins = {"url": SettingOrigin("code", "App(url)")} if url else {}
    origins |= {"name": SettingOrigin("code", "App(name=)")} if name else {}
    tree: Mapping[str, Any] = {}
    if isinstance(given, Settings):
        origins |= dict.fromkeys(setting_names(), SettingOrigin("code", "settings="))
    elif given is not None and not isinstance(given, str | os.PathLike):
        tree = merged(given)  # refuses anything but a dict
        origins |= dict.fromkeys(dotted_names(tree), SettingOrigin("code", "settings="))
    return SettingsSource({"url": url, "name": name}, tree, origins)


def setting_names() -> list[str]:
    """Return the dotted names of all settings."""
    usual = Settings()
    return [
        f"{group}.{field}"
        for group in usual.__struct_fields__
        for field in getattr(usual, group).__struct_fields__
    ]


def dotted_names(tree: Mapping[str, Any]) -> list[str]:
    """Return the dotted names of a tree, and the names of its groups."""
    names: list[str] = []
    for group, fields in tree.items():
        if isinstance(fields, Mapping):
            names += [f"{group}.{field}" for field in cast("dict[str, Any]", fields)]
        names.append(group)
    return names


# --- the environment


def environment() -> dict[str, str]:
    """Return variables that begin with DURIO_; for a `_FILE` one, its file's content."""
    found = {k: v for k, v in os.environ.items() if k.startswith(PREFIX)}
    for variable in [name for name in found if name.endswith(SUFFIX)]:
        plain = variable.removesuffix(SUFFIX)
        if plain in found:
            raise InvalidOption(
                f"{plain} and {variable} are both set",
                cure="Set one of them.",
                place=variable,
            )
        found[plain] = read_secret_file(variable, found.pop(variable))
    return found


def read_secret_file(variable: str, path: str) -> str:
    """Return the content of a file, stripped."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs an import
            return file.read(SECRET_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InvalidOption(
            f"{variable} names a file that cannot be read: {error}",
            cure=f"Give the path of a text file, or set {variable[: -len(SUFFIX)]}.",
            place=variable,
        ) from None


def source_of_variables(
    environ: Mapping[str, str], tree: Mapping[str, Any]
) -> SettingsSource:
    """Return store, name and place of the App from the environment, with a settings tree."""
    names = [
        *dotted_names(tree),
        *(name for name in TOP_LEVEL_NAMES if environ.get(variable_name(name))),
    ]
    origins = {
        name: SettingOrigin("environment", variable_in_use(name)) for name in names
    }
    beside = {name: environ.get(variable_name(name)) for name in TOP_LEVEL_NAMES}
    return SettingsSource(beside, tree, origins)


def variable_name(name: str) -> str:
    return PREFIX + name.replace(".", "__").upper()


def variable_in_use(name: str) -> str:
    """Return the variable that is set: the plain one, or the one that names a file."""
    variable = variable_name(name)
    pointing = variable + SUFFIX
    return pointing if pointing in os.environ else variable


# --- the file


def find_file() -> str | None:
    """Return the settings file of the current directory, if there is one."""
    for name in FILES:
        # Most projects have a pyproject.toml, so parse it only if it has our table.
        if os.path.isfile(name) and (name == FILES[0] or has_durio_table(name)):  # noqa: PTH113
            return os.path.abspath(name)  # noqa: PTH100 - pathlib costs an import
    return None


def has_durio_table(path: str) -> bool:
    """Whether a pyproject.toml seems to have our table; does not parse it."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return b"tool.durio" in file.read()
    except OSError:  # not readable: treated as another project's
        return False


def source_of_file(path: str) -> SettingsSource:
    """Return the settings in a file; it may also name the store, the App and its place."""
    # The parser is imported only when there is a file.
    reader = importlib.import_module("durio.app.settings_file")
    tree: dict[str, Any] = reader.settings_file(path)
    routes = reader.routes_of_file(tree.pop(ROUTES, []), path)
    known = (*TOP_LEVEL_NAMES, ROUTES, *Settings.__struct_fields__)
    for name, value in tree.items():
        if name not in known:
            raise InvalidOption(
                f"{path}: there is no setting {name}",
                cure=f"Known here: {', '.join(known)}.{did_you_mean(name, known)}",
                place=path,
            )
        if name not in TOP_LEVEL_NAMES and not isinstance(value, dict):
            raise InvalidOption(
                f"{path}: setting {name} is a group, not {value!r}",
                cure=f"Write a table: [{name}], and its settings below.",
                place=path,
            )
    beside = {name: tree.pop(name) for name in TOP_LEVEL_NAMES if name in tree}
    for name, value in beside.items():
        if not isinstance(value, str):
            raise InvalidOption(
                f"{path}: {name} cannot be {value!r}", cure="Give text.", place=path
            )
    named = [*dotted_names(tree), *beside, *([ROUTES] if routes else [])]
    origins = dict.fromkeys(named, SettingOrigin("file", path))
    return SettingsSource(beside, tree, origins, routes)
