"""The ties of a stored job: the log it waits for, the entries of its end, its gates."""

from typing import NamedTuple

import msgspec

from durio.model.failure import encode_short
from durio.model.gate import GateSpec
from durio.model.job import CANCELLED, DONE, NewJob
from durio.model.logs import DONE_END, END_BY_STATE, OnEnd, Wait

ENTRY_BODY_MAX = 4 * 1024  # a longer result is read from the job


class Ties(NamedTuple):
    """The ties of a job; stored as JSON, a list of two; three with `quiet`, four with gates."""

    wait: Wait | None  # kept for a retry, also when the wait is over
    on_end: tuple[OnEnd, ...]
    # The job runs, and was asked to be cancelled without entries, for this reason.
    quiet: str | None = None
    gates: tuple[GateSpec, ...] = ()


class EndedJob(NamedTuple):
    """A job with ties that has just become final."""

    id: bytes
    state: int
    ties: str
    body: bytes | None  # result or error, as an entry contains it


_decoder = msgspec.json.Decoder(Ties)


def encode_ties(job: NewJob) -> str | None:
    """Return the ties of a new job as they are stored; None if it has none."""
    if job.wait is None and not job.on_end and not job.gates:
        return None
    return dump_ties(Ties(job.wait, job.on_end, None, job.gates))


def dump_ties(ties: Ties) -> str:
    shown = 4 if ties.gates else 2 if ties.quiet is None else 3
    return msgspec.json.encode(ties[:shown]).decode()


def load_ties(text: str) -> Ties:
    return _decoder.decode(text)


def entries_at_end(ties: Ties, state: int) -> tuple[list[OnEnd], Ties]:
    """Return what a job appends in this final state, and the ties that it keeps.

    What is for failures only is kept: a job that is retried may fail again. A job that was
    cancelled quietly keeps everything. A done job needs its ties no more.
    """
    if state == DONE:
        return [end for end in ties.on_end if end.when & DONE_END], ties
    if state == CANCELLED and ties.quiet is not None:
        return [], ties._replace(quiet=None)
    bit = END_BY_STATE[state]
    due = [end for end in ties.on_end if end.when & bit]
    kept = tuple(
        end for end in ties.on_end if not end.when & bit or not end.when & DONE_END
    )
    return due, ties._replace(on_end=kept)


def entry_uid(end: OnEnd) -> str | None:
    """Return the id that keeps a log from taking a second entry of this tag."""
    return f"m{end.tag}" if end.once else None


def entry_body(state: int, result: bytes | None, error: bytes | None) -> bytes | None:
    """Return the body of an entry: the result if it is not too long, or the error."""
    if state != DONE:
        return None if error is None else encode_short(error)
    return None if result is None or len(result) > ENTRY_BODY_MAX else result
