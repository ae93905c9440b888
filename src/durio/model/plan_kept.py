"""Nodes whose records a plan needs until its end: what is written when such a node is done.

A result of more than 4 KiB is read from the record of its job, not from a log. And the
leader finds a plan by the record of its last node. So these records are kept whatever
retention their task has, and get their own retention when the plan is done. Until then it
is written in a log of the plan.
"""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from durio.model.effects import Append, Effects, NewEntry
from durio.model.ids import id_bytes
from durio.model.job import Claim
from durio.model.names import namespace_of
from durio.model.outcome import KeepRule
from durio.model.ties import ENTRY_BODY_MAX

# The longest retention; the leader shortens it.
UNTIL_PLAN_ENDS = KeepRule(365 * 86400.0)
SHORT_SECONDS = 3600.0  # time for a leader to mark a plan that has ended

_decoder = msgspec.json.Decoder(KeepRule | None)


def kept_log(namespace: str, plan_id: bytes) -> str:
    return f"k:{namespace}/{plan_id.hex()}"


def kept_for_plan(
    claim: Claim,
    plan: str,
    result: bytes,
    keep: KeepRule | None,
    default_seconds: float,
) -> tuple[KeepRule | None, Effects | None]:
    """Return the retention of a done node, and the effects that keep its own for later.

    A node without its own has the App's, `default_seconds`.
    """
    seconds, count, _ = keep or KeepRule(default_seconds)
    is_short = seconds < SHORT_SECONDS or count is not None
    if len(result) <= ENTRY_BODY_MAX and not is_short:
        return keep, None
    entry = NewEntry(msgspec.json.encode(keep), uid=claim.id.hex())
    log = kept_log(namespace_of(claim.lane), id_bytes(plan))
    return UNTIL_PLAN_ENDS, Effects(appends=[Append(log, [entry])])


def retentions(
    entries: Iterable[tuple[str | None, bytes | None]],
) -> dict[KeepRule | None, list[bytes]]:
    """Return the jobs of such entries, by the retention that they get."""
    found: defaultdict[KeepRule | None, list[bytes]] = defaultdict(list)
    for uid, body in entries:
        if uid is not None and body is not None:
            found[_decoder.decode(body)].append(bytes.fromhex(uid))
    return found
