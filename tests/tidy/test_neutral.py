"""Tracked files name no registry and no developer's folder.

The name of a registry in a tracked file ties every build to that registry: a build with
a mirror, a cache or no network would then fail.
"""

import re

import pytest

from tests.tidy.house import ROOT, pyproject, text_or_none, tracked_files

# Written in two halves, so that this file does not match.
REGISTRIES = [
    f"{name}.{domain}"
    for name, domain in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("jsdelivr", "net"),
        ("unpkg", "com"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("crates", "io"),
        ("proxy.golang", "org"),
    )
]
LOCK_FILES = {"uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock", "pylock.toml"}
LOCK_FILES |= {"package-lock.json", "yarn.lock", "pnpm-lock.yaml"}
LOCK_FILES |= {"npm-shrinkwrap.json", "bun.lock", "bun.lockb"}

# More than one folder deep: a path such as /app would match unrelated text.
CHECKOUT = [f"{ROOT}/"] if len(ROOT.parts) > 2 else []


def test_no_tracked_file_names_another_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)} names {word}"
        for path in tracked_files()
        if (text := text_or_none(path)) is not None
        for word in [*REGISTRIES, *CHECKOUT]
        if word in text
    ]
    assert not found, "; ".join(found)


def test_no_lock_file_names_where_packages_come_from() -> None:
    """The page's packages are locked by hash, without addresses; Python's are plain lines."""
    locks = [path for path in tracked_files() if path.name in LOCK_FILES]
    foreign = [path.name for path in locks if path != ROOT / "ui/package-lock.json"]
    assert not foreign, f"{foreign}: pin with plain lines in constraints.txt"
    for path in locks:
        assert '"resolved"' not in path.read_text(encoding="utf-8"), (
            f"{path.name} has addresses: ui/.npmrc has omit-lockfile-registry-resolved"
        )


@pytest.mark.parametrize("name", ["constraints.txt", "requirements-dev.txt"])
def test_pins_are_plain_lines(name: str) -> None:
    for line in lines_of(name):
        plain = re.fullmatch(r"[\w.-]+(\[[\w,-]+\])?(==[\w.!+-]+)?", line)
        assert plain, f"{name}: {line!r} is not a plain line"


def test_everything_installed_for_development_is_pinned() -> None:
    pins = {normal(line.split("==")[0]) for line in lines_of("constraints.txt")}
    project = pyproject()["project"]
    wanted = {normal(line) for line in project["dependencies"]}
    wanted |= {normal(line) for line in lines_of("requirements-dev.txt")}
    assert wanted <= pins, f"constraints.txt lacks {sorted(wanted - pins)}"
    assert all("==" in line for line in lines_of("constraints.txt"))


def lines_of(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def normal(requirement: str) -> str:
    """`Py_Right[nodejs]>=1` -> `py-right`: the normalised name, as in indexes."""
    name = re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()
