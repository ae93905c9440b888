"""Logs, and how jobs are tied to them: as values.

A log is a named list that only grows; its entries have the offsets 0, 1, 2 and so on. A job
may wait until a log is longer than a given length, and may append to logs when it ends.
"""

from typing import NamedTuple

# For which final states an OnEnd appends; they can be added.
DONE_END, DEAD_END, CANCELLED_END = 1, 2, 4
FAILED_END = DEAD_END | CANCELLED_END
ANY_END = DONE_END | FAILED_END

END_BY_STATE = {4: DONE_END, 5: DEAD_END, 6: CANCELLED_END}  # codes of model/job.py


class Wait(NamedTuple):
    """A job is blocked until the log has more than `above` entries."""

    log: str
    above: int


class OnEnd(NamedTuple):
    """What a job appends to a log in the transaction that ends it.

    The entry contains the tag, the final state, the id of the job, and its result or last
    error. An OnEnd for `done` that has appended is removed from the job: if the job is
    retried, it appends no second one. One for failures alone appends at each failure.
    """

    log: str
    when: int = DONE_END
    tag: int = 0
    once: bool = False  # the log takes one such entry for each tag
