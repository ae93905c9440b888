import asyncio
import os
import sys
import threading  # noqa: TID251 - the host's own business

import pytest

from durio.host import clock as host_clock
from durio.host.clock import PROCESS_RANDOM, HostClock
from durio.ports.clock import Clock


def milliseconds(raw: bytes) -> int:
    return int.from_bytes(raw[:6], "big")


def test_is_a_clock():
    clock: Clock = HostClock()
    assert clock.now() > 1_700_000_000
    assert clock.monotonic() <= clock.monotonic()
    assert 0 <= clock.random() < 1
    asyncio.run(clock.sleep(0))


def test_boot_id_is_stable_and_bounded():
    first = HostClock().boot_id()
    assert first == HostClock().boot_id()
    assert 0 < len(first) <= host_clock.BOOT_ID_CHARS_MAX


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels answer by sysctl")
def test_boot_id_without_a_source_names_the_host(monkeypatch, tmp_path):
    monkeypatch.setattr(host_clock, "BOOT_ID_FILE", tmp_path / "nothing")
    assert host_clock.boot_id.__wrapped__().startswith("host-")


def test_ids_grow_and_carry_the_time():
    clock = HostClock()
    before = int(clock.now() * 1000)
    ids = [clock.new_id() for _ in range(20_000)]
    assert ids == sorted(set(ids))
    assert {raw[6] >> 4 for raw in ids} == {7}
    assert {raw[8] >> 6 for raw in ids} == {2}
    # A full counter runs into the next millisecond: never far ahead of the clock.
    assert before <= milliseconds(ids[0])
    assert milliseconds(ids[-1]) <= clock.now() * 1000 + 20_000 / 4096 + 1


def test_two_clocks_of_a_process_share_one_order():
    one, two = HostClock(), HostClock()
    ids = [clock.new_id() for _ in range(100) for clock in (one, two)]
    assert ids == sorted(set(ids))


def test_ids_grow_when_the_wall_clock_steps_back(monkeypatch):
    ahead = HostClock().new_id()
    monkeypatch.setattr(host_clock.time, "time_ns", lambda: 1)
    later = [HostClock().new_id() for _ in range(5000)]
    assert [ahead, *later] == sorted({ahead, *later})


def test_ids_are_unique_across_threads():
    made: list[list[bytes]] = [[] for _ in range(4)]

    def make(ids: list[bytes]) -> None:
        clock = HostClock()
        ids.extend(clock.new_id() for _ in range(5000))

    threads = [threading.Thread(target=make, args=(ids,)) for ids in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ids == sorted(ids) for ids in made)
    assert len({raw for ids in made for raw in ids}) == 20_000


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_draws_other_bits():
    reader, writer = os.pipe()
    with PROCESS_RANDOM.lock:  # a lock that nobody in the child could ever give back
        child = os.fork()
        if child == 0:
            os.write(writer, HostClock().new_id())
            os._exit(0)
    mine = HostClock().new_id()
    theirs = os.read(reader, 16)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    assert len(theirs) == 16
    assert mine[8:] != theirs[8:]
