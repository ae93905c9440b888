"""The fault proxy does what it says, to real sockets: each fault, large streams, crowds.

A proof that something did not arrive never waits and hopes: the proxy says what it kept
back (`journal.wait_for`), and only then is the server looked at.
"""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.line_client import CROWD, MEGABYTE, SECONDS, Client, wait_for_end
from tests.e2e.line_server import LineServer, ballast, digest
from tests.e2e.proxy import FaultProxy
from tests.e2e.proxy_link import CHUNK_BYTES, Way

# --- no fault


def test_a_conversation_passes(proxy: FaultProxy, client: Client) -> None:
    assert client.ask("hello") == "hello"
    proxy.journal.wait_for("forwarded down", 6, SECONDS)
    counts = proxy.journal.counts
    assert (counts["forwarded up"], counts["forwarded down"]) == (6, 6)
    assert (counts["connection"], proxy.links()) == (1, 1)


def test_large_streams_pass_whole(client: Client) -> None:
    size = 24 * MEGABYTE + 1
    client.send(f"TAKE {size}\n".encode())
    client.send(ballast(size))
    assert client.answer() == digest(ballast(size))
    client.send(f"GIVE {size}\n".encode())
    assert client.take(size + 1) == ballast(size) + b"\n"


def test_an_end_of_one_way_is_passed_on(server: LineServer, client: Client) -> None:
    """A client that has said all may still listen."""
    client.send(b"GIVE 100000\n")
    client.sock.shutdown(socket.SHUT_WR)
    assert client.take(100_001) == ballast(100_000) + b"\n"
    assert client.sock.recv(1) == b""
    assert wait_for_end(server, "end") == b"GIVE 100000\n"


def test_a_crowd_is_kept_apart(proxy: FaultProxy) -> None:
    def talk(number: int) -> bool:
        with Client(proxy) as client:
            size = 10_000 + number
            client.send(f"GIVE {size}\n".encode())
            whole = client.take(size + 1) == ballast(size) + b"\n"
            return whole and client.ask(f"I am {number}") == f"I am {number}"

    with ThreadPoolExecutor(CROWD) as crowd:
        assert all(crowd.map(talk, range(CROWD)))
    proxy.journal.wait_for("connection over", CROWD, SECONDS)
    assert proxy.links() == 0


# --- slow


def test_delay_is_on_each_way(proxy: FaultProxy, client: Client) -> None:
    proxy.delay(0.15)
    began = time.monotonic()
    client.ask("hello")
    assert time.monotonic() - began >= 0.3
    proxy.heal()
    proxy.delay(0.2, way=Way.DOWN)
    began = time.monotonic()
    client.send_alone(b"hello\n")
    assert client.answer() == b"hello"
    assert time.monotonic() - began >= 0.2


def test_delay_is_no_narrow_line(proxy: FaultProxy, client: Client) -> None:
    """A hundred chunks are late together, not one after the other."""
    proxy.delay(1.0, way=Way.DOWN)
    size = 100 * CHUNK_BYTES
    began = time.monotonic()
    client.send(f"GIVE {size}\n".encode())
    assert client.take(size) == ballast(size)
    assert 1.0 <= time.monotonic() - began < SECONDS


def test_jitter_keeps_the_order(proxy: FaultProxy, client: Client) -> None:
    proxy.delay(0.0, jitter=0.02)
    size = 2 * MEGABYTE
    client.send(f"GIVE {size}\n".encode())
    assert client.take(size) == ballast(size)


def test_healing_releases_what_was_late(proxy: FaultProxy, client: Client) -> None:
    proxy.delay(3600.0, way=Way.DOWN)
    client.send_alone(b"hello\n")
    proxy.heal()
    assert client.answer() == b"hello"


def test_a_narrow_line_is_shared(proxy: FaultProxy) -> None:
    proxy.throttle(200_000, way=Way.DOWN)

    def take(_: int) -> bytes:
        with Client(proxy) as client:
            client.send(b"GIVE 50000\n")
            return client.take(50_000)

    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(take, range(2))] == [ballast(50_000)] * 2
    assert time.monotonic() - began >= 0.5  # 100 kB at 200 kB a second


def test_healing_widens_the_line(proxy: FaultProxy, client: Client) -> None:
    proxy.throttle(1000)
    client.send(b"GIVE 1000000\n")
    first = client.take(1)
    proxy.heal()
    assert first + client.take(999_999) == ballast(1_000_000)


# --- silent


def test_half_open_upwards(
    proxy: FaultProxy, server: LineServer, client: Client
) -> None:
    """The server hears nothing, the client hears the server, nobody hears of an end."""
    assert client.ask("before") == "before"
    proxy.black_hole(Way.UP)
    client.send(b"COMMIT lost\n")
    proxy.journal.wait_for("swallowed up", 12, SECONDS)
    server.conversations[0].sock.sendall(b"still there?\n")
    assert client.answer() == b"still there?"
    assert bytes(server.conversations[0].seen) == b"before\n"
    assert not server.committed
    assert proxy.links() == 1


