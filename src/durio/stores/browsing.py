"""Build the results of read queries from rows, and check cursors, for every store."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from durio.model.codec import json_text
from durio.model.errors import InvalidOption
from durio.model.gate import held_at
from durio.model.ties import load_ties
from durio.ports.browse import GatedJob, LaneRow, Query, WorkerRow
from durio.ports.lease import Vitals

PAGE_MAX = 200
BULK_JOBS_MAX = 1000
EVERY_LANE = ("\1", "\U0010ffff")  # not "": that row numbers the deaths

Row = tuple[Any, ...]

_vitals_decoder = msgspec.json.Decoder(Vitals)


def lane_rows(
    rows: Iterable[Row],
    counts: Sequence[Row] = (),
    oldest: Iterable[Row] = (),
    heads: Sequence[Row] = (),
    gated: Sequence[Row] = (),
) -> list[LaneRow]:
    """Convert stored queues, with the requested columns.

    `counts` has lane, state, jobs; `oldest` lane, time; `heads` lane, task, jobs; `gated`
    lane, jobs.
    """
    found = [lane_row(*row) for row in rows]
    # The quick case: workers call this in a loop.
    if not (counts or oldest or heads or gated):
        return found
    by_state, by_task = by_lane(counts), by_lane(heads)
    since: dict[str, float] = dict(oldest)
    before_gates: dict[str, int] = dict(gated)
    return [
        row._replace(
            counts=by_state.get(row.name, {}),
            oldest_ready_at=since.get(row.name),
            head_tasks=by_task.get(row.name, {}),
            before_gates=before_gates.get(row.name, 0),
        )
        for row in found
    ]


def by_lane(rows: Iterable[Row]) -> dict[str, dict[Any, int]]:
    found: dict[str, dict[Any, int]] = {}
    for lane, what, jobs in rows:
        numbers = found.setdefault(lane, {})
        numbers[what] = numbers.get(what, 0) + jobs
    return found


def lane_row(
    name: str,
    paused: int,
    closed: int,
    maxsize: int | None,
    manual: int | None,
    is_over: int,
) -> LaneRow:
    """Convert a queue's row.

    An operator's bound overrides the code's, a negative one is none.
    """
    holds = maxsize if manual is None else manual
    return LaneRow(
        name=name,
        paused=bool(paused),
        closed=bool(closed),
        maxsize=None if holds is None or holds < 0 else holds,
        is_manual=manual is not None,
        is_over=is_over > 0,
    )


def worker_row(
    worker: int, info: str, left: float, running: int, vitals: str | None
) -> WorkerRow:
    """Convert a stored worker, with the seconds that are left of its lease."""
    return WorkerRow(
        worker, msgspec.json.decode(info), left, running, vitals_of(vitals)
    )


def vitals_text(vitals: Vitals) -> str:
    """Return vitals as stored, without defaults at the end, which older releases lack."""
    fields, defaults = list(vitals), [False, None]
    while defaults and fields[-1] == defaults[-1]:
        fields.pop()
        defaults.pop()
    return json_text(fields)


def vitals_of(stored: str | None) -> Vitals | None:
    """Return the vitals that a worker last sent; None if they have another shape."""
    try:
        return None if stored is None else _vitals_decoder.decode(stored)
    except msgspec.DecodeError:
        return None


def one_state(query: Query) -> int | None:
    """Return the state of a query with a mark; None if it matches no jobs."""
    states = query.possible_states
    if states is None or len(states) > 1:
        raise InvalidOption("more than one state", cure="Ask for one state at a time.")
    return states[0] if states else None


def invalid_cursor(cursor: str) -> InvalidOption:
    return InvalidOption(
        f"{cursor[:40]!r} is not a cursor", cure="Pass the cursor of the previous page."
    )


def invalid_mark(mark: str) -> InvalidOption:
    return InvalidOption(
        f"{mark[:40]!r} is not a mark", cure="Pass the mark that `count` returned."
    )


def gated_jobs(ids: Sequence[bytes], rows: Iterable[Row]) -> list[GatedJob]:
    """Convert rows of id, ties, held places and gate, to the order of the ids."""
    found: dict[bytes, GatedJob] = {}
    for job_id, ties, held, before in rows:
        gates = load_ties(ties).gates
        names = tuple(sorted(spec.name for spec in gates))
        if names:
            holds = tuple(sorted(held_at(gates, held)))
            found[job_id] = GatedJob(job_id, names, before, holds)
    return [found[job_id] for job_id in ids if job_id in found]
