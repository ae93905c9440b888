"""The interface through which a running task makes plans; an App provides it."""

from typing import Protocol

from durio.model.plan_change import AddedNode, PreparedPlan


class PlanMaker(Protocol):
    """Encodes plans and signatures into jobs, without the store."""

    def plan(self, link: object) -> PreparedPlan:
        """Lay out and encode a plan or signature that takes the place of a job.

        Raises InvalidPlan, InvalidArguments or InvalidOption.
        """
        ...

    def member(self, link: object) -> AddedNode:
        """Encode a signature that becomes a member of a group.

        Raises InvalidPlan, InvalidArguments or InvalidOption.
        """
        ...
