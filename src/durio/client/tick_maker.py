"""Make the job or plan of a tick from the signature or plan that a schedule stores."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from durio.client.enqueue import JobBuilder, TaskDefaults
from durio.client.plan_enqueue import PlanClient, PlanWriter, with_handler_queues
from durio.client.task_by_name import TaskTarget, unknown_target
from durio.model.codec import encoder
from durio.model.effects import Effects
from durio.model.errors import DurioError, InvalidArguments, UnknownTask
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
from durio.ports.plan_protocol import require_plan_workers
from durio.ports.plan_writes import PlanWrites
from durio.ports.tick_maker import MadeTick


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
        value = link_from(link, (SignatureValue, PlanValue))
        if isinstance(value, SignatureValue):
            effects = Effects([await self._job(value, run_id)])
        else:
            effects = await self._plan(value, run_id)
        jobs = [of_tick(job, tick, delay) for job in effects.jobs]
        run = TickRun(id_text(run_id), isinstance(value, PlanValue))
        return MadeTick(run, effects._replace(jobs=jobs))

    async def _job(self, signature: SignatureValue, job_id: bytes) -> NewJob:
        target = await self._target(signature.task)
        builder = JobBuilder(
            TaskDefaults(target.task, target.queue, target.priority),
            signature.options,
            namespace=target.task.partition(".")[0],
            clock=self._client.clock,
            bounds=self._client.settings.payload,
        )
        payload = target.codec.encode(signature.args, signature.kwargs)
        return builder.job(payload, job_id=job_id)

    async def _plan(self, plan: PlanValue, plan_id: bytes) -> Effects:
        client = self._client
        await require_plan_workers(await client.store(), client.name, client.clock)
        targets = {s.task: await self._target(s.task) for s in signatures_of(plan)}
        link = with_handler_queues(plan, targets)
        layout = lay_out(link, plan_id, client.name)
        jobs = PlanWriter(client, link, plan_id, layout).jobs(targets)
        record = PlanRecord(
            shape=shape_of(link), nodes=len(jobs), created_at=client.clock.now()
        )
        return PlanWrites(client.name, plan_id, record, jobs, layout.go).at_once()

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
