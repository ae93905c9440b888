"""The pytest plugin, and a box in every style of test, in processes of their own.

Our own suite runs without the plugin: it would import the package before coverage starts.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import Require

ROOT = Path(__file__).parents[2]

SHOP = """
from durio import App

# Never opened: there is no such server.
app = App("postgresql://never-opened.invalid/shop", name="shop")


@app.task(retry=0)
async def double(n: int) -> int:
    if n < 0:
        raise ValueError("negative")
    return n * 2
"""

SYNC = """
import pytest
from shop import double

def test_sync(durio_box):
    job = double.enqueue_sync(2)
    durio_box.drain_sync()
    assert job.result_sync() == 4

def test_every_test_has_a_box_of_its_own(durio_box):
    assert durio_box.jobs() == []

def test_the_exception_of_the_task(durio_box):
    double.enqueue_sync(-1)
    with pytest.raises(ValueError, match="negative"):
        durio_box.drain_sync()

class TestInAClass:
    def test_method(self, durio_box):
        assert durio_box.jobs() == []
"""

ASYNC = """
import pytest
from shop import double
{mark}
async def test_async(durio_box):
    job = await double.enqueue(2)
    assert [one.arguments for one in durio_box.jobs()] == [{{"n": 2}}]
    await durio_box.drain()
    assert await job.result() == 4
{mark}
async def test_again(durio_box):
    assert durio_box.jobs() == []
    await double.options(delay="1h").enqueue(2)
    await durio_box.drain(until="1h")
    assert durio_box.jobs()[0].state == "done"
"""

ANYIO = (
    ASYNC
    + """
@pytest.fixture
def anyio_backend():
    return "asyncio"
"""
)

UNITTEST = """
import unittest
from durio.testing import testing
from shop import app, double

class SyncCase(unittest.TestCase):
    def setUp(self):
        self.box = self.enterContext(testing(app))

    def test_sync(self):
        job = double.enqueue_sync(2)
        self.box.drain_sync()
        self.assertEqual(job.result_sync(), 4)

class AsyncCase(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.box = self.enterContext(testing(app))

    async def test_async(self):
        job = await double.enqueue(2)
        await self.box.drain()
        self.assertEqual(await job.result(), 4)

    async def test_inside(self):
        with testing(app) as box:
            await double.enqueue(3)
            await box.drain()
            self.assertEqual(len(box.jobs()), 1)
"""

INI = """
[pytest]
addopts = -W error -p no:cacheprovider -p no:hypothesispytest -p no:xdist -p no:cov
asyncio_default_fixture_loop_scope = function
{more}
"""

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command in a project with the installed plugin; its code and output."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [f"{k} = {v}" for k, v in points["entry-points"]["pytest11"].items()]
    installed = tmp_path / "installed/durio_entry-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: durio-entry\nVersion: 0\n")
    (installed / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]))
    project = tmp_path / "project"
    project.mkdir()
    (project / "shop.py").write_text(SHOP)

    def run(files: dict[str, str], *command: str, **environ: str) -> tuple[int, str]:
        for name, text in files.items():
            (project / name).write_text(text)
        path = [str(ROOT / "src"), str(installed.parent), os.environ.get("PYTHONPATH")]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("DURIO_")}
        done = subprocess.run(
            command or [str(Path(sys.executable).parent / "pytest"), "-v"],
            cwd=project,
            env={**kept, "PYTHONPATH": os.pathsep.join(filter(None, path)), **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout

    return run


def passed(output: str) -> set[str]:
    return set(re.findall(r"^(\S+) PASSED", output, re.MULTILINE))


def test_sync_strict_anyio_and_unittest_with_the_ini_file(
    run: Run, require: Require
) -> None:
    require(find_spec("pytest_asyncio"), "pytest-asyncio")
    files = {
        "pytest.ini": INI.format(more="durio_app = shop:app"),
        "test_sync.py": SYNC,
        "test_strict.py": ASYNC.format(mark="@pytest.mark.asyncio"),
        "test_anyio.py": ANYIO.format(mark="@pytest.mark.anyio"),
        "test_case.py": UNITTEST,
    }
    code, output = run(files)
    assert code == 0, output
    assert passed(output) == {
        "test_sync.py::test_sync",
        "test_sync.py::test_every_test_has_a_box_of_its_own",
        "test_sync.py::test_the_exception_of_the_task",
        "test_sync.py::TestInAClass::test_method",
        "test_strict.py::test_async",
        "test_strict.py::test_again",
        "test_anyio.py::test_async",
        "test_anyio.py::test_again",
        "test_case.py::SyncCase::test_sync",
        "test_case.py::AsyncCase::test_async",
        "test_case.py::AsyncCase::test_inside",
    }


def test_asyncio_mode_auto_with_the_variable(run: Run, require: Require) -> None:
    require(find_spec("pytest_asyncio"), "pytest-asyncio")
    files = {
        "pytest.ini": INI.format(more="asyncio_mode = auto"),
        "test_auto.py": ASYNC.format(mark=""),
    }
    code, output = run(files, DURIO_APP="shop:app")
    assert code == 0, output
    assert passed(output) == {"test_auto.py::test_async", "test_auto.py::test_again"}


def test_unknown_app_is_an_error_without_our_frames(run: Run) -> None:
    files = {"pytest.ini": INI.format(more=""), "test_sync.py": SYNC}
    code, output = run(files)
    assert code == 1
    assert "the fixture durio_box does not know the App [usage]" in output
    assert "pytest_plugin.py" not in output


def test_unittest_needs_no_pytest(run: Run) -> None:
    command = [sys.executable, "-W", "error", "-m", "unittest", "test_case"]
    code, output = run({"test_case.py": UNITTEST}, *command)
    assert code == 0, output
    assert "Ran 3 tests" in output


def test_our_suite_runs_without_it(request: pytest.FixtureRequest) -> None:
    plugins = request.config.pluginmanager
    assert not any(plugins.has_plugin(name) for name in ("durio", "asyncio", "anyio"))
