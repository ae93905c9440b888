"""Reads a store's SQL: migrations, and one file per capability with named statements.

A statement begins with its name and the order of its parameters, and uses them by name:

    -- name: free_key(key, job_id)
    delete from uniq where key = :key and id = :job_id

At load, `:key` becomes the driver's placeholder for the first parameter (`?1` or `$1`).
Text that several statements must share to the letter is a part: `-- part: done` gives it a
name, `{done}` inserts it, and its parameters are those of the statement. A store may add
parts of its own, such as the columns of a class. Lines that hold nothing but a comment are
not sent to the database.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files

from durio.model.migration import Migration, migrations_of

HEAD = re.compile(
    r"-- (?P<kind>name|part): (?P<name>\w+)(?:\((?P<parameters>[^)]*)\))?"
)
# Not `::type`, not a slice, and not part of a longer word.
PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")
# Fields of a job whose column has another name.
COLUMN_NAMES = {"key": "ukey", "cancel_asked": "cancel"}


def column_list(fields: Iterable[str], names: Mapping[str, str] = COLUMN_NAMES) -> str:
    """Return the columns that hold these fields of a job, in their order."""
    return ", ".join(names.get(field, field) for field in fields)


def read_statements(
    package: str, placeholder: str, given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return every statement below `sql/` of this package, by name, ready for the driver.

    `placeholder` is the sign before a parameter's number: "?" or "$". `given` are parts by
    name.
    """
    parts: dict[str, str] = dict(given or {})
    found: dict[str, tuple[list[str], str]] = {}
    for _, text in _texts(package, "sql"):
        for head, body in _blocks(text):
            name = head["name"]
            if name in parts or name in found:
                raise ValueError(f"{package}: two statements are named {name!r}")
            if head["kind"] == "part":
                parts[name] = body
            else:
                parameters = (head["parameters"] or "").split(",")
                found[name] = ([p.strip() for p in parameters if p.strip()], body)
    return {
        name: _numbered(name, parameters, _filled(body, parts), placeholder)
        for name, (parameters, body) in found.items()
    }


@cache
def read_migrations(package: str) -> tuple[Migration, ...]:
    """Return every migration below `migrations/` of this package, in order."""
    return migrations_of(_texts(package, "migrations"))


def _texts(package: str, folder: str) -> Iterator[tuple[str, str]]:
    """Return name and text of each SQL file."""
    found = files(package).joinpath(folder).iterdir()
    for file in sorted(found, key=lambda file: file.name):
        if file.name.endswith(".sql"):
            yield file.name, file.read_text(encoding="utf-8")


def _blocks(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each head with the lines up to the next one.

    Text before the first head is a comment.
    """
    head: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.splitlines():
        following = HEAD.fullmatch(line.rstrip())
        if following is not None:
            if head is not None:
                yield head, "\n".join(lines)
            head, lines = following, []
        elif not line.lstrip().startswith("--") and line.strip():
            lines.append(line)
    if head is not None:
        yield head, "\n".join(lines)


def _filled(body: str, parts: dict[str, str]) -> str:
    for name, part in parts.items():
        body = body.replace(f"{{{name}}}", part)
    return body


def _numbered(name: str, parameters: list[str], body: str, placeholder: str) -> str:
    numbers = {parameter: n for n, parameter in enumerate(parameters, 1)}
    used: set[str] = set()

    def number(match: re.Match[str]) -> str:
        parameter = match[1]
        if parameter not in numbers:
            raise ValueError(f"{name}: the parameter :{parameter} is not declared")
        used.add(parameter)
        return f"{placeholder}{numbers[parameter]}"

    text = PARAMETER.sub(number, body)
    if unused := [parameter for parameter in parameters if parameter not in used]:
        raise ValueError(f"{name}: declared and not used: {', '.join(unused)}")
    return text
