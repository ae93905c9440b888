"""Jobs pass gates, hold places, and give them back.

A job arrives at its first gate, then at the next one; whoever leaves a place or brings a
job lets those pass that may, in the same transaction. Gates are visited in the order of
their names, because a job that passes one arrives at one with a greater name.

A job that has passed all its gates has a ticket: its place in its queue is that of the
moment in which it passed. `model/gate.py` decides who passes.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import NamedTuple

import msgspec

from durio.model.gate import (
    ATTEMPT,
    FINAL,
    PASSED_MAX,
    Gate,
    GateSpec,
    admit,
    configured,
    first_gate,
    held_at,
    kept_places,
    new_gate,
    room,
)
from durio.model.job import NewJob
from durio.model.ties import load_ties
from durio.stores.sqlite.database import Row
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

READ_GATE = statement("read_gate")
WRITE_GATE = statement("write_gate")
READ_ENTRANTS = statement("read_entrants")
BLOCK_FOR_GATES = statement("block_for_gates")
FIND_BEFORE_GATE = statement("find_before_gate")
WRITE_GATED = statement("write_gated")
DRAW_TICKETS = statement("draw_tickets")
NEWEST_JOB = statement("newest_job")
FIND_SEQ = statement("find_seq")
UNBLOCK_PLAIN = statement("unblock_plain")
DELETE_GATED = statement("delete_gated")
KEEP_PLACES = statement("keep_places")

rank_of = attrgetter("rank")


class Entrant(NamedTuple):
    """A job on its way through its gates."""

    seq: int
    lane: str
    rank: int
    held: int  # bits of its places
    gates: tuple[GateSpec, ...]


class StoredGate(NamedTuple):
    """A gate, and when upkeep has to look at it."""

    gate: Gate
    due: float | None


class Passing:
    """One run through the gates: who arrives, which places are free, who has passed."""

    def __init__(self, tx: SqliteTransaction) -> None:
        self._tx = tx
        self._arriving: dict[str, list[Entrant]] = {}
        self._freed: Counter[str] = Counter()
        self._names: list[str] = []  # a heap: these gates are to be looked at
        self._known: set[str] = set()  # what is in the heap
        self._staying: list[tuple[str, Entrant]] = []
        self._gates: list[tuple[object, ...]] = []  # to be written
        self.ready: list[Entrant] = []

    def arrive(self, entrant: Entrant, after: str = "") -> None:
        """Send a job to its next gate, or to its queue."""
        number = first_gate(entrant.gates, entrant.held, after)
        if number is None:
            self.ready.append(entrant)
            return
        name = entrant.gates[number].name
        self._arriving.setdefault(name, []).append(entrant)
        self.look_at(name)

    def give_back(self, names: Iterable[str]) -> None:
        for name in names:
            self._freed[name] += 1
            self.look_at(name)

    def look_at(self, name: str) -> None:
        if name not in self._known:
            self._known.add(name)
            heappush(self._names, name)

    def run(self, limit: int = PASSED_MAX) -> int:
        """Let jobs pass, gate by gate; return how many passed a gate."""
        passed = 0
        while self._names:
            name = heappop(self._names)
            self._known.remove(name)
            arriving = self._arriving.pop(name, [])
            going = self._pass(name, arriving, limit)
            passed += len(going)
            for entrant in going:
                self.arrive(entrant, name)
        # Each gate was looked at once, so all rows can be written together.
        self._tx.db.changed_by_many(WRITE_GATE, self._gates)
        write_gated(self._tx, self._staying)
        self._gates, self._staying = [], []
        return passed

    def _pass(self, name: str, arriving: list[Entrant], limit: int) -> list[Entrant]:
        """Let jobs pass one gate; return them in their order."""
        tx, stored = self._tx, read_gate(self._tx, name)
        gate = None if stored is None else stored.gate
        numbers = {each.seq: number_of(each, name) for each in arriving}
        for each in arriving:
            spec = each.gates[numbers[each.seq]]
            if gate is not None:
                gate = configured(gate, spec, tx.now)
            elif spec.makes_row:
                gate = new_gate(spec, tx.now)
        if gate is None:
            return arriving
        gate = gate._replace(used=gate.used - self._freed.pop(name, 0))
        most = room(gate, tx.now, limit)
        waiting = [
            entrant_of(row) for row in tx.db.rows(FIND_BEFORE_GATE, (name, most + 1))
        ]
        for each in waiting:
            numbers[each.seq] = number_of(each, name)
        first = sorted((*waiting, *arriving), key=rank_of)[: most + 1]
        costs = [each.gates[numbers[each.seq]].cost for each in first]
        decision = admit(gate, costs, tx.now, limit)
        going = first[: decision.count]
        # Without a pass the tokens need not be written, unless the clock was set back.
        is_new = bool(going) or gate.at > tx.now
        new = StoredGate(decision.gate if is_new else gate, decision.due)
        if new != stored:
            self._gates.append(values_of(tx, name, new))
        gone = {each.seq for each in going}
        self._staying += [(name, each) for each in arriving if each.seq not in gone]
        if gate.cap is None:
            return going
        return [
            each._replace(held=each.held | 1 << numbers[each.seq]) for each in going
        ]


def number_of(entrant: Entrant, name: str) -> int:
    return next(n for n, spec in enumerate(entrant.gates) if spec.name == name)


def entrant_of(row: Row) -> Entrant:
    seq, lane, rank, held, ties = row
    return Entrant(seq, lane, rank, held, load_ties(ties).gates)


def has_gates(ties: str) -> bool:
    return bool(load_ties(ties).gates)


# --- rows


def read_gate(tx: SqliteTransaction, name: str) -> StoredGate | None:
    rows = tx.db.rows(READ_GATE, (name,))
    return StoredGate(Gate(*rows[0][:-1]), rows[0][-1]) if rows else None


def write_gate(tx: SqliteTransaction, name: str, stored: StoredGate) -> None:
    tx.db.rows(WRITE_GATE, values_of(tx, name, stored))


def values_of(
    tx: SqliteTransaction, name: str, stored: StoredGate
) -> tuple[object, ...]:
    """Return the values of `write_gate`; note when upkeep has to look at the gate."""
    if stored.due is not None:
        tx.gate_due = min(stored.due, tx.gate_due or stored.due)
    return name, *stored.gate, stored.due


def write_gated(
    tx: SqliteTransaction,
    entrants: Sequence[tuple[str | None, Entrant]],
    newest: int | None = None,
) -> None:
    """Let jobs stand before these gates, or without one in their queues; in this order."""
    if not entrants:
        return
    last = tx.db.value(DRAW_TICKETS, (len(entrants),))
    tx.db.changed_by_many(
        WRITE_GATED,
        [
            (each.seq, each.lane, each.rank, gate, ticket, newest, tx.now, each.held)
            for ticket, (gate, each) in enumerate(entrants, last - len(entrants) + 1)
        ],
    )


# --- entering


def enter_gates(tx: SqliteTransaction, seqs: Sequence[int]) -> set[int]:
    """Send jobs to their gates that were just made ready; return those that stay there.

    Jobs without gates stay ready.
    """
    entrants = read_entrants(tx, seqs)
    if not entrants:
        return set()
    tx.db.changed_by_many(BLOCK_FOR_GATES, [(each.seq,) for each in entrants])
    passing = Passing(tx)
    for each in entrants:
        passing.arrive(each)
    passing.run()
    queue(tx, passing.ready)
    return {each.seq for each in entrants} - {each.seq for each in passing.ready}


def read_entrants(tx: SqliteTransaction, seqs: Sequence[int]) -> list[Entrant]:
    """Return those of these jobs that have gates, in this order."""
    wanted = msgspec.json.encode(list(seqs)).decode()
    return [entrant_of(row) for row in tx.db.rows(READ_ENTRANTS, (wanted,))]


def enter_new(tx: SqliteTransaction, jobs: Sequence[NewJob]) -> set[bytes]:
    """Send jobs to their gates that were just stored as blocked; return those that pass.

    One that passes all gates and holds no place is the newest of its queue: it needs no
    ticket.
    """
    passing = Passing(tx)
    ids: dict[int, bytes] = {}
    for job in jobs:
        seq = tx.db.value(FIND_SEQ, (job.id,))
        ids[seq] = job.id
        passing.arrive(Entrant(seq, job.lane, job.rank, 0, job.gates))
    passing.run()
    # Others may have passed too: a gate was due, and nobody had looked at it.
    new = [each for each in passing.ready if each.seq in ids]
    plain = {each.seq for each in new if not each.held}
    tx.db.changed_by_many(UNBLOCK_PLAIN, [(seq,) for seq in plain])
    queue(tx, [each for each in passing.ready if each.seq not in plain])
    return {ids[each.seq] for each in new}


def queue(tx: SqliteTransaction, ready: Sequence[Entrant]) -> None:
    """Give tickets to jobs that have passed all their gates, and wake workers."""
    if ready:
        queued = [(None, each) for each in ready]
        write_gated(tx, queued, tx.db.value(NEWEST_JOB))
        for lane in dict.fromkeys(each.lane for each in ready):
            tx.wake(lane)


def enter_tied(tx: SqliteTransaction, promoted: Iterable[Row]) -> None:
    """Send promoted jobs to their gates; the rows have `seq` for jobs with ties."""
    tied = [seq for (seq,) in promoted if seq is not None]
    if tied:
        enter_gates(tx, tied)


# --- giving places back


def leave_gates(tx: SqliteTransaction, ended: Iterable[tuple[int, str | None]]) -> None:
    """Let jobs (seq, ties) that became final give back all that they hold."""
    passing: Passing | None = None
    for seq, text in ended:
        if text is None or not (gates := load_ties(text).gates):
            continue
        for (held,) in tx.db.rows(DELETE_GATED, (seq,)):
            passing = passing or Passing(tx)
            passing.give_back(held_at(gates, held))
    if passing is not None:
        passing.run()
        queue(tx, passing.ready)


def give_back(tx: SqliteTransaction, seq: int, *kept: int) -> None:
    """Let a job that does not stand before a gate keep only places that are held so long."""
    keep_places(tx, read_entrants(tx, (seq,)), *kept)


def start_gated(
    tx: SqliteTransaction, claimed: Sequence[tuple[int, str | None, int]]
) -> bool:
    """Let claimed jobs (seq, ties, held) keep the places that are held beyond the start.

    Return whether other jobs are ready now.
    """
    jobs = [
        Entrant(seq, "", 0, held, load_ties(text).gates)
        for seq, text, held in claimed
        if text is not None
    ]
    return bool(jobs) and keep_places(tx, jobs, ATTEMPT, FINAL)


def keep_places(tx: SqliteTransaction, jobs: Iterable[Entrant], *kept: int) -> bool:
    """Let jobs keep only places that are held so long; return whether others are ready."""
    passing = Passing(tx)
    for job in jobs:
        left = kept_places(job.gates, job.held, *kept)
        if left:
            tx.db.rows(KEEP_PLACES, (job.seq, left))
        else:
            tx.db.rows(DELETE_GATED, (job.seq,))
        passing.give_back(held_at(job.gates, job.held & ~left))
    passing.run()
    queue(tx, passing.ready)
    return bool(passing.ready)
