"""A bulk action as records: its preview, and how far it has come."""

from typing import Literal

import msgspec

BulkVerb = Literal["retry", "cancel", "run_now", "discard", "move"]
BulkState = Literal["running", "stopping", "stopped", "done", "failed"]

ENDED = frozenset({"stopped", "done", "failed"})
PREVIEW_SECONDS = 900.0
KEPT_SECONDS = 7 * 86_400.0  # after its end


class BulkWish(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which jobs are meant, and what happens to them."""

    verb: BulkVerb
    q: str  # canonical text of the query
    now_ms: int  # that ages are compared with
    mark: str  # of the count: later jobs are beyond it
    expected: int  # jobs that were counted
    is_capped: bool = False  # there are more than that
    to: str | None = None  # queue that jobs move to
    # The queues and tasks of the credential; None: all of them.
    queues: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    user: str = ""  # name of the user
    by: str = ""  # for the audit
    reason: str | None = None


class BulkRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The body of the record of a bulk action."""

    wish: BulkWish
    started_at: float
    state: BulkState = "running"
    details: str = ""  # JSON for the audit, with the id of the action
    holder: str = ""  # the process part that runs it now
    visit: int = 0  # each state is visited twice; this is the number of the visit
    cursor: str | None = None  # in this visit
    matched: int = 0  # jobs found in the first visits
    done: int = 0
    failed: int = 0  # jobs that open transactions held, also the second time
    ended_at: float | None = None
    error: str | None = None  # why it failed

    @property
    def is_over(self) -> bool:
        return self.state in ENDED

    @property
    def skipped(self) -> int:
        """Jobs that were found and did not allow the action any more."""
        return max(0, self.matched - self.done - self.failed) if self.is_over else 0


_wishes = msgspec.json.Decoder(BulkWish)
_runs = msgspec.json.Decoder(BulkRecord)


def previews_kind(namespace: str) -> str:
    return f"bulk_preview:{namespace}"


def bulk_kind(namespace: str) -> str:
    """Return the kind of an App's bulk actions; each record has an id as its name."""
    return f"bulk:{namespace}"


def load_wish(body: bytes) -> BulkWish:
    return _wishes.decode(body)


def load_bulk(body: bytes) -> BulkRecord:
    return _runs.decode(body)
