"""Life marks: refused means dead, and nothing else does."""

import os
import signal
import subprocess
import sys

import pytest

from durio.host.clock import HostClock
from durio.stores.postgres.life_sockets import PostgresLifeSockets, is_dead

BOUND = """
import sys
from durio.host.clock import HostClock
from durio.stores.postgres.life_sockets import PostgresLifeSockets
mark, sign = PostgresLifeSockets(HostClock()).bind()
print(mark.name, flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="abstract names are Linux's: the lease decides"
)


def bound_process() -> tuple["subprocess.Popen[str]", str]:
    """A process with a life mark, and its name."""
    process = subprocess.Popen(
        [sys.executable, "-c", BOUND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_a_killed_process_is_seen_dead_and_a_stopped_one_is_not() -> None:
    process, name = bound_process()
    try:
        assert not is_dead(name)
        process.send_signal(signal.SIGSTOP)
        assert not is_dead(name)
    finally:
        end(process)
    assert is_dead(name)


def test_a_mark_lives_until_its_worker_ends() -> None:
    lives = PostgresLifeSockets(HostClock())
    bound = lives.bind()
    assert bound is not None
    mark, sign = bound
    assert mark.host == lives.here()
    lives.begin(7, sign)
    assert not is_dead(mark.name)
    lives.end(8)
    assert not is_dead(mark.name)
    lives.end(7)
    lives.end(7)
    assert is_dead(mark.name)


def test_a_forked_child_does_not_keep_its_parents_mark() -> None:
    """As the store does it: the child closes what it has inherited."""
    lives = PostgresLifeSockets(HostClock())
    bound = lives.bind()
    assert bound is not None
    mark, sign = bound
    lives.begin(1, sign)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        lives.close()
        os.close(write)
        os.read(read, 1)  # until the parent has looked
        os._exit(0)
    os.close(read)
    try:
        assert not is_dead(mark.name)
        lives.close()
        # The child may be slower than we are to let go.
        while not is_dead(mark.name):
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
    finally:
        os.close(write)
        os.waitpid(child, 0)


def test_marks_of_one_process_are_different() -> None:
    lives = PostgresLifeSockets(HostClock())
    bound = [lives.bind() for _ in range(3)]
    names = {one[0].name for one in bound if one is not None}
    assert len(names) == 3
    for worker, one in enumerate(bound):
        if one is not None:
            lives.begin(worker, one[1])
    lives.close()
    assert all(is_dead(name) for name in names)
