"""Where an App's settings come from, strongest first: code, environment, file, defaults.

The file is `durio.toml` in the current directory, else the `[tool.durio]` table of a
pyproject.toml beside it; folders above are not searched. `DURIO_X_FILE` names a file that
holds the value of `DURIO_X`, for secrets. Flags of the command line come on top of this.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from durio.app.connect import DEFAULT_URL, settings_file
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
# What a file may say beside the settings; an App's own name stands in its code.
BESIDE = ("url", "name")
# Variables that a program has taken from a file such as .env, and that file.
ENV_FILES: dict[str, str] = {}

Given = Settings | Mapping[str, Any] | str | os.PathLike[str] | None


class Origin(NamedTuple):
    """Where one value comes from."""

    kind: str  # code, environment, file, default
    place: str  # an argument, a variable or a path; empty for a default


DEFAULT = Origin("default", "")


class Configuration(NamedTuple):
    """What an App was told, and by whom."""

    url: str
    settings: Settings
    name: str | None  # as a file says it: for commands that run without the App's code
    file: str | None  # the settings file that was read
    origins: Mapping[str, Origin]  # only of what is not a default

    def origin(self, name: str) -> Origin:
        """Where a setting comes from, by its dotted name."""
        return self.origins.get(name, DEFAULT)


class Source(NamedTuple):
    """Everything that one place says."""

    url: Any
    name: Any
    tree: Mapping[str, Any]
    origins: Mapping[str, Origin]


def configuration(url: str | None, given: Given) -> Configuration:
    """Ask code, the environment and the file; a Settings is taken as it is."""
    sources = [source_of_code(url, given)]
    if isinstance(given, Settings):
        path = None
        sources.append(source_of_variables(environment(), {}))
    else:
        environ = environment()
        sources.append(source_of_variables(environ, settings_from_environment(environ)))
        path = os.fspath(given) if isinstance(given, str | os.PathLike) else find_file()
        sources += [] if path is None else [source_of_file(path)]
    origins: dict[str, Origin] = {}
    for source in reversed(sources):
        origins |= source.origins
    return Configuration(
        url=strongest(source.url for source in sources) or DEFAULT_URL,
        settings=effective_settings(given, sources, origins),
        name=strongest(source.name for source in sources),
        file=path,
        origins=origins,
    )


def strongest(values: Iterable[Any]) -> Any:
    """The first that says anything."""
    return next((value for value in values if value), None)


def effective_settings(
    given: Given, sources: list[Source], origins: Mapping[str, Origin]
) -> Settings:
    """All trees as one; an error names the place of the value that is wrong."""
    if isinstance(given, Settings):
        return given
    try:
        return settings_from(merged(*(source.tree for source in reversed(sources))))
    except InvalidOption as error:
        origin = origins.get(error.values.get("setting", ""), DEFAULT)
        if origin.kind not in {"environment", "file"}:
            raise
        file = ENV_FILES.get(origin.place)
        where = origin.place if file is None else f"{origin.place} in {file}"
        raise InvalidOption(
            f"{where}: {error.what}", cure=error.cure, place=origin.place
        ) from None


# --- code


def source_of_code(url: str | None, given: Given) -> Source:
    """The arguments of an App."""
    origins = {"url": Origin("code", "App(url)")} if url else {}
    tree: Mapping[str, Any] = {}
    if isinstance(given, Settings):
        origins |= dict.fromkeys(every_setting(), Origin("code", "settings="))
    elif given is not None and not isinstance(given, str | os.PathLike):
        tree = merged(given)  # refuses what is no dict
        origins |= dict.fromkeys(flat(tree), Origin("code", "settings="))
    return Source(url, None, tree, origins)


def every_setting() -> list[str]:
    """Every setting by its dotted name."""
    usual = Settings()
    return [
        f"{group}.{field}"
        for group in usual.__struct_fields__
        for field in getattr(usual, group).__struct_fields__
    ]


def flat(tree: Mapping[str, Any]) -> list[str]:
    """The dotted names of a tree; what is no group is a name of its own."""
    names: list[str] = []
    for group, fields in tree.items():
        if isinstance(fields, Mapping):
            names += [f"{group}.{field}" for field in cast("dict[str, Any]", fields)]
        names.append(group)
    return names


# --- the environment


def environment() -> dict[str, str]:
    """The variables that begin with DURIO_, with what `_FILE` ones point at."""
    found = {k: v for k, v in os.environ.items() if k.startswith(PREFIX)}
    for variable in [name for name in found if name.endswith(SUFFIX)]:
        plain = variable.removesuffix(SUFFIX)
        if plain in found:
            raise InvalidOption(
                f"{plain} and {variable} are both set",
                cure="Set one of them.",
                place=variable,
            )
        found[plain] = secret(variable, found.pop(variable))
    return found


def secret(variable: str, path: str) -> str:
    """What a file holds, without the line's end."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs an import
            return file.read(SECRET_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InvalidOption(
            f"{variable} names a file that cannot be read: {error}",
            cure=f"Give the path of a text file, or set {variable[: -len(SUFFIX)]}.",
            place=variable,
        ) from None


def source_of_variables(environ: Mapping[str, str], tree: Mapping[str, Any]) -> Source:
    """The store and the App's name from the environment, beside a tree of settings."""
    names = [*flat(tree), *(name for name in BESIDE if environ.get(variable_of(name)))]
    origins = {name: Origin("environment", named_variable(name)) for name in names}
    url, name = (environ.get(variable_of(name)) for name in BESIDE)
    return Source(url, name, tree, origins)


def variable_of(name: str) -> str:
    """How a setting is spelt in the environment."""
    return PREFIX + name.replace(".", "__").upper()


def named_variable(name: str) -> str:
    """The variable that is really set: perhaps the one that names a file."""
    variable = variable_of(name)
    pointing = variable + SUFFIX
    return pointing if pointing in os.environ else variable


# --- the file


def find_file() -> str | None:
    """The settings file of the current directory, if there is one."""
    for name in FILES:
        # Nearly every project has a pyproject.toml: its parser is for those who need it.
        if os.path.isfile(name) and (name == FILES[0] or is_ours(name)):  # noqa: PTH113
            return os.path.abspath(name)  # noqa: PTH100 - pathlib costs an import
    return None


def is_ours(path: str) -> bool:
    """Whether a pyproject.toml has our table."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return b"tool.durio" in file.read()
    except OSError:  # not readable: then it is not for us
        return False


def source_of_file(path: str) -> Source:
    """What a file says; it may name the store too."""
    tree = dict(settings_file(path))
    known = (*BESIDE, *Settings.__struct_fields__)
    for name, value in tree.items():
        if name not in known:
            raise InvalidOption(
                f"{path}: there is no setting {name}",
                cure=f"Known here: {', '.join(known)}.{did_you_mean(name, known)}",
                place=path,
            )
        if name not in BESIDE and not isinstance(value, dict):
            raise InvalidOption(
                f"{path}: setting {name} is a group, not {value!r}",
                cure=f"Write a table: [{name}], and its settings below.",
                place=path,
            )
    beside = {name: tree.pop(name) for name in BESIDE if name in tree}
    for name, value in beside.items():
        if not isinstance(value, str):
            raise InvalidOption(
                f"{path}: {name} cannot be {value!r}", cure="Give text.", place=path
            )
    origins = dict.fromkeys([*flat(tree), *beside], Origin("file", path))
    return Source(beside.get("url"), beside.get("name"), tree, origins)
