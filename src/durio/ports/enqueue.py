"""What a store promises about accepting jobs."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from durio.model.job import NewJob


class Enqueued(NamedTuple):
    """The answer for one job, in the order asked."""

    id: bytes  # the holder's id when the key answered `existing`
    created: bool  # False: an older job with this key (or this very id) answers
    state: int  # of the job that answers
    same_args: bool = True
    conflict: bool = False  # window key, other arguments: nothing was written
    replaced: bool = False  # the holder was rewritten with these arguments


class Enqueue(Protocol):
    """Accepting jobs."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store all of them in one transaction that survives a power cut.

        A job whose id is already stored (a repeat after an unknown outcome) is answered
        as it stands, also when it finished meanwhile: nothing is inserted. Keys are
        judged by `model.keys.answer`. `run_at` in the past, or no delay, is ready now.
        Afterwards whoever serves the lanes is woken. Raises StoreError, with `unknown`
        set when the write may have happened.
        """
        ...
