"""One request of the API: who asks, of which App, and how it is audited."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from durio.model.names import namespace_of, queue_of
from durio.ports.control import AuditNote
from durio.web.identity import Identity, User
from durio.web.problems import READ_ONLY, Refusal

if TYPE_CHECKING:
    from durio.app.app import App
    from durio.model.job import StoredJob
    from durio.ports.store import Store
    from durio.web.site import Site


class WebCall:
    """What a route needs to know; routes get it as their first parameter."""

    def __init__(
        self,
        site: "Site",
        identity: Identity,
        *,
        address: str,
        browser: str,
        root: str,
        still_valid: Callable[[], Awaitable[bool]],
    ) -> None:
        self.site = site
        self.identity = identity
        # Whether the credential still means the same user with the same rights.
        self.still_valid = still_valid
        self.address = address  # of the browser, also behind trusted proxies
        self.browser = browser
        self.root = root  # the path of the mount
        self.request_id = site.app.clock.new_id().hex()
        self.verb: str | None = None  # of a change

    @property
    def app(self) -> "App":
        return self.site.app

    @property
    def user(self) -> User:
        return self.identity.user

    @property
    def by(self) -> str:
        """The user for the audit, such as `ann@10.0.0.7 via dashboard`."""
        return f"{self.user.name}@{self.address or '?'} via dashboard"

    async def store(self) -> "Store":
        """Return the open store of the App."""
        return await self.site.store()

    def begin_change(self, verb: str) -> None:
        """Note the verb of a change; refuse it on a dashboard that is read-only."""
        reason = self.site.read_only_reason()
        if reason is not None:
            raise Refusal(409, READ_ONLY, reason, "Use another dashboard, or the CLI.")
        self.verb = verb

    def note(
        self,
        target: str = "",
        *,
        verb: str = "",
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> AuditNote:
        """Return the audit line of this change, for the commit that makes it.

        Without a target the store names the jobs. `before` and `after` must not have
        arguments or secrets in them.
        """
        known = {
            "address": self.address,
            "browser": self.browser,
            "request_id": self.request_id,
            "before": before,
            "after": after,
        }
        details = json.dumps({k: v for k, v in known.items() if v}, default=str)
        namespace = self.app.name if target else ""
        return AuditNote(namespace, self.by, verb, target, details=details)

    # --- what this user may see

    def sees_job(self, job: "StoredJob") -> bool:
        """Whether the job is of this App, in a queue that the user may see."""
        is_ours = namespace_of(job.lane) == self.app.name
        is_seen = self.user.sees(queue_of(job.lane))
        return is_ours and is_seen and self.identity.sees_task(job.task)

    @property
    def sees_all(self) -> bool:
        """Whether neither queues nor tasks are hidden from this credential."""
        return self.user.queues is None and self.identity.tasks is None

    def check_queue(self, queue: str) -> None:
        """Refuse a queue that the user may not see, as if there was none."""
        if not self.user.sees(queue):
            raise Refusal(404, "unknown_queue", f"there is no queue {queue!r:.140}")

    @property
    def sees_whole_payloads(self) -> bool:
        """Whether neither the role nor a formatter (`mask=`) hides anything of them."""
        return self.user.sees_payloads and self.site.options.mask is None

    def payload(self, value: Any) -> str | None:
        """Return arguments or meta as JSON text; None if anything of them is hidden.

        Those of jobs are shown by `masking.py`, which asks a formatter what to leave.
        """
        if not self.sees_whole_payloads:
            return None
        return json.dumps(value, ensure_ascii=False)
