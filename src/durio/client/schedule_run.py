"""Run a schedule now: one job beside its rule."""

from typing import Any, Protocol

from durio.client.handle import Job, JobClient
from durio.client.plan_job import PlanJob
from durio.client.schedule_link import LinkClient
from durio.client.schedule_store import (
    TRIES_MAX,
    overtaken,
    read_schedule,
    report_change,
    store_now,
)
from durio.client.tick_maker import ClientTickMaker
from durio.model.errors import ScheduleConflict
from durio.model.schedule import schedule_put
from durio.model.schedule_change import with_manual_run
from durio.model.schedule_tick import due_time
from durio.model.tick import TickPlace
from durio.ports.control import AuditNote
from durio.ports.schedule_runs import ended_runs


class SchedulesClient(LinkClient, JobClient, Protocol):
    """The part of an App that schedules use."""


async def run_schedule(
    client: SchedulesClient, name: str, note: AuditNote, *, force: bool
) -> Job[Any] | PlanJob[Any]:
    """Make one job, and write the schedule that counts it, in one commit."""
    store = await client.store()
    for _ in range(TRIES_MAX):
        record, stored = await read_schedule(client, name)
        now = await store_now(client)
        ended = await ended_runs(store, client.name, stored.live, now)
        live = [run.id for run in stored.live if run.id not in ended]
        if live and not force and stored.definition.overlap != "allow":
            raise ScheduleConflict(
                f"run {live[0]} of the schedule {name!r} goes on",
                cure="Wait for its end, cancel it, or use force=True (--force).",
                name=name,
            )
        # Not the id of a tick: the schedule may have one at this time.
        place, run_id = TickPlace(name, now), client.clock.new_id()
        made = await ClientTickMaker(client).make(
            stored.definition.link, place, run_id, 0.0
        )
        change = with_manual_run(stored, now, made.run)
        after, due_at = change.record, due_time(change.record, now)
        put = schedule_put(client.name, name, after, record.version, due_at)
        effects = made.effects._replace(puts=[*made.effects.puts, put])
        conflict = (await store.commit(effects, enters=True, note=note)).conflict
        if conflict is None:
            report_change(client, name, stored, change)
            return (PlanJob if made.run.is_plan else Job)(client, run_id)
        if conflict.what != "record":
            raise ScheduleConflict(
                f"the job of the schedule {name!r} is refused: {conflict.what} "
                f"{conflict.name}",
                cure="See durio queues ls: a closed queue takes no jobs.",
                name=name,
            )
    raise overtaken(name)
