"""Report a service's state to systemd by datagrams, as sd_notify does.

Without `NOTIFY_SOCKET` nothing is sent. A datagram that cannot be delivered is dropped
without an error.
"""

import math
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import final

from durio.model.quantities import counted
from durio.ports.fleet import ProcessMessage

NOTIFY_VARIABLES = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
USEC = 1_000_000
STATUS_CHARS_MAX = 200


@final
class SystemdNotifier:
    """Sends READY=1, WATCHDOG=1 and other states to the service manager."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):  # an abstract socket
            self._address = "\0" + self._address[1:]
        self.every_seconds = watchdog_seconds(environ) if self._address else math.inf

    @property
    def is_enabled(self) -> bool:
        return bool(self._address)

    def send(self, *lines: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.connect(self._address)
            out.send("\n".join(lines).encode())

    def ready(self, status: str) -> None:
        self.send("READY=1", status_line(status))

    def status(self, text: str) -> None:
        self.send(status_line(text))

    def reloading(self) -> None:
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.send("RELOADING=1", f"MONOTONIC_USEC={now}")

    def stopping(self) -> None:
        self.send("STOPPING=1")

    def alive(self) -> None:
        """Trigger systemd's watchdog, if it has one."""
        if self.every_seconds < math.inf:
            self.send("WATCHDOG=1")

    def send_message(self, message: ProcessMessage) -> None:
        """Report the messages of a worker without a supervisor; callable from any thread."""
        if message.word == "ready":
            self.ready(f"ready, {counted(message.tasks, 'task')}")
        elif message.word == "draining":
            left = f"{message.grace_seconds:.0f} s of grace left"
            self.send(
                "STOPPING=1", f"STATUS=draining: {message.running} running, {left}"
            )
        elif message.word == "beat":
            self.alive()


def watchdog_seconds(environ: Mapping[str, str]) -> float:
    """Return the interval for `alive`, half of the watchdog's time; infinite means never."""
    wanted, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not wanted.isdecimal() or int(wanted) == 0 or pid not in {"", str(os.getpid())}:
        return math.inf
    return int(wanted) / USEC / 2


def status_line(text: str) -> str:
    """Return the text on one line, shortened."""
    return f"STATUS={' '.join(text.split())[:STATUS_CHARS_MAX]}"
