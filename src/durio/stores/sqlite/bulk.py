"""One verb for many jobs: counted first, then done in steps, each job at most once.

A mark says how far a count looked: the newest arrival, the moment, and how many jobs had
ever died. Waiting and running jobs are beyond it when they arrived later, dead ones when
they died later, so that a job that is sent back and dies again is not met twice. (One that
only comes back to a waiting state had arrived before: it is meant.)

Steps look for jobs beside the writer and judge each again in the transaction that acts.
Where a bulk act has come to is remembered by this process; it saves going over what did
not fit, and nothing is wrong without it.
"""

from typing import Any, NamedTuple

from durio.model.errors import InvalidOption
from durio.model.job import BLOCKED, CANCELLED, DEAD, READY, RUNNING, SCHEDULED
from durio.model.names import namespace_of
from durio.ports.browse import Query
from durio.ports.control import Acted, Counted, Verb
from durio.stores.sqlite.audit import write_down
from durio.stores.sqlite.bounds import take_mark
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.filters import conditions, states_of, walk_of
from durio.stores.sqlite.hands import act, is_changed
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.transaction import Transaction

READ_MARK = statement("read_mark")

STEP_MAX = 1000
REMEMBERED_MAX = 64
# The states in which a verb does something, in the order in which they are walked: the way
# that jobs go, so that none slips through to a state that was walked before.
CHANGEABLE: dict[Verb, tuple[int, ...]] = {
    "cancel": (SCHEDULED, READY, RUNNING),
    "retry": (DEAD, CANCELLED),
    "discard": (DEAD,),
}

Key = tuple[Any, ...]


class Mark(NamedTuple):
    """How far a count looked."""

    seq: int
    at: float
    deaths: int

    def __str__(self) -> str:
        return f"{self.seq}:{self.at!r}:{self.deaths}"


class Place(NamedTuple):
    """Where a walk through several states has come to."""

    nth: int = 0  # of the states
    after: tuple[Any, ...] = ()  # the last job met; none: at the beginning


class Step(NamedTuple):
    """Jobs to act on, and where the next look begins; None: there is no more."""

    found: list[tuple[bytes, int]]  # id, state
    then: Place | None


class Begun(NamedTuple):
    """A bulk act in steps: where it is, and its line in the audit."""

    place: Place
    line: int | None


class Bulks:
    """The bulk acts that this process has begun and not ended."""

    def __init__(self) -> None:
        self._begun: dict[Key, Begun] = {}

    def get(self, key: Key) -> Begun:
        """Where this one is."""
        return self._begun.get(key) or Begun(Place(), None)

    def put(self, key: Key, begun: Begun | None) -> None:
        """Remember a step that is committed; None: that was the last."""
        self._begun.pop(key, None)
        if begun is not None:
            self._begun[key] = begun
        while len(self._begun) > REMEMBERED_MAX:
            self._begun.pop(next(iter(self._begun)))


def mark_of(text: str) -> Mark:
    """The mark that a count gave; text that we did not write is refused."""
    try:
        seq, at, deaths = text.split(":")
        return Mark(int(seq), float(at), int(deaths))
    except ValueError:
        raise InvalidOption(
            f"{text[:40]!r} is no mark", cure="Pass back what `count` gave."
        ) from None


def count(db: Database, query: Query, now: float) -> Counted:
    """One statement, so that number and mark are of the same moment."""
    states = states_of(query)
    parts: list[tuple[str, list[Any]]] = []
    if states is None:
        where, values = conditions(query, dead=False)
        parts.append((f"job where true {where}", values))
    for state in sorted(set(states or ())):
        if state == BLOCKED:
            continue  # nothing is ever blocked yet
        walk = walk_of(state)
        where, values = conditions(query, dead=state == DEAD)
        parts.append((f"{walk.source} where {walk.condition} {where}", values))
    total = " + ".join(f"(select count(*) from {part})" for part, _ in parts)  # noqa: S608
    given = [value for _, values in parts for value in values]
    seq, at, deaths, jobs = db.rows(f"{READ_MARK}, {total or '0'}", given)[0]
    at = max(now, at, latest(db, parts, states))
    return Counted(jobs, str(Mark(seq, at, deaths)))


