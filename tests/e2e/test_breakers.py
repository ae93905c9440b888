"""A breaker over four worker processes, and a service that counts its calls."""

import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from durio import App
from durio.model.breaker import BreakerRecord
from durio.ports.breaker_change import read_breakers
from tests.e2e.breaker_program import PORT
from tests.e2e.workers import Place, wait_until
from tests.servers.postgres import PostgresServer

WORKERS, JOBS = 4, 400
SECONDS = 60.0


class Service(socketserver.ThreadingTCPServer):
    """Answers `good` or `bad`, at once or when the test says so; notes each call."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 100

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.answer = b"bad\n"
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.lock = threading.Lock()
        self.calls: list[tuple[float, int]] = []
        self.running = 0

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        service: Any = self.server
        number = int(self.rfile.readline() or b"-1")
        if number < 0:
            return
        with service.lock:
            service.calls.append((time.time(), number))
            service.running += 1
        service.may_answer.wait(SECONDS)
        with service.lock:
            service.running -= 1
        self.wfile.write(service.answer)


@contextmanager
def serving() -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.may_answer.set()
            service.shutdown()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with serving() as service:
        monkeypatch.setenv(PORT, str(service.port))
        yield service


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, place: Place) -> str:
    if request.param == "postgres":
        grounds = request.getfixturevalue("grounds")
        server: PostgresServer = request.getfixturevalue("postgres")
        assert grounds is not None
        place.url = server.url()
    return place.url


@contextmanager
def watching(url: str) -> Iterator[Callable[[], BreakerRecord]]:
    """Read the breaker's record, as often as a test asks."""
    app = App(url, name="shop")

    async def read() -> BreakerRecord | None:
        found = await read_breakers(await app.store(), "shop", ["service"])
        return found["service"].record

    def record() -> BreakerRecord:
        found = app.run_sync(read())
        assert found is not None
        return found

    try:
        yield record
    finally:
        app.run_sync(app.close())


def start(place: Place) -> list[Any]:
    program = ("durio", "worker", "tests.e2e.breaker_program:app")
    workers = [place.run(*program, concurrency=10) for _ in range(WORKERS)]
    for worker in workers:
        place.started(worker)
    return workers


def enqueue(url: str) -> Callable[[], list[Any]]:
    """Enqueue the jobs by name; return what reads their states."""
    app = App(url, name="shop")
    jobs = app.run_sync(
        app.named("shop.call").enqueue_many([(n,) for n in range(JOBS)])
    )

    async def statuses() -> list[Any]:
        return [await job.status() for job in jobs]

    return lambda: app.run_sync(statuses())


def calls_between(service: Service, start: float, end: float) -> int:
    return sum(start <= at <= end for at, _ in service.calls)


def hold_answers(service: Service, record: Callable[[], BreakerRecord]) -> bool:
    """Let no call end from now on, if the breaker is open: the next ones are probes.

    A probe of an earlier round that was held would leave its round behind when the other
    probe failed, so the test would wait for a number of calls that is never seen.
    """
    before = record()
    if before.state != "open" or service.running:
        return False
    service.may_answer.clear()
    if record().period == before.period:
        return True
    service.may_answer.set()
    return False


@pytest.mark.proves("M74")
def test_four_processes_share_a_breaker(
    place: Place, url: str, service: Service
) -> None:
    start(place)
    statuses = enqueue(url)
    with watching(url) as record:
        wait_until(lambda: record().state == "open", SECONDS, "it opens")
        # Two rounds of probes that fail, then one that does not.
        wait_until(lambda: record().period >= 5, SECONDS, "it opens a third time")
        service.answer = b"good\n"
        wait_until(lambda: record().state == "closed", SECONDS, "it closes")
        wait_until(
            lambda: {each.state for each in statuses()} == {"done"}, SECONDS, "all done"
        )
        changes = record().changes
    opened = [one for one in changes if (one.before, one.state) == ("closed", "open")]
    assert len(opened) == 1
    probing = [one.at for one in changes if one.state == "half_open"]
    ends = [*probing[1:], changes[-1].at]  # to the next round, or to the closing
    rounds = [calls_between(service, *span) for span in zip(probing, ends, strict=True)]
    assert len(rounds) >= 3
    assert all(1 <= number <= 2 for number in rounds), rounds
    calls = Counter(number for _, number in service.calls)
    attempts = [each.attempt for each in statuses()]
    assert attempts == [calls[number] for number in range(JOBS)]
    assert attempts.count(1) > JOBS // 2, "most jobs waited, and used no attempt"


def test_a_probe_that_dies_with_its_worker(place: Place, service: Service) -> None:
    url = place.url
    workers = start(place)
    statuses = enqueue(url)
    with watching(url) as record:
        wait_until(lambda: record().state == "open", SECONDS, "it opens")
        wait_until(lambda: hold_answers(service, record), SECONDS, "it is open")
        # A call from before the breaker opened may be held beside those of the probes.
        wait_until(
            lambda: len(record().probes) == 2 and service.running >= 2,
            SECONDS,
            "two probes call",
        )
        before = len(service.calls)
        for worker in workers[1:]:
            worker.kill()
        # Each job whose worker was killed runs again; nothing else does.
        service.answer = b"good\n"
        service.may_answer.set()
        wait_until(lambda: record().state == "closed", SECONDS, "it closes")
        wait_until(
            lambda: {each.state for each in statuses()} == {"done"}, SECONDS, "all done"
        )
        assert record().changes[-1].before == "half_open"
        assert len(service.calls) > before
