"""The place of a job in its plan, as it is stored with the options of the job."""

from typing import Literal, NamedTuple


class Input(NamedTuple):
    """What a worker reads from a log before it calls the task, as the first argument."""

    kind: Literal["one", "list", "collected"]
    log: str | None = None  # None: an empty list
    members: int = 1  # number of entries, by tag


class PlanPlace(NamedTuple):
    """Which node of which plan a job is."""

    plan: str  # id of the plan
    node: int  # number of the node
    input: Input | None = None  # None: the call has only its own arguments
    group: int | None = None  # number of its group, if it was added to one
