"""Enqueue a job for an operator: the job and its line of the audit are one commit.

The arguments are checked against the code of the task, or what workers have published.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from durio.client.backpressure import HINT_SECONDS, queue_closed, queue_full
from durio.client.enqueue import JobBuilder, defaults_of, refuse_conflicts
from durio.client.job_view import arguments_of, options_of
from durio.client.plan_enqueue import PlanClient
from durio.client.task_by_name import TaskTarget
from durio.model.codec import encoder
from durio.model.effects import Effects
from durio.model.errors import InvariantBroken, KeyConflict, UsageError, WrongState
from durio.model.ids import id_text
from durio.model.job import PRIORITY_MAX, NewJob, StoredJob
from durio.model.names import check_name, queue_of, task_name
from durio.model.options import NO_OPTIONS, NO_ROW_OPTIONS, CallOptions, RowOptions
from durio.ports.conflicts import Conflict
from durio.ports.control import AuditNote
from durio.ports.enqueue import Enqueued
from durio.ports.handler import Handler
from durio.ports.worker_protocol import GATES_PROTOCOL, require_workers

Arguments = tuple[Sequence[Any], Mapping[str, Any]]


async def enqueue_audited(
    client: PlanClient,
    task: str,
    arguments: Arguments,
    options: CallOptions,
    note: AuditNote,
) -> Enqueued:
    """Store one job with an audit line; raises as an enqueue by name does.

    A full queue refuses at once. A job with the same key and arguments is no error.
    """
    job = await new_job(client, task, arguments, options)
    note.target = f"{id_text(job.id)} {job.task}"
    answer = await commit_job(client, job, note)
    refuse_conflicts([job], [answer])
    return answer


async def duplicate_audited(
    client: PlanClient, job: StoredJob, note: AuditNote
) -> Enqueued:
    """Store a job with the same task, arguments, queue, priority and meta.

    It has no key, and belongs to no plan and no schedule. It enters a full queue too, as a
    retry does.
    """
    row = options_of(job)
    if row.is_chunk:
        raise WrongState(
            f"job {id_text(job.id)} has the arguments of many calls, as a part of its plan",
            cure="Retry it, or enqueue its calls one by one.",
        )
    if row.plan is not None and row.plan.input is not None:
        raise WrongState(
            f"job {id_text(job.id)} gets its first argument from its plan",
            cure="Retry it, or enqueue the task with all its arguments.",
        )
    options = NO_OPTIONS.with_changes(
        {"queue": queue_of(job.lane), "priority": PRIORITY_MAX - job.rank}
    )
    made = await new_job(client, job.task, arguments_of(job), options, checks=False)
    kept = RowOptions(
        retry=row.retry,
        timeout=row.timeout,
        meta=row.meta,
        keep=row.keep,
        result_seconds=row.result_seconds,
    )
    opts = None if kept == NO_ROW_OPTIONS else encoder.encode(kept)
    note.target = f"{id_text(job.id)} as {id_text(made.id)}"
    copy = made._replace(payload=job.payload, opts=opts, expires_at=None)
    return await commit_job(client, copy, note, enters=True)


async def new_job(
    client: PlanClient,
    task: str,
    arguments: Arguments,
    options: CallOptions,
    *,
    checks: bool = True,
) -> NewJob:
    """Return a job of a task by name; with `checks` its arguments must fit."""
    if client.manual_limits.is_due:
        await client.refresh_limits()
    args, kwargs = arguments
    target = await client.find_task(task_name(client.name, check_name("task", task)))
    if client.routes is not None:
        target = client.routes.target(target, options, args, kwargs)
    builder = builder_of(client, target, options)
    payload = target.codec.encode(args, kwargs) if checks else b"[[],{}]"
    gates = ()
    if builder.has_gates:
        gates = builder.gates(target, args, kwargs)
        store = await client.store()
        await require_workers(store, client.name, client.clock, GATES_PROTOCOL)
    key_payload = payload
    if builder.has_key:
        key_payload = target.codec.canonical(args, kwargs, payload)
    return builder.job(payload, key_payload, gates=gates)


def builder_of(
    client: PlanClient, target: Handler | TaskTarget, options: CallOptions
) -> JobBuilder:
    return JobBuilder(
        defaults_of(target),
        options,
        namespace=target.task.partition(".")[0],
        clock=client.clock,
        bounds=client.settings.payload,
        limits=client.manual_limits,
    )


async def commit_job(
    client: PlanClient, job: NewJob, note: AuditNote, *, enters: bool = False
) -> Enqueued:
    store = await client.store()
    answer = await store.commit(Effects(jobs=[job]), enters=enters, note=note)
    if answer.conflict is not None:
        raise refusal_of(client, job, answer.conflict)
    return answer.enqueued[0]


def refusal_of(client: PlanClient, job: NewJob, conflict: Conflict) -> Exception:
    if conflict.full is not None:
        if conflict.full.is_closed:
            return queue_closed(conflict.full)
        return queue_full(conflict.full, client.bounds, 0.0, HINT_SECONDS)
    if conflict.what == "key":
        return KeyConflict(
            f"{job.task}: its key belongs to job {conflict.name} with other arguments",
            cure="Use another key, or the same arguments.",
            id=conflict.name,
        )
    return InvariantBroken(f"a new job cannot meet the conflict {conflict.what}")


def check_one_key(header: str | None, key: str | None) -> str | None:
    """Return the key of a request, which may be in a header or in the body."""
    if header is not None and key is not None and header != key:
        raise UsageError(
            "Idempotency-Key and key are both given, and differ",
            cure="Give one of them.",
        )
    return key if header is None else header
