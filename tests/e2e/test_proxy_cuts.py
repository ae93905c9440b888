"""Cuts of the fault proxy: exactly where they were asked for, and the same in every run."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.line_client import CROWD, MEGABYTE, SECONDS, Client, wait_for_end
from tests.e2e.line_server import LineServer, ballast, digest
from tests.e2e.proxy import FaultProxy
from tests.e2e.proxy_link import CHUNK_BYTES, Cut, Way
from tests.e2e.workers import wait_until

# --- cut


def test_reset_reaches_both_ends(proxy: FaultProxy, server: LineServer) -> None:
    with Client(proxy) as one, Client(proxy) as other:
        assert (one.ask("a"), other.ask("b")) == ("a", "b")
        proxy.reset()
        for client in (one, other):
            with pytest.raises(ConnectionResetError):
                client.answer()
    wait_for_end(server, "reset", 0)
    wait_for_end(server, "reset", 1)
    with Client(proxy) as third:  # new ones are welcome
        assert third.ask("c") == "c"


@pytest.mark.parametrize(
    "size", [0, 1, 6, 7, CHUNK_BYTES - 1, CHUNK_BYTES, 5 * MEGABYTE + 3]
)
def test_cut_after_so_many_bytes_upwards(
    proxy: FaultProxy, server: LineServer, client: Client, size: int
) -> None:
    proxy.cut_after(size)
    data = b"TAKE 9000000\n" + ballast(6 * MEGABYTE)
    client.send_in_vain(data)
    assert wait_for_end(server, "end") == data[:size]


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, 5 * MEGABYTE + 3])
def test_cut_after_so_many_bytes_downwards(
    proxy: FaultProxy, server: LineServer, client: Client, size: int
) -> None:
    proxy.cut_after(size, way=Way.DOWN)
    client.send(b"GIVE 6000000\n")
    assert client.take(6_000_000) == ballast(6_000_000)[:size]
    client.sock.close()
    wait_for_end(server, "reset")


def test_the_cut_comes_with_the_last_byte(
    proxy: FaultProxy, server: LineServer, client: Client
) -> None:
    """Not with the one behind it, which may never be sent."""
    proxy.cut_after(4)
    client.send(b"half")
    with pytest.raises(ConnectionResetError):
        client.answer()
    assert wait_for_end(server, "end") == b"half"


@pytest.mark.parametrize("split", range(8))
def test_commit_is_cut_before_it_arrives(
    proxy: FaultProxy, server: LineServer, client: Client, split: int
) -> None:
    """Wherever the border between two chunks lies."""
    proxy.cut_before(b"COMMIT")
    request = b"X COMMIT two\n"
    if split:
        client.send_alone(b"begin\n" + request[:split])
        assert client.answer() == b"begin"
    client.send(request[split:])
    with pytest.raises((ConnectionResetError, EOFError)):
        client.answer()
    assert b"COMMIT" not in wait_for_end(server, "end")
    assert proxy.journal.counts[Cut.BEFORE] == 1
    with Client(proxy) as again:  # once is once
        assert again.ask("COMMIT three") == "COMMITTED three"
    assert server.committed == ["three"]


def test_a_pattern_that_comes_byte_by_byte(
    proxy: FaultProxy, server: LineServer, client: Client
) -> None:
    proxy.cut_before(b"CCOMMIT")
    for byte in b"CCCOMMI":
        client.send_alone(bytes([byte]))
    client.send(b"T one\n")
    with pytest.raises(ConnectionResetError):
        client.answer()
    assert wait_for_end(server, "end") == b"CCCOMMI"
    assert not server.committed


def test_pattern_in_a_large_stream(
    proxy: FaultProxy, server: LineServer, client: Client
) -> None:
    """Over a border of the proxy's own chunks too: it lies right on one."""
    pattern = b"<the very end>"
    before = ballast(4 * CHUNK_BYTES)[: 4 * CHUNK_BYTES - 20]
    data = b"TAKE 9000000\n" + before + pattern + ballast(MEGABYTE)
    proxy.cut_behind(pattern)
    client.send_in_vain(data)
    seen = wait_for_end(server, "end")
    assert seen == data[: data.index(pattern) + len(pattern)]


