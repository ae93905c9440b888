"""Encode what a running task adds to its plan: a plan in its place, or members."""

import msgspec

from durio.client.plan_enqueue import (
    PlanClient,
    PlanWriter,
    with_handler_queues,
)
from durio.client.task_by_name import TaskTarget, unknown_target
from durio.model.errors import InvalidOption, InvalidPlan, UnknownTask
from durio.model.options import UNSET
from durio.model.plan import (
    AnyLink,
    PlanValue,
    SignatureValue,
    check_app_of_tasks,
    signatures_of,
)
from durio.model.plan_arguments import check_whole
from durio.model.plan_change import AddedNode, PreparedPlan, added_number
from durio.model.plan_checks import OF_THE_WHOLE_PLAN, not_a_member, two_apps
from durio.model.plan_layout import lay_out
from durio.model.plan_shape import shape_of
from durio.ports.handler import Handler, TaskHandlers


class PlanPreparer:
    """Makes plans inside a task of the App; it never reads the store."""

    def __init__(self, client: PlanClient, handlers: TaskHandlers) -> None:
        self._client = client
        self._handlers = handlers

    def plan(self, link: object) -> PreparedPlan:
        """Lay out and encode a plan or signature that takes the place of a job."""
        plan, targets = self._checked(link, "is the first node of the plan")
        client, plan_id = self._client, self._client.clock.new_id()
        layout = lay_out(plan, plan_id, client.name)
        jobs = PlanWriter(client, plan, plan_id, layout).jobs(targets)
        shape = msgspec.json.encode(shape_of(plan))
        return PreparedPlan(plan_id, jobs, shape, layout.go, client.clock.now())

    def member(self, link: object) -> AddedNode:
        """Encode a signature that becomes a member of a group."""
        if isinstance(link, PlanValue):
            raise InvalidPlan(
                "ctx.add takes signatures, and this is a plan",
                cure="Add a task that puts the plan in its place: ctx.replace(plan).",
            )
        place = "is added to a group, and no result is before it"
        signature, targets = self._checked(link, place)
        client, job_id = self._client, self._client.clock.new_id()
        # As the only node of a plan; the worker then gives it its place.
        layout = lay_out(signature, job_id, client.name)
        job = PlanWriter(client, signature, job_id, layout).jobs(targets)[0]
        shape = msgspec.json.encode(shape_of(signature))
        return AddedNode(added_number(job.id), job, shape)

    def _checked(
        self, link: object, place: str
    ) -> tuple[AnyLink, dict[str, Handler | TaskTarget]]:
        if not isinstance(link, SignatureValue | PlanValue):
            raise not_a_member(link)
        source = link.source
        if source is not None and source.client is not self._client:
            first = next((s.task for s in signatures_of(link)), "?")
            raise two_apps(first, f"{self._client.name}.*")
        check_app_of_tasks(link, self._client.name)
        options = link.defaults if isinstance(link, PlanValue) else link.options
        for name in OF_THE_WHOLE_PLAN if isinstance(link, PlanValue) else ("tx",):
            if getattr(options, name) not in {UNSET, None}:
                raise InvalidOption(
                    f"a plan in the place of a job cannot have its own {name}",
                    cure=f"Leave out {name}: it is stored with the end of the job.",
                )
        check_whole(link, place, cure="Give all its arguments to .s(...).")
        targets = {s.task: self._target(s) for s in signatures_of(link)}
        return with_handler_queues(link, targets, self._client.routes), targets

    def _target(self, signature: SignatureValue) -> Handler | TaskTarget:
        task = signature.task
        handler = self._handlers.find_target(task)
        if handler is not None:
            return handler
        if signature.options.queue is UNSET:
            raise UnknownTask(
                f"this worker has no code of the task {task!r}, so it does not know its "
                "queue",
                cure="Name the queue: app.named(...).options(queue='...').s(...).",
                task=task,
            )
        return unknown_target(task)
