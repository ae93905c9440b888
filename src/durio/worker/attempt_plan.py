"""What a running attempt asks of its plan: `ctx.replace(plan)` and `ctx.add(signature)`."""

from collections.abc import Callable
from typing import Any, NoReturn, final

from durio.model.errors import InvalidPlan, UsageError
from durio.model.outcome import Outcome
from durio.model.plan_change import (
    AddedNode,
    PlanChange,
    PreparedPlan,
    replaced_result,
)
from durio.ports.plan_maker import PlanMaker

ADDED_MAX = 500  # members that one job adds: all are stored with its end


@final
class Replacement:
    """The value of `ctx.replace(plan)`: the task returns it."""

    __slots__ = ("prepared",)

    def __init__(self, prepared: PreparedPlan) -> None:
        self.prepared = prepared

    def __await__(self) -> NoReturn:
        raise UsageError(
            "the task awaits ctx.replace(), but the plan starts when the job has ended",
            cure="Write `return ctx.replace(plan)`, without await.",
        )


class AttemptPlan:
    """Collects the changes of one attempt; they are stored with its end."""

    def __init__(self, maker: PlanMaker, *, has_plan: bool) -> None:
        self._maker = maker
        self._has_plan = has_plan
        self._replacement: Replacement | None = None
        self._added: list[AddedNode] = []

    def replace(self, plan: object) -> Any:
        if self._replacement is not None:
            raise UsageError(
                "ctx.replace() was called twice in one attempt",
                cure="Make one plan of both: chain(...) or group(...).",
            )
        self._replacement = Replacement(self._maker.plan(plan))
        return self._replacement

    def add(self, members: tuple[object, ...]) -> None:
        if not self._has_plan:
            raise InvalidPlan(
                "ctx.add() adds members to the group of this job, but the job is in no "
                "plan",
                cure="Enqueue other jobs with task.enqueue(...).",
            )
        if len(self._added) + len(members) > ADDED_MAX:
            raise InvalidPlan(
                f"one job can add {ADDED_MAX} members at most, and this would be "
                f"{len(self._added) + len(members)}",
                cure="Add several jobs that each add a part, or return "
                "ctx.replace(group(...)).",
            )
        # A new list: a transaction that is rolled back returns to the old one.
        added = [self._maker.member(member) for member in members]
        self._added = [*self._added, *added]

    @property
    def replaced(self) -> bytes | None:
        """The result of a job whose place a plan takes; None: the job has its own."""
        plan = self._replacement
        return None if plan is None else replaced_result(plan.prepared.id)

    def result(self, value: object, encode: Callable[[Any], bytes]) -> bytes:
        """Return the result of an attempt that returned this value."""
        if self._replacement is not None and value is not self._replacement:
            raise UsageError(
                "the task called ctx.replace(), but returned another value",
                cure="Write `return ctx.replace(plan)`.",
            )
        return self.replaced or encode(value)

    def added_to(self, done: Outcome) -> Outcome:
        """Return the outcome with the changes of this attempt."""
        plan = self._replacement
        change = PlanChange(plan and plan.prepared, tuple(self._added))
        return done._replace(change=change, is_quiet=plan is not None)