def latest(
    db: Database, parts: list[tuple[str, list[Any]]], states: tuple[int, ...] | None
) -> float:
    """The latest moment in what was counted: a clock may have been ahead of ours.

    Deaths are numbered and need none: those who only ask for them do not pay.
    """
    if states is not None and set(states) <= {DEAD}:
        return 0.0
    moments = "max(max(created_at), coalesce(max(finished_at), 0))"
    rows = [
        db.value(f"select {moments} from {part}", values)  # noqa: S608 - ours
        for part, values in parts
    ]
    return max((moment or 0.0 for moment in rows), default=0.0)


def changeable(query: Query, verb: Verb) -> list[int]:
    """The states asked for in which the verb does something."""
    states = states_of(query)
    return [s for s in CHANGEABLE[verb] if states is None or s in states]


def look(
    db: Database, query: Query, verb: Verb, mark: Mark, place: Place, limit: int
) -> Step:
    """The next jobs that fit, state by state."""
    states = changeable(query, verb)
    found: list[tuple[bytes, int]] = []
    nth, after = place
    while nth < len(states):
        state, room = states[nth], limit - len(found)
        rows = walk(db, query, mark, state, after, room)
        found += [(row[0], state) for row in rows]
        if len(rows) == room:
            return Step(found, Place(nth, rows[-1][1:]))
        nth, after = nth + 1, ()
    return Step(found, None)


def walk(
    db: Database, query: Query, mark: Mark, state: int, after: Key, room: int
) -> list[Key]:
    """So many jobs of one state, by its index, from behind the last one met."""
    source, _, order = walk_of(state)
    where, values = fitting(query, mark, state)
    columns = ", ".join(order)
    if after:
        where += f" and ({columns}) > ({', '.join('?' * len(order))})"
        values = [*values, *after]
    sql = f"select id, {columns} from {source} where {where}"  # noqa: S608 - ours
    return db.rows(f"{sql} order by {columns} limit ?", (*values, room))


def fits(db: Database, query: Query, mark: Mark, state: int, job_id: bytes) -> bool:
    """Whether a job found a moment ago still is what was asked for."""
    where, values = fitting(query, mark, state)
    sql = f"select 1 from job where {where} and id = ?"  # noqa: S608 - ours
    return bool(db.rows(sql, (*values, job_id)))


def fitting(query: Query, mark: Mark, state: int) -> tuple[str, list[Any]]:
    """The query for one state, and not beyond the mark."""
    where, values = conditions(query, dead=state == DEAD)
    if state == DEAD:
        beyond, limits = "coalesce(died_no, 0) <= ?", [mark.deaths]
    elif state == CANCELLED:
        beyond, limits = "seq <= ? and finished_at <= ?", [mark.seq, mark.at]
    else:
        beyond, limits = "seq <= ? and created_at <= ?", [mark.seq, mark.at]
    if state == RUNNING:
        beyond += " and not cancel"  # asked already
    return f"{walk_of(state).condition} {where} and {beyond}", [*values, *limits]


def act_on(
    tx: Transaction,
    query: Query,
    verb: Verb,
    mark: Mark,
    found: list[tuple[bytes, int]],
    by: str,
    line: int | None,
) -> tuple[int, int | None]:
    """Act on those that still fit; how many, and the line of the audit."""
    jobs = 0
    for job_id, state in found:
        if fits(tx.db, query, mark, state, job_id):
            after = act(tx, job_id, state, verb)
            jobs += is_changed(Acted(job_id, state, after), verb)
    if jobs:
        if verb == "cancel" and query.lane is not None:
            take_mark(tx, query.lane)
        namespace = query.namespace or namespace_of(query.lane or "")
        target = query.in_words()
        line = write_down(tx, namespace, by, verb, target, jobs, step_of=line)
    return jobs, line
