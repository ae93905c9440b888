"""What follows from the failure of a node: which nodes are cancelled, which handlers run.

A node fails if its job is dead or was cancelled by hand. Every plan around it fails too, up
to a group with `on_error="collect"`, which takes the failure as one of its items.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from durio.model.expiry import expiry_time, parse_expires
from durio.model.ids import uuid7
from durio.model.job import CANCELLED, DEAD, StoredJob
from durio.model.logs import DEAD_END, DONE_END
from durio.model.options import UNSET, stored_options
from durio.model.plan import SignatureValue
from durio.model.plan_checks import HANDLERS_MAX, NESTING_MAX
from durio.model.plan_layout import PlanLayout

META_BYTES_MAX = 16 * 1024
# Why a node was cancelled, if it has not failed itself.
CONSEQUENCES = frozenset({"parent_dead", "plan_cancelled", "plan_not_whole"})


def has_failed(job: StoredJob) -> bool:
    """Whether a node is dead, or was cancelled for itself."""
    if job.state == CANCELLED:
        return job.reason not in CONSEQUENCES
    return job.state == DEAD


def why_failed(job: StoredJob) -> str | None:
    """Return the reason of a failed job for its plan; None if it is not known."""
    return job.reason or ("cancelled" if job.state == CANCELLED else None)


class HandlerCall(NamedTuple):
    """An on_error handler that runs after a failure."""

    signature: SignatureValue
    of: str  # whose handler it is: `n5` is node 5, `s2` is scope 2
    position: int  # among the handlers of that node or plan
    depth: int  # a higher number is further inside


def handler_options(
    signature: SignatureValue, now: float
) -> tuple[bytes | None, float | None]:
    """Return the stored options of a handler, and when it expires.

    The time is not checked: the plan may have failed after a time that was given.
    """
    options = signature.options
    given = None if options.expires is UNSET else options.expires
    at = expiry_time(parse_expires(given), now)
    return stored_options(options, signature.task, META_BYTES_MAX, expires_at=at), at


def dependents(layout: PlanLayout, number: int) -> list[int]:
    """Return the nodes to cancel after a failure, in ascending order.

    These are the nodes that wait for it, also through others, and the rest of each group
    around it with `cancel_rest`. Nodes among them that have ended are left as they are.
    """
    # A group that collects the failure goes on: its log is not followed.
    seen = {end.log for end in layout.node(number).on_end if end.when & DEAD_END}
    found = followers(layout, [number], seen)
    for scope in failed_scopes(layout, number):
        if layout.scopes[scope].plan.cancels_rest:
            found |= {*range(layout.scopes[scope].first, layout.scopes[scope].end)}
            found |= {n for n in layout.added if scope in layout.scopes_of(n)}
    return sorted(found - {number})


def followers(
    layout: PlanLayout, numbers: Iterable[int], seen: Iterable[str] = ()
) -> set[int]:
    """Return the nodes that wait for these, also through others; not by the logs `seen`."""
    found, logs = set[int](), set(seen)
    waiting = [*numbers]
    while waiting:
        for end in layout.node(waiting.pop()).on_end:
            if end.when & DONE_END and end.log not in logs:
                logs.add(end.log)
                new = layout.waiters.get(end.log, [])
                found.update(new)
                waiting += new
    return found


def fails_plan(layout: PlanLayout, number: int) -> bool:
    """Whether the failure of a node fails the whole plan: no group around it collects."""
    scopes = (layout.scopes[scope] for scope in layout.scopes_of(number))
    return not any(scope.plan.is_collected for scope in scopes)


def failed_scopes(layout: PlanLayout, number: int) -> Iterator[int]:
    """Yield the scopes that fail with a node, innermost first."""
    for scope in layout.scopes_of(number):
        if layout.scopes[scope].plan.is_collected:
            return
        yield scope


def handlers(layout: PlanLayout, number: int) -> list[HandlerCall]:
    """Return the handlers of a failed node, then of each plan that fails with it.

    A second failure names the handlers of a plan again: their ids are the same.
    """
    signature = layout.node(number).signature
    own = () if signature is None else signature.error_handlers
    calls = [
        HandlerCall(handler, f"n{number}", position, NESTING_MAX + 1)
        for position, handler in enumerate(own)
    ]
    for scope in failed_scopes(layout, number):
        depth = layout.scopes[scope].depth
        for position, handler in enumerate(layout.scopes[scope].plan.error_handlers):
            calls.append(HandlerCall(handler, f"s{scope}", position, depth))
    return calls


def handler_id(plan_id: bytes, call: HandlerCall, resumed: int = 0) -> bytes:
    """Return the job id of a handler: it runs once for each start or resume of the plan.

    Ids ascend from the inside to the outside, so handlers start in this order.
    """
    order = (NESTING_MAX + 1 - call.depth) * HANDLERS_MAX + call.position
    key = f"{call.of}/{call.position}/{resumed}".encode()
    digest = blake2b(plan_id + key, digest_size=8).digest()
    return uuid7(int.from_bytes(plan_id[:6]), order, int.from_bytes(digest))
