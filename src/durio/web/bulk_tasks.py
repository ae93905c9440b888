"""Run bulk actions beside the requests of the dashboard, on its event loop."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from durio.client.bulk_runner import BulkRunner
from durio.model.errors import DurioError

if TYPE_CHECKING:
    from durio.app.app import App


class BulkTasks:
    """One task that runs what is due; a process that ends leaves the rest to others."""

    def __init__(self, app: "App", report: Callable[[BaseException], None]) -> None:
        self._runner = BulkRunner(app)
        self._report = report
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Begin what has no runner: what was started now, or lost with its process."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._runner.run_due())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, DurioError):
            self._report(error)
