"""Record outcomes and claim jobs in one transaction.

A worker has one such call in flight at a time. It records the outcomes, promotes due jobs
in these lanes, and claims lane by lane, in this order. A claim first reads the next jobs,
then takes them. A worker whose lease has expired still records outcomes, fenced, but claims
nothing.
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any

import msgspec

from durio.model.job import Claim
from durio.model.keys import WAITING
from durio.model.outcome import Outcome
from durio.ports.exchange import Exchanged, Lane
from durio.stores.sqlite.bounds import subtract_from_depth
from durio.stores.sqlite.context import SqliteCapability
from durio.stores.sqlite.database import Row
from durio.stores.sqlite.finish import SqliteRecordedOutcomes, record_outcomes
from durio.stores.sqlite.gate_upkeep import settle_gates
from durio.stores.sqlite.gates import enter_tied, start_gated
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

HAS_VALID_LEASE = statement("has_valid_lease")
NEXT_DUE_IN_LANE = statement("next_due_in_lane")
PROMOTE_LANE = statement("promote_lane")
MEASURE_READY = statement("measure_ready")
READ_READY_SIZES = statement("read_ready_sizes")
LOOK_READY = statement("look_ready")
LOOK_PACKED = statement("look_packed")
CLAIM_READY = statement("claim_ready")
LOOK_KNOWN = statement("look_known")
CLAIM_KNOWN = statement("claim_known")
FIND_NEXT_JOBS = statement("find_next_jobs")
LOOK_CHOSEN = statement("look_chosen")
CLAIM_CHOSEN = statement("claim_chosen")
FREE_KEY = statement("free_key")
READ_HELD_CLAIMS = statement("read_held_claims")

PROMOTED_MAX = 1000  # per lane and call
PACKED_MIN = 8  # below this number of jobs, rows are faster
CLAIM_BYTES_MAX = (
    16 << 20
)  # of arguments, per lane and call; the last job may exceed it
ID, PAYLOAD, OPTS = map(Claim._fields.index, ("id", "payload", "opts"))
decode_packed = msgspec.json.Decoder(list[list[Any]]).decode
# After the fields of a Claim, a row has its key, the key's mode, and whether it has ties.
WIDTH = len(Claim._fields)
claimed_key = itemgetter(WIDTH)
claimed_key_mode = itemgetter(WIDTH + 1)
has_ties = itemgetter(WIDTH + 2)

NO_OUTCOMES = SqliteRecordedOutcomes([], [])


class SqliteExchange(SqliteCapability):
    async def exchange(
        self,
        worker: int,
        outcomes: Sequence[Outcome],
        lanes: Sequence[Lane],
        want: int,
        *,
        known: Sequence[str] | None = None,
        resync: bool = False,
    ) -> Exchanged:
        def work(tx: SqliteTransaction) -> Exchanged:
            recorded = (
                record_outcomes(tx, worker, outcomes) if outcomes else NO_OUTCOMES
            )
            claims = claimed_before(tx, worker) if resync else []
            due = promote_lanes(tx, lanes, worker)
            more = claim_lanes(tx, worker, lanes, want, known, claims)
            settles_in = settled_in(tx)
            return Exchanged(
                claims, recorded.rejected, recorded.cancelled, more, due, settles_in
            )

        # A power cut ends every worker of this file, so claims alone need no flush.
        return await self.context.writer.write(
            work, rows=len(outcomes) + max(want, 1), durable=bool(outcomes)
        )


def settled_in(tx: SqliteTransaction) -> float | None:
    """Return when `settle` has work, as far as this transaction knows."""
    if tx.has_marked_logs:
        return 0.0
    return None if tx.gate_due is None else max(0.0, tx.gate_due - tx.now)


def claimed_before(tx: SqliteTransaction, worker: int) -> list[Claim]:
    """Return all jobs that run under this worker; the reply that contained them was lost."""
    return [Claim(*row) for row in tx.db.rows(READ_HELD_CLAIMS, (worker,))]


def promote_lanes(
    tx: SqliteTransaction, lanes: Sequence[Lane], worker: int
) -> float | None:
    """Make due jobs ready; return the seconds until the next one is due."""
    nearest: float | None = None
    for lane in dict.fromkeys(name for name, _ in lanes):  # a lane may occur twice
        due = tx.db.value(NEXT_DUE_IN_LANE, (lane,))
        if due is not None and due <= tx.now:
            enter_tied(tx, tx.db.rows(PROMOTE_LANE, (lane, tx.now, PROMOTED_MAX)))
            tx.wake(lane, except_worker=worker)
            due = tx.db.value(NEXT_DUE_IN_LANE, (lane,))
        if due is not None and (nearest is None or due < nearest):
            nearest = due
    return None if nearest is None else max(0.0, nearest - tx.now)


def claim_lanes(
    tx: SqliteTransaction,
    worker: int,
    lanes: Sequence[Lane],
    want: int,
    known: Sequence[str] | None,
    claims: list[Claim],
) -> bool:
    """Claim in lane order into `claims`; return whether a lane may have more."""
    lease = (worker, tx.boot, tx.monotonic_seconds)
    if want <= 0 or not (found := tx.db.rows(HAS_VALID_LEASE, lease)):
        return False
    more = False
    has_tickets = pass_due_gates(tx, *found[0])
    names = None if known is None else msgspec.json.encode(list(known)).decode()
    for lane, limit in lanes:
        if has_tickets:
            room = min(limit, want)
            some = claim_in_turn(tx, worker, lane, room, names)
            want -= len(some)
            more = more or len(some) == room
            claims += some
            continue
        room = jobs_within_bytes(tx, lane, min(limit, want))
        if room <= 0:
            continue
        some = claim_packed(tx, worker, lane, room) if names is None else None
        if some is None:
            rows = claim_rows(tx, worker, lane, room, names)
            some = [Claim(*row[:WIDTH]) for row in rows]
        if some:
            subtract_from_depth(tx, lane, len(some))
        want -= len(some)
        more = more or len(some) == room
        claims += some
    return more


def pass_due_gates(tx: SqliteTransaction, has_tickets: int, due: float | None) -> bool:
    """Let jobs pass gates whose time has come; return whether any job has a ticket."""
    if due is not None and due <= tx.now:
        settled = settle_gates(tx, PROMOTED_MAX)
        due = settled.next_due_seconds
        due = None if due is None else tx.now + due
        has_tickets = has_tickets or settled.count
    if due is not None:
        tx.gate_due = due
    return bool(has_tickets)


def jobs_within_bytes(tx: SqliteTransaction, lane: str, room: int) -> int:
    """Return how many of the next jobs to claim: `room`, or fewer if they are large."""
    if room < PACKED_MIN:
        return room
    if (tx.db.value(MEASURE_READY, (lane, room)) or 0) <= CLAIM_BYTES_MAX:
        return room
    sizes = tx.db.rows(READ_READY_SIZES, (lane, room))
    totals = accumulate(size for (size,) in sizes)
    return 1 + sum(total <= CLAIM_BYTES_MAX for total in totals)


def claim_packed(
    tx: SqliteTransaction, worker: int, lane: str, room: int
) -> list[Claim] | None:
    """Claim many jobs without keys; None if one needs `claim_rows`, and none is claimed."""
    if room < PACKED_MIN:
        return None
    ((packed, keyed, tied),) = tx.db.rows(LOOK_PACKED, (lane, room))
    if keyed:
        return None
    try:
        rows = decode_packed(packed)
    except (msgspec.DecodeError, UnicodeDecodeError):  # a payload that is not UTF-8
        return None
    if rows:
        tx.db.rows(CLAIM_READY, (worker, lane, len(rows), tx.now))
    if tied is not None:
        tx.special.update(map(bytes.fromhex, tied.split(",")))
    return [unpack(fields) for fields in rows]


def unpack(fields: list[Any]) -> Claim:
    """Return the claim; JSON has no bytes."""
    fields[ID] = bytes.fromhex(fields[ID])
    fields[PAYLOAD] = fields[PAYLOAD].encode()
    if fields[OPTS] is not None:
        fields[OPTS] = fields[OPTS].encode()
    return Claim._make(fields)


def claim_in_turn(
    tx: SqliteTransaction, worker: int, lane: str, room: int, names: str | None
) -> list[Claim]:
    """Claim jobs from a lane where some have passed gates.

    Places that are held until the start let others pass, which may be claimed at once.
    """
    claims: list[Claim] = []
    has_more = True
    while has_more and len(claims) < room:
        found = tx.db.rows(FIND_NEXT_JOBS, (lane, room - len(claims), names))
        totals = accumulate(size for _, size, _ in found)
        fits = sum(total <= CLAIM_BYTES_MAX for total in totals) + 1
        held = {seq: held for seq, _, held in found[:fits]}
        if not held:
            break
        seqs = msgspec.json.encode(list(held)).decode()
        rows = tx.db.rows(LOOK_CHOSEN, (seqs,))
        tx.db.rows(CLAIM_CHOSEN, (worker, seqs, tx.now))
        note_special(tx, rows)
        subtract_from_depth(tx, lane, len(rows))
        claims += [Claim(*row[:WIDTH]) for row in rows]
        has_more = fits >= len(found) and start_gated(
            tx,
            [(*row[-2:], held[row[-2]]) for row in rows if held[row[-2]] is not None],
        )
    return claims


def note_special(tx: SqliteTransaction, rows: Sequence[Row]) -> None:
    """Note claimed jobs with ties or a key, and free keys held only while waiting."""
    tx.special.update(row[0] for row in rows if has_ties(row))
    if any(map(claimed_key, rows)):
        free_waiting_keys(tx, [row for row in rows if claimed_key(row) is not None])


def claim_rows(
    tx: SqliteTransaction, worker: int, lane: str, room: int, names: str | None
) -> list[Row]:
    if names is None:
        rows = tx.db.rows(LOOK_READY, (lane, room))
        if rows:
            tx.db.rows(CLAIM_READY, (worker, lane, len(rows), tx.now))
    else:
        rows = tx.db.rows(LOOK_KNOWN, (lane, room, names))
        if rows:
            tx.db.rows(CLAIM_KNOWN, (worker, lane, len(rows), tx.now, names))
    note_special(tx, rows)
    return rows


def free_waiting_keys(tx: SqliteTransaction, keyed: Sequence[Row]) -> None:
    """Free the keys that are held only while waiting.

    Note all keyed jobs for `record_done`.
    """
    for row in keyed:
        if claimed_key_mode(row) == WAITING:
            tx.db.rows(FREE_KEY, (claimed_key(row), row[0]))
        tx.special.add(row[0])
