"""What all requests to one dashboard share: the App, its options, what answers logins."""

from typing import TYPE_CHECKING

from durio.client.job_search import SearchSlots
from durio.model.failure import failure_of
from durio.model.finding import Finding
from durio.web.bulk_tasks import BulkTasks
from durio.web.by_loop import ByLoop
from durio.web.examination import examined
from durio.web.feeds import Feeds
from durio.web.figure import Figure
from durio.web.figures import Figures
from durio.web.options import DashboardOptions

if TYPE_CHECKING:
    from durio.app.app import App
    from durio.ports.store import Store


DOCTOR_SECONDS = 10.0
REFUSAL_SECONDS = 1.0


class Site:
    """One dashboard of one App; all it keeps are figures of a few seconds."""

    def __init__(self, app: "App", options: DashboardOptions) -> None:
        self.app = app
        self.options = options
        self.search_slots = SearchSlots(app.clock)
        self.loop_refusal = ByLoop(
            lambda: Figure(app.clock, self.write_refusal, pause_seconds=REFUSAL_SECONDS)
        )
        self.loop_doctor = ByLoop(
            lambda: Figure(
                app.clock, lambda: examined(app), pause_seconds=DOCTOR_SECONDS
            )
        )
        self.loop_figures = ByLoop(lambda: Figures(app))
        self.loop_bulk = ByLoop(lambda: BulkTasks(app, self.report))
        self.loop_feeds = ByLoop(lambda: Feeds(app, self.figures, self.report))

    @property
    def doctor(self) -> Figure[list[Finding]]:
        """What the doctor has found; read at most every 10 s."""
        return self.loop_doctor.here()

    @property
    def figures(self) -> Figures:
        """The figures that all requests of this event loop share."""
        return self.loop_figures.here()

    @property
    def bulk(self) -> BulkTasks:
        """What runs bulk actions on this event loop."""
        return self.loop_bulk.here()

    @property
    def feeds(self) -> Feeds:
        """The producers of the streams of this event loop."""
        return self.loop_feeds.here()

    def end_streams(self) -> None:
        """End all streams; a server that stops waits for them. From any thread."""
        for loop, feeds in list(self.loop_feeds.parts.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(feeds.end)

    async def write_refusal(self) -> str | None:
        return await (await self.store()).write_refusal()

    async def store(self) -> "Store":
        """Return the open store of the App."""
        return await self.app.store()

    def now(self) -> float:
        return self.app.clock.now()

    def read_only_reason(self) -> str | None:
        """Return why nothing is changed here by choice; None if it is."""
        if self.options.is_read_only:
            return "this dashboard was started read-only"
        return None

    async def why_read_only(self) -> str | None:
        """Return why nothing can be changed here, also by the store; None if it can."""
        reason = self.read_only_reason()
        if reason is None:
            refusal = (await self.loop_refusal.here().read()).value
            reason = refusal and f"the store takes no changes: {refusal}"
        return reason

    def report(self, error: BaseException) -> None:
        """Write an error to the log that no refusal explains."""
        failure = failure_of(error)
        self.app.emit(
            "web.failed",
            error=f"{failure.type}: {failure.message}",
            stack=failure.traceback,
        )
