"""Send outcomes and receive claims: the one call that a worker keeps in flight.

A worker holds a lease; each claim has a `claim_no` that only increases. Every write about a
claimed job names (id, claim_no, worker), and a mismatch is refused. This is the fence that
keeps a rescued worker from writing anything.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from durio.model.job import Claim
from durio.model.outcome import Outcome
from durio.ports.conflicts import Conflict


class Lane(NamedTuple):
    """A queue by its stored name, and the most jobs to claim from it."""

    name: str
    limit: int


class Rejected(NamedTuple):
    """An outcome that was not accepted."""

    id: bytes
    claim_no: int
    # An earlier call stored the same outcome, and its reply was lost.
    already_stored: bool
    # A condition of its effects does not hold: the job is still running.
    conflict: Conflict | None = None


class Exchanged(NamedTuple):
    """The result of one exchange."""

    claims: list[Claim]  # in lane order, then rank, then age
    rejected: list[Rejected]
    # outcomes that became `cancelled` because a cancel was requested
    cancelled: list[bytes]
    more: bool  # a lane gave as many jobs as its limit: there may be more
    next_due_seconds: float | None  # time until the next scheduled job of these lanes
    # `Upkeep.settle` has work left by this call, or a gate of the store lets jobs pass, after
    # this time; None: neither is known.
    settle_in_seconds: float | None = None


class Exchange(Protocol):
    """Records outcomes and claims jobs in one transaction."""

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
        """Record outcomes, promote due jobs in these lanes, claim up to `want` jobs.

        `done` writes state, result and end time, and frees a key held while active. Any
        other outcome leads to the state that `model.transitions.way_out` names: a final
        state frees the key by its mode, other jobs go back to their lane with the same
        `claim_no`. An outcome that the fence refuses is in `rejected`. Without lanes this
        only records, for any worker, even one that stops or is not registered.

        A job that becomes final appends its entries to logs (`NewJob.on_end`), and jobs whose
        wait is over become ready. The effects of a `done` outcome are written with it; if a
        condition of them does not hold, nothing of that outcome is written, and `rejected`
        contains the conflict. Entries of effects come after the job's own. Full and closed
        queues accept the jobs of effects.

        A job with gates gives places back (`GateSpec.held_until`), and jobs that wait there
        take them. With a delay it passes its gates again when it is due; a release with
        `again_from_gates` does so at once. Otherwise a job that goes back to its queue keeps
        its places and its way. A gate counts passes: a retry without a delay takes no token.

        Lanes are read in order, each up to its limit; a lane may occur twice. Inside a lane
        and a rank jobs are claimed in the order in which they became ready, for jobs that
        passed a gate, and else in the order of their arrival. Paused lanes
        give no jobs. A worker whose lease has expired, or that is unknown, claims nothing.
        `known` limits claims to these task names, for a worker that found a task that it
        does not know; one that ends in `*` means all names that begin so. `resync` also returns, as claims, every job that is running under
        this worker, because the previous reply was lost.
        """
        ...