def test_half_open_downwards(
    proxy: FaultProxy, server: LineServer, client: Client
) -> None:
    assert client.ask("before") == "before"
    proxy.black_hole(Way.DOWN)
    client.send(b"COMMIT unheard\n")
    proxy.journal.wait_for("swallowed down", len("COMMITTED unheard\n"), SECONDS)
    assert server.committed == ["unheard"]
    client.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.sock.recv(1)


def test_a_death_in_a_black_hole_is_not_noticed(
    proxy: FaultProxy, server: LineServer, client: Client
) -> None:
    assert client.ask("before") == "before"
    proxy.black_hole()
    client.sock.close()
    proxy.journal.wait_for("swallowed an end", 1, SECONDS)
    assert server.conversations[0].ended == ""
    proxy.heal()
    wait_for_end(server, "reset")


def test_healing_resets_only_who_lost_something(proxy: FaultProxy) -> None:
    with Client(proxy) as talker, Client(proxy) as listener:
        assert (talker.ask("a"), listener.ask("b")) == ("a", "b")
        proxy.black_hole()
        talker.send(b"lost\n")
        proxy.journal.wait_for("swallowed up", 5, SECONDS)
        proxy.heal()
        with pytest.raises(ConnectionResetError):
            talker.answer()
        assert listener.ask("c") == "c"


def test_no_connection_comes_through_a_black_hole(
    proxy: FaultProxy, server: LineServer
) -> None:
    proxy.black_hole()
    with Client(proxy) as client:
        client.send(b"COMMIT never\n")
        proxy.journal.wait_for("connection", 1, SECONDS)
        proxy.heal()
        with pytest.raises(ConnectionResetError):
            client.answer()
    assert not server.conversations


def test_a_frozen_line_loses_nothing(
    proxy: FaultProxy, server: LineServer, client: Client
) -> None:
    assert client.ask("before") == "before"
    proxy.freeze(Way.UP)
    size = 8 * MEGABYTE
    sender = threading.Thread(
        target=client.send, args=(f"TAKE {size}\n".encode() + ballast(size),)
    )
    sender.start()
    server.conversations[0].sock.sendall(b"one way is open\n")
    assert client.answer() == b"one way is open"
    assert bytes(server.conversations[0].seen) == b"before\n"
    proxy.heal()
    assert client.answer() == digest(ballast(size))
    sender.join()


def test_a_narrow_line_freezes_too(proxy: FaultProxy, client: Client) -> None:
    """In the middle of a chunk; whatever is left of it comes after healing."""
    proxy.throttle(10_000, way=Way.DOWN)
    client.send(b"GIVE 50000\n")
    first = client.take(1)
    proxy.freeze()
    more = proxy.journal.counts["forwarded down"] + 1000
    with pytest.raises(AssertionError, match="forwarded down"):
        proxy.journal.wait_for("forwarded down", more, 0.3)  # 3,000 bytes would be due
    proxy.heal()
    assert first + client.take(49_999) == ballast(50_000)


# --- doors


def test_refuse_and_heal(proxy: FaultProxy, client: Client) -> None:
    assert client.ask("before") == "before"
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        Client(proxy)
    assert client.ask("those that stand go on") == "those that stand go on"
    proxy.heal()
    with Client(proxy) as other:
        assert other.ask("the same port") == "the same port"


def test_server_that_is_not_there(deaf_port: int) -> None:
    """The reset may come as early as in the handshake."""
    with FaultProxy(("127.0.0.1", deaf_port)) as proxy:
        with pytest.raises(ConnectionResetError):
            connect_and_listen(proxy)
        assert proxy.journal.counts["server unreachable"] == 1


def connect_and_listen(proxy: FaultProxy) -> None:
    with Client(proxy) as client:
        client.answer()


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port on which nobody listens, and nobody else can."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def test_nothing_stays_behind(server: LineServer) -> None:
    with FaultProxy(server.address) as proxy:
        client = Client(proxy)
        assert client.ask("hello") == "hello"
        proxy.black_hole()
    with client:
        assert client.sock.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        Client(proxy)
    assert "proxy" not in {thread.name for thread in threading.enumerate()}


def test_journal_tells_the_story_in_order(proxy: FaultProxy, client: Client) -> None:
    client.ask("hello")
    proxy.delay(0.001)
    proxy.reset()
    proxy.journal.wait_for("connection over", 1, SECONDS)
    proxy.heal()
    told = [(each.what, each.link) for each in proxy.journal.events]
    assert told == [
        ("connection", 1),
        ("delay", 0),
        ("connection over", 1),
        ("reset", 0),
        ("heal", 0),
    ]
    times = [each.seconds for each in proxy.journal.events]
    assert times == sorted(times)
