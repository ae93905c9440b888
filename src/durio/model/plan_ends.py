"""How the nodes of a plan ended, as values for the code of users.

They are arguments of tasks, so they are stored as JSON: an `Ok` as
`{"end": "ok", "value": 5}`, an `Err` as `{"end": "err", "type": ..., "message": ...,
"job": ...}`, and a `Collected` as a list of these.
"""

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Ok(msgspec.Struct, Generic[T_co], frozen=True, tag_field="end", tag="ok"):
    """A member of a group that succeeded."""

    __module__ = "durio.plans"

    value: T_co  # the result of the member


class Err(msgspec.Struct, frozen=True, tag_field="end", tag="err"):
    """A member of a group that failed."""

    __module__ = "durio.plans"

    type: str  # name of the exception's class; `JobCancelled` if it was cancelled
    message: str  # text of the exception
    job: str  # id of the job that failed


class Collected(tuple[Ok[T] | Err, ...]):
    """The ends of all members of a group with `on_error="collect"`, in written order.

    @app.task
    async def report(ends: Collected[int]) -> str:
        return f"{ends.succeeded} of {ends.total}"
    """

    __module__ = "durio.plans"
    __slots__ = ()

    @property
    def total(self) -> int:
        """The number of members."""
        return len(self)

    @property
    def succeeded(self) -> int:
        """The number of members that succeeded."""
        return sum(isinstance(end, Ok) for end in self)

    @property
    def failed(self) -> int:
        """The number of members that failed."""
        return len(self.failed_ids)

    @property
    def failed_ids(self) -> list[str]:
        """The ids of the jobs that failed, in written order."""
        return [end.job for end in self if isinstance(end, Err)]


class PlanFailure(msgspec.Struct, frozen=True, kw_only=True):
    """What an `on_error` handler gets: the job of a plan that failed, and its error."""

    __module__ = "durio.plans"

    plan: str  # id of the plan
    node: str  # id of the job that failed
    task: str  # full name of its task
    error_type: str  # name of the exception's class; `JobCancelled` if it was cancelled
    text: str  # text of the exception
    # Positional arguments that the job has of its own, as JSON values; most are stored by
    # name. The result before it is not among them, and a job of `chunks` has none.
    args: list[Any] = []
    kwargs: dict[str, Any] = {}  # arguments by name, as above
