"""The pytest plugin: the fixture `durio_box`, for the App that the project names."""

import os
import sys
from collections.abc import Iterator

import pytest

from durio.app.app import App
from durio.app.configuration import find_file
from durio.app.origin import import_named, named_app
from durio.app.settings_file import settings_file
from durio.model.errors import UsageError
from durio.testing.box import Box, testing

INI, VARIABLE = "durio_app", "DURIO_APP"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option that names the App."""
    parser.addini(INI, "The App of the fixture durio_box, as MODULE:APP.", default="")


@pytest.fixture
def durio_box(pytestconfig: pytest.Config) -> Iterator[Box]:
    """Give a pytest test a Box for the project's App, as `testing(app)` does.

    The App is the one that `durio_app` in pytest's ini file names, else `DURIO_APP`, else
    `app` in the settings file.
    """
    try:
        app = app_of_project(pytestconfig)
    except UsageError as error:
        pytest.fail(str(error), pytrace=False)  # no frame of it is the user's
    with testing(app) as box:
        yield box


def app_of_project(config: pytest.Config) -> App:
    """Return the App that the ini file, the environment or the settings file names."""
    named, where = named_where(config)
    if not named:
        raise UsageError(
            "the fixture durio_box does not know the App",
            cure=f"Write {INI} = shop.jobs:app in the ini file of pytest, set "
            f"{VARIABLE}, or write app = in durio.toml.",
        )
    root = str(config.rootpath)
    if root not in sys.path:  # as `durio worker` and `python -m pytest` do
        sys.path.insert(0, root)
    try:
        app = named_app(named)
        for module in app.imports:
            import_named(module)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{where} says {named!r}, which cannot be loaded: {error}",
            cure="Write MODULE:APP, as in shop.jobs:app.",
        ) from error
    return app


def named_where(config: pytest.Config) -> tuple[str, str]:
    """Return MODULE:APP and its place; both are empty if nothing names the App."""
    if named := str(config.getini(INI)):
        return named, INI
    if named := os.environ.get(VARIABLE, ""):
        return named, VARIABLE
    file = find_file()
    return ("", "") if file is None else (str(settings_file(file).get("app", "")), file)
