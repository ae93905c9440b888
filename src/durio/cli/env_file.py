"""`durio --env-file FILE`: variables from a file of KEY=VALUE lines.

No file is read by itself: an App in a web process or a script would not read it, and then
commands and the App would use different stores.
"""

from collections.abc import MutableMapping
from pathlib import Path
from typing import NamedTuple

from durio.app.configuration import ENV_FILES
from durio.model.errors import UsageError


class EnvFile(NamedTuple):
    """The file of --env-file, and the names of the variables that it set."""

    arguments: tuple[str, ...]  # for processes that read it again
    names: frozenset[str]


NO_ENV_FILE = EnvFile((), frozenset())


def read_env_file(path: str, environ: MutableMapping[str, str]) -> EnvFile:
    """Put KEY=VALUE lines into the environment unless already set."""
    text = env_file_text(path)
    set_already = set(environ)
    taken = {
        name: value
        for name, value in env_lines(text, path)
        if not {name, name.removesuffix("_FILE"), f"{name}_FILE"} & set_already
    }
    environ.update(taken)
    ENV_FILES.clear()
    ENV_FILES.update(dict.fromkeys(taken, str(Path(path).absolute())))
    return EnvFile(("--env-file", path), frozenset(taken))


def env_file_text(path: str) -> str:
    """Return the text of a file; raises UsageError if it cannot be read as text."""
    cure = "Give a file with KEY=VALUE lines."
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        problem, cure = f"there is no file {Path(path).absolute()}", "Check the path."
    except IsADirectoryError:
        problem = f"{Path(path).absolute()} is a folder"
    except UnicodeDecodeError:
        problem = f"{Path(path).absolute()} is not UTF-8 text"
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        problem = f"{path!r} cannot be read: {reason}"
    raise UsageError(f"--env-file: {problem}", cure=cure)


def env_lines(text: str, path: str) -> list[tuple[str, str]]:
    """Return the variables of such a file; lines in another syntax are skipped."""
    found: list[tuple[str, str]] = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name.isidentifier() or "\0" in value:
            if name.startswith("DURIO_"):
                raise UsageError(
                    f"{Path(path).absolute()}, line {number}: {line.strip()[:100]!r} sets no variable",
                    cure="Write NAME=VALUE.",
                )
            continue
        if value[:1] in {"'", '"'}:
            value = value[1:].partition(value[0])[0]
        else:
            value = value.partition(" #")[0].rstrip()
        found.append((name, value))
    return found
