"""Worker processes and the line to them, with real processes and sockets."""

import asyncio
import os
import signal  # noqa: TID251 - the host's own business
import socket
import sys
from pathlib import Path

import msgspec

from durio.host.fleet import UNSENT_BYTES_MAX, MessagePipe, ProcessFleet, SupervisorPipe
from durio.ports.fleet import ProcessMessage

BOUND_SECONDS = 20

# A worker process without a worker: tells, is told, ends.
SPEAKS = """
import os, socket, sys, time
assert sys.argv[2:] == ["an argument"]
line = socket.socket(fileno=int(sys.argv[1]))
line.sendall(b'{"word":"ready","tasks":2}\\nno JSON\\n{"word":"be')
line.sendall(b'at","running":1}\\n')
assert "NOTIFY_SOCKET" not in os.environ and "FROM_ENV_FILE" not in os.environ
assert os.getpgid(0) == os.getpid()
assert line.recv(100) == b"look\\n"
line.sendall(b'{"word":"failed","error":{"what":"' + os.getcwd().encode() + b'"}}\\n')
os._exit(7)
"""
SLEEPS = "import time; time.sleep(600)"


def command(text: str) -> list[str]:
    return [sys.executable, "-c", text]


class Received:
    """What a supervisor hears of one process."""

    def __init__(self) -> None:
        self.notes: list[ProcessMessage] = []
        self.codes: list[int] = []
        self.changed = asyncio.Event()

    def hear(self, note: ProcessMessage) -> None:
        self.notes.append(note)
        self.changed.set()

    def ended(self, code: int) -> None:
        self.codes.append(code)
        self.changed.set()

    async def until(self, notes: int, codes: int = 0) -> None:
        async with asyncio.timeout(BOUND_SECONDS):
            while len(self.notes) < notes or len(self.codes) < codes:
                self.changed.clear()
                await self.changed.wait()


def test_what_it_tells_is_heard_before_its_end(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    monkeypatch.setenv("FROM_ENV_FILE", "old")

    async def main() -> None:
        fleet = ProcessFleet(
            command(SPEAKS),
            ["an argument"],
            folder=str(tmp_path),
            without={"FROM_ENV_FILE"},
        )
        heard = Received()
        worker = fleet.start(heard.hear, heard.ended)
        assert not heard.notes
        await heard.until(2)
        worker.look_for_deaths()
        await heard.until(3, 1)
        assert [note.word for note in heard.notes] == ["ready", "beat", "failed"]
        assert heard.notes[2].error == {"what": str(tmp_path)}
        assert heard.codes == [7]
        assert not worker.is_running
        worker.signal("SIGTERM")  # the dead take no notice
        worker.kill()
        worker.look_for_deaths()
        fleet.close()

    asyncio.run(main())


def test_ends_by_signals_are_told_and_reaped():
    async def main() -> None:
        fleet = ProcessFleet(command(SLEEPS))
        heard = Received()
        workers = [fleet.start(heard.hear, heard.ended) for _ in range(3)]
        workers[0].signal("SIGTERM")
        workers[1].kill()
        os.kill(workers[2].pid, signal.SIGKILL)  # noqa: TID251 - our own child
        await heard.until(0, 3)
        assert sorted(heard.codes) == [-15, -9, -9]
        fleet.close()

    before = signal.getsignal(signal.SIGCHLD)
    asyncio.run(main())
    assert signal.getsignal(signal.SIGCHLD) is before


def test_worker_hears_words_and_the_end_of_its_supervisor():
    async def main() -> list[str]:
        ours, theirs = socket.socketpair()
        line, heard = SupervisorPipe(theirs.detach()), []
        gone = asyncio.Event()
        line.listen(lambda: heard.append("look"), gone.set)
        line.send_message(ProcessMessage(word="beat", running=3))
        assert msgspec.json.decode(ours.recv(1000)) == {"word": "beat", "running": 3}
        ours.sendall(b"look\nsomething new\n")
        ours.close()
        async with asyncio.timeout(BOUND_SECONDS):
            await gone.wait()
        line.send_message(
            ProcessMessage(word="beat")
        )  # nobody hears it, nothing breaks
        line._pipe.close()
        return heard

    assert asyncio.run(main()) == ["look"]


def test_somebody_who_does_not_read_is_told_a_bounded_amount():
    ours, theirs = socket.socketpair()
    line, note = MessagePipe(ours), b"x" * 999
    for _ in range(2000):
        line.send(note)
    assert len(line._unsent) < UNSENT_BYTES_MAX + 1000
    got = MessagePipe(theirs)
    lines = got.read()
    while len(lines) < 2:
        lines += got.read()
    assert set(lines) == {note}  # never half a line
    line.close()
    got.close()


def test_line_without_an_end_is_hung_up():
    ours, theirs = socket.socketpair()
    line = MessagePipe(ours)
    theirs.setblocking(False)
    for _ in range(100_000):
        try:
            theirs.send(b"x" * 65536)
        except OSError:
            line.read()
        if not line.is_open:
            break
    assert not line.is_open
    theirs.close()
    line.close()
