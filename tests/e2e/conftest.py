"""A place of its own for every test, with its processes cleared away afterwards."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.child_place import ChildPlace
from tests.e2e.ledger import VARIABLE
from tests.e2e.line_client import Client
from tests.e2e.line_server import LineServer
from tests.e2e.proxy import FaultProxy
from tests.e2e.workers import Place
from tests.servers.postgres import PostgresServer


@pytest.fixture(autouse=True, scope="session")
def heard_signals() -> Iterator[None]:
    """Restore signals that are ignored under nohup or in the background, also for children."""
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGHUP, hangup)
    signal.signal(signal.SIGINT, interrupt)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    place = Place(tmp_path)
    monkeypatch.setenv(VARIABLE, str(place.ledger_folder))
    try:
        yield place
    finally:
        place.clear_away()


@pytest.fixture
def child_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ChildPlace]:
    place = ChildPlace(tmp_path)
    monkeypatch.setenv(VARIABLE, str(place.ledger_folder))
    try:
        yield place
    finally:
        place.clear_away()


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer) -> PostgresServer:
    """Provide a server with our schema and a table of the user's own."""
    from tests.e2e.postgres_shop import make_table  # noqa: PLC0415 - and every driver

    make_table(postgres)
    return postgres


@pytest.fixture
def server() -> Iterator[LineServer]:
    with LineServer() as server:
        yield server


@pytest.fixture
def proxy(server: LineServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.address, seed=1) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[Client]:
    with Client(proxy) as client:
        yield client
