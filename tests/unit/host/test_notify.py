"""What systemd hears, on a real socket."""

import math
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from durio.host.systemd_notify import SystemdNotifier, watchdog_seconds
from durio.ports.fleet import ProcessMessage

BOUND_SECONDS = 10


@pytest.fixture(params=["file", "abstract"])
def ear(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, socket.socket]]:
    name = f"@durio-test-{os.getpid()}"
    address = str(tmp_path / "notify") if request.param == "file" else name
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(address.replace("@", "\0", 1))
        ear.settimeout(BOUND_SECONDS)
        yield address, ear


def test_what_a_supervisor_says(ear: tuple[str, socket.socket]):
    address, listening = ear
    notify = SystemdNotifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "4000000"})
    assert notify.is_enabled
    assert notify.every_seconds == 2.0
    notify.ready("2 of 2\nworkers")
    notify.status("all is well")
    notify.reloading()
    notify.alive()
    notify.stopping()
    told = [listening.recv(1000).decode() for _ in range(5)]
    assert told[:2] == ["READY=1\nSTATUS=2 of 2 workers", "STATUS=all is well"]
    assert told[2].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert told[3:] == ["WATCHDOG=1", "STOPPING=1"]


def test_what_a_worker_without_a_supervisor_says(ear: tuple[str, socket.socket]):
    address, listening = ear
    notify = SystemdNotifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "60000000"})
    notify.send_message(ProcessMessage(word="ready", tasks=3))
    notify.send_message(ProcessMessage(word="beat"))
    notify.send_message(ProcessMessage(word="ordered"))  # nothing to say
    notify.send_message(ProcessMessage(word="draining", running=2, grace_seconds=9.6))
    assert [listening.recv(1000).decode() for _ in range(3)] == [
        "READY=1\nSTATUS=ready, 3 tasks",
        "WATCHDOG=1",
        "STOPPING=1\nSTATUS=draining: 2 running, 10 s of grace left",
    ]


def test_nobody_listens(tmp_path: Path):
    """No variable, or no socket behind it: nothing happens."""
    silent = SystemdNotifier({})
    assert not silent.is_enabled
    assert silent.every_seconds == math.inf
    silent.ready("fine")
    silent.alive()
    SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("fine")


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, math.inf),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, math.inf),
        ({"WATCHDOG_USEC": "0"}, math.inf),
        ({"WATCHDOG_USEC": "soon"}, math.inf),
    ],
)
def test_how_often_a_sign_of_life_is_wanted(environ: dict[str, str], wanted: float):
    assert watchdog_seconds(environ) == wanted
