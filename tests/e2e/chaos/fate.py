"""Kill a process at a named point, the n-th time that it gets there."""

import os
import signal
import threading

from tests.e2e.chaos.jobs import strike


class Fate:
    """Counts how often the point is passed; the last time ends the process."""

    def __init__(self, point: str, times: int) -> None:
        self.point = point
        self.left = times
        self._lock = threading.Lock()

    def meet(self, point: str) -> None:
        if point != self.point:
            return
        with self._lock:
            self.left -= 1
            if self.left == 0:
                strike(f"kill-{point}")
                os.kill(os.getpid(), signal.SIGKILL)
