"""A Place whose workers run the tasks of child_jobs.py."""

import os
import signal
from contextlib import suppress
from typing import Any

from durio import App
from durio.model.settings import settings_from
from tests.e2e import child_jobs
from tests.e2e.child_jobs import is_alive
from tests.e2e.workers import Place, Process, wait_until

MODULE = "tests.e2e.child_jobs:app"


class ChildPlace(Place):
    """A Place with child processes."""

    def begin_worker(self, *options: str, **settings: Any) -> Process:
        return self.run("durio", "worker", MODULE, *options, **settings)

    def app(self) -> App:
        child_jobs.app.url = self.url
        child_jobs.app.settings = settings_from(self.settings)
        return child_jobs.app

    def clear_away(self) -> None:
        """Also end processes that a test left alive."""
        super().clear_away()
        seen = self.helpers() | {line.pid for line in self.ledger.of("start")}
        for pid in filter(is_alive, seen - {os.getpid()}):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def pids_of(self, ids: list[str], number: int = 1) -> set[int]:
        """Return the processes that began this attempt of these jobs."""
        starts = self.ledger.by_job("start")
        return {
            line.pid for job in ids for line in starts[job] if line.attempt == number
        }

    def helpers(self) -> set[int]:
        """Return processes that tasks have started."""
        return {int(line.job) for line in self.ledger.of("helper")}

    def wait_gone(self, pids: set[int]) -> None:
        assert pids, "nobody to wait for"
        wait_until(
            lambda: not any(map(is_alive, pids)), 30, f"processes {pids} are gone"
        )

    def run_in_folder(self, module: str, *args: str) -> Process:
        """Start a program whose current directory is the place's own folder."""
        program = f"import os, runpy, sys; os.chdir({str(self.folder)!r})"
        program += f"; sys.argv[1:] = {list(args)!r}"
        program += (
            f"; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
        )
        return self._start(["-c", program], {})

    def child_pids(self, worker: Process) -> set[int]:
        """Return the children that are ready."""
        return {row["pid"] for row in worker.events("child.started")}
