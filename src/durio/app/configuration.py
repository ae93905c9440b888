"""Where an App's settings come from, strongest first: code, environment, file, defaults.

The file is `durio.toml` in the current directory, else the `[tool.durio]` table of a
pyproject.toml beside it; parent folders are not searched. `DURIO_X_FILE` names a file that
holds the value of `DURIO_X`, for secrets. Command-line flags override all of these.
"""

import importlib
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from durio.app.connect import DEFAULT_URL
from durio.model.errors import InvalidOption
from durio.model.names import did_you_mean
from durio.model.settings import (
    Settings,
    merged,
    settings_from,
    settings_from_environment,
)

FILES = ("durio.toml", "pyproject.toml")
PREFIX, SUFFIX = "DURIO_", "_FILE"
SECRET_BYTES_MAX = 64 * 1024
# Keys that a file may have beside the settings. `name` is for commands that run without
# the App's code; an App gets its name from code.
TOP_LEVEL_NAMES = ("url", "name")
# By variable: the file, such as .env, from which a program loaded it.
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
    name: str | None  # from a file, for commands that run without the App's code
    file: str | None  # the settings file that was read
    origins: Mapping[str, SettingOrigin]  # only of values that are not defaults

    def origin(self, name: str) -> SettingOrigin:
        """Return where a setting comes from, by its dotted name."""
        return self.origins.get(name, DEFAULT)


class SettingsSource(NamedTuple):
    """All values from one source."""

    url: Any
    name: Any
    tree: Mapping[str, Any]
    origins: Mapping[str, SettingOrigin]


def configuration(url: str | None, given: GivenSettings) -> Configuration:
    """Merge code, environment and file; a Settings object is used unchanged."""
    sources = [source_of_code(url, given)]
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
    return Configuration(
        url=first_given(source.url for source in sources) or DEFAULT_URL,
        settings=effective_settings(given, sources, origins),
        name=first_given(source.name for source in sources),
        file=path,
        origins=origins,
    )


def first_given(values: Iterable[Any]) -> Any:
    """Return the first value that is not empty, or None."""
    return next((value for value in values if value), None)


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
        file = ENV_FILES.get(origin.location)
        where = origin.location if file is None else f"{origin.location} in {file}"
        raise InvalidOption(
            f"{where}: {error.what}", cure=error.cure, place=origin.location
        ) from None


# --- code


def source_of_code(url: str | None, given: GivenSettings) -> SettingsSource:
    origins = {"url": SettingOrigin("code", "App(url)")} if url else {}
    tree: Mapping[str, Any] = {}
    if isinstance(given, Settings):
        origins |= dict.fromkeys(setting_names(), SettingOrigin("code", "settings="))
    elif given is not None and not isinstance(given, str | os.PathLike):
        tree = merged(given)  # refuses anything but a dict
        origins |= dict.fromkeys(dotted_names(tree), SettingOrigin("code", "settings="))
    return SettingsSource(url, None, tree, origins)


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
    """Return the store's URL and the App's name from the environment, with a settings tree."""
    names = [
        *dotted_names(tree),
        *(name for name in TOP_LEVEL_NAMES if environ.get(variable_name(name))),
    ]
    origins = {
        name: SettingOrigin("environment", variable_in_use(name)) for name in names
    }
    url, name = (environ.get(variable_name(name)) for name in TOP_LEVEL_NAMES)
    return SettingsSource(url, name, tree, origins)


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
    """Return the settings in a file; it may also name the store and the App."""
    # The parser is imported only when there is a file.
    reader = importlib.import_module("durio.app.settings_file")
    tree: dict[str, Any] = reader.settings_file(path)
    known = (*TOP_LEVEL_NAMES, *Settings.__struct_fields__)
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
    origins = dict.fromkeys([*dotted_names(tree), *beside], SettingOrigin("file", path))
    return SettingsSource(beside.get("url"), beside.get("name"), tree, origins)