def test_commit_is_executed_and_the_line_is_cut_behind_it(
    proxy: FaultProxy, server: LineServer, client: Client
) -> None:
    proxy.cut_behind(b"COMMIT four\n")
    with pytest.raises(ConnectionResetError):
        client.ask("COMMIT four")
    assert wait_for_end(server, "end") == b"COMMIT four\n"
    assert server.committed == ["four"]


@pytest.mark.parametrize("split", range(1, 6))
def test_commit_is_executed_and_its_reply_is_lost(
    proxy: FaultProxy, server: LineServer, client: Client, split: int
) -> None:
    proxy.lose_reply(b"COMMIT")
    assert client.ask("begin") == "begin"
    client.send_alone(b"COMMIT five\n"[:split])
    client.send(b"COMMIT five\n"[split:])
    with pytest.raises(ConnectionResetError):
        client.answer()
    assert server.committed == ["five"]
    lost = [each for each in proxy.journal.events if each.what == Cut.REPLY]
    assert [(each.way, each.size) for each in lost] == [(Way.DOWN, 15)]


def test_healing_lets_the_reply_through(
    proxy: FaultProxy, server: LineServer, client: Client
) -> None:
    """The request was sent while replies were lost; its reply comes after healing."""
    proxy.lose_reply(b"TAKE")
    client.send_alone(b"TAKE 3\n")
    proxy.heal()
    client.send(b"abc")
    assert client.answer() == digest(b"abc")
    assert bytes(server.conversations[0].seen) == b"TAKE 3\nabc"


def test_a_reply_can_be_named(
    proxy: FaultProxy, server: LineServer, client: Client
) -> None:
    """Requests sent ahead: the answers before the named one arrive."""
    proxy.cut_before(b"COMMITTED", way=Way.DOWN)
    client.send(b"one\ntwo\nCOMMIT six\nthree\n")
    assert (client.answer(), client.answer()) == (b"one", b"two")
    with pytest.raises((EOFError, ConnectionResetError)):
        client.answer()
    wait_until(lambda: server.committed == ["six"], SECONDS, "it is executed")


def test_skip_and_times(proxy: FaultProxy, server: LineServer) -> None:
    proxy.cut_before(b"COMMIT", skip=2, times=2)
    for word, is_cut in (("a", False), ("b", False), ("c", True), ("d", True)):
        with Client(proxy) as client:
            if is_cut:
                with pytest.raises(ConnectionResetError):
                    client.ask(f"COMMIT {word}")
            else:
                assert client.ask(f"COMMIT {word}") == f"COMMITTED {word}"
    with Client(proxy) as client:
        assert client.ask("COMMIT e") == "COMMITTED e"
    assert server.committed == ["a", "b", "e"]


def test_pattern_must_fit(proxy: FaultProxy) -> None:
    for pattern in (b"", b"x" * 5000):
        with pytest.raises(ValueError, match="1 to 1024 bytes"):
            proxy.cut_before(pattern)


# --- chance


def cut_places(server: LineServer, seed: int) -> list[int]:
    """How much of each of ten connections came through."""
    first = len(server.conversations)
    with FaultProxy(server.address, seed=seed) as proxy:
        proxy.cut_after((100, 100_000), times=None)
        for number in range(10):
            with Client(proxy) as client:
                client.send_in_vain(b"TAKE 900000\n" + ballast(200_000))
            wait_for_end(server, "end", first + number)
    return [len(each.seen) for each in server.conversations[first:]]


def test_chance_is_replayed_by_its_seed(server: LineServer) -> None:
    first = cut_places(server, 7)
    assert len(set(first)) == 10
    assert all(100 <= size <= 100_000 for size in first)
    assert cut_places(server, 7) == first
    assert cut_places(server, 8) != first


def test_a_crowd_is_cut_each_at_its_own_place(
    proxy: FaultProxy, server: LineServer
) -> None:
    proxy.cut_after((0, 300_000), times=None)

    def send(_: int) -> None:
        with Client(proxy) as client:
            client.send_in_vain(b"TAKE 900000\n" + ballast(400_000))

    with ThreadPoolExecutor(CROWD) as crowd:
        assert len([*crowd.map(send, range(CROWD))]) == CROWD
    wait_until(
        lambda: [each.ended for each in server.conversations] == ["end"] * CROWD,
        SECONDS,
        "all have ended",
    )
    cuts = [each.size for each in proxy.journal.events if each.what == Cut.BYTES]
    assert sorted(cuts) == sorted(len(each.seen) for each in server.conversations)
    assert len(set(cuts)) > CROWD / 2
