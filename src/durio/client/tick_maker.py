"""Make the job or plan of a tick from the signature or plan that a schedule stores."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from durio.client.enqueue import JobBuilder, defaults_of
from durio.client.plan_enqueue import PlanClient, PlanWriter, with_handler_queues
from durio.client.task_by_name import TaskTarget, unknown_target
from durio.model.codec import encoder
from durio.model.effects import Effects
from durio.model.errors import DurioError, InvalidArguments, UnknownTask
from durio.model.gate import GateSpec
from durio.model.ids import id_text
from durio.model.job import NewJob
from durio.model.options import row_options
from durio.model.plan import PlanValue, SignatureValue, signatures_of
from durio.model.plan_document import link_from
from durio.model.plan_layout import lay_out
from durio.model.plan_record import PlanRecord
from durio.model.plan_shape import shape_of
from durio.model.schedule import TickRun
from durio.model.tick import TickPlace
from durio.ports.handler import Handler
from durio.ports.plan_writes import PlanWrites
from durio.ports.tick_maker import MadeTick
from durio.ports.worker_protocol import (
    GATES_PROTOCOL,
    protocol_of_plan,
    require_workers,
)


class ClientTickMaker:
    """Makes the jobs of ticks for one App."""

    def __init__(self, client: PlanClient) -> None:
        self._client = client

    async def make(
        self, link: Mapping[str, Any], tick: TickPlace, run_id: bytes, delay: float
    ) -> MadeTick:
        """Return the job or plan with this id, which starts after `delay` seconds."""
        try:
            return await self._made(link, tick, run_id, delay)
        except DurioError:
            raise
        except Exception as error:  # of a validator of the user's types
            raise InvalidArguments(
                f"a type refuses the arguments with {type(error).__name__}: {error}",
                cure="Compare the arguments of the schedule with the types of the task.",
            ) from error

    async def _made(
        self, link: Mapping[str, Any], tick: TickPlace, run_id: bytes, delay: float
    ) -> MadeTick:
        if self._client.manual_limits.is_due:
            await self._client.refresh_limits()
        value = link_from(link, (SignatureValue, PlanValue))
        if isinstance(value, SignatureValue):
            effects = Effects([await self._job(value, run_id)])
        else:
            effects = await self._plan(value, run_id)
        jobs = [of_tick(job, tick, delay) for job in effects.jobs]
        run = TickRun(id_text(run_id), isinstance(value, PlanValue))
        return MadeTick(run, effects._replace(jobs=jobs))

    async def gates_of_handler(self, signature: SignatureValue) -> tuple[GateSpec, ...]:
        """Return the gates of a job that handles the failure of a plan.

        It is stored in any case: without gates if they cannot be computed here.
        """
        target = await self._target(signature.task)
        try:
            builder = self._builder(target, signature)
            if not builder.has_gates:
                return ()
            is_following = not signature.is_immutable
            return builder.gates_of_signature(
                target, signature, is_following=is_following
            )
        except DurioError:
            return ()

    def _builder(
        self, target: Handler | TaskTarget, signature: SignatureValue
    ) -> JobBuilder:
        return JobBuilder(
            defaults_of(target),
            signature.options,
            namespace=target.task.partition(".")[0],
            clock=self._client.clock,
            bounds=self._client.settings.payload,
            limits=self._client.manual_limits,
        )

    async def _job(self, signature: SignatureValue, job_id: bytes) -> NewJob:
        target = await self._target(signature.task)
        if self._client.routes is not None:
            target = self._client.routes.of_signature(target, signature)
        builder = self._builder(target, signature)
        payload = target.codec.encode(signature.args, signature.kwargs)
        gates = ()
        if builder.has_gates:
            gates = builder.gates_of_signature(target, signature, is_following=False)
            await self._require(GATES_PROTOCOL)
        return builder.job(payload, job_id=job_id, gates=gates)

    async def _plan(self, plan: PlanValue, plan_id: bytes) -> Effects:
        client = self._client
        targets = {s.task: await self._target(s.task) for s in signatures_of(plan)}
        link = with_handler_queues(plan, targets, client.routes)
        layout = lay_out(link, plan_id, client.name)
        jobs = PlanWriter(client, link, plan_id, layout).jobs(targets)
        await self._require(protocol_of_plan(jobs))
        record = PlanRecord(
            shape=shape_of(link), nodes=len(jobs), created_at=client.clock.now()
        )
        return PlanWrites(client.name, plan_id, record, jobs, layout.go).at_once()

    async def _require(self, protocol: int) -> None:
        client, store = self._client, await self._client.store()
        await require_workers(store, client.name, client.clock, protocol)

    async def _target(self, task: str) -> Handler | TaskTarget:
        """Return what is known of the task; a job of an unknown task waits for a worker."""
        try:
            return await self._client.find_task(task)
        except UnknownTask:
            return unknown_target(task)


def of_tick(job: NewJob, tick: TickPlace, delay: float) -> NewJob:
    """Return a job that names its tick; what waits for other jobs is not delayed."""
    starts = 0.0 if job.wait is not None else delay
    options = replace(row_options(job.opts), tick=tick)
    return job._replace(
        opts=encoder.encode(options), delay_seconds=job.delay_seconds + starts
    )
