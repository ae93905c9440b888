"""`app.schedules`: create, change, pause, run and delete schedules while workers run.

A schedule is one record. Every change is written on the condition that the record still has
the version that was read, so changes of people, of starting workers and of the leader never
overwrite each other.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Unpack

from msgspec.structs import replace

from durio.client.backfills import (
    Backfill,
    backfill_not_found,
    backfill_put,
    backfill_view,
    new_backfill,
    stored_backfill,
)
from durio.client.handle import Job
from durio.client.plan_job import PlanJob
from durio.client.schedule_link import (
    check_tasks,
    link_document,
    link_of,
    with_arguments,
)
from durio.client.schedule_run import SchedulesClient, run_schedule
from durio.client.schedule_store import (
    TRIES_MAX,
    Change,
    change_schedule,
    check_version,
    found,
    not_found,
    overtaken,
    read_schedule,
    records_of,
    store_declaration,
    store_now,
)
from durio.client.schedule_view import Schedule, schedule_view
from durio.model.backfill import backfills_kind
from durio.model.cron import CronRun
from durio.model.effects import Effects, Put
from durio.model.errors import InvalidSchedule, ScheduleConflict, UsageError
from durio.model.failure import storable
from durio.model.ids import id_text
from durio.model.plan import AnyLink
from durio.model.schedule import (
    Definition,
    Pause,
    ScheduleRecord,
    schedules_kind,
)
from durio.model.schedule_change import (
    ScheduleChange,
    merged,
    new_record,
    paused,
    redefined,
    resumed,
)
from durio.model.schedule_checks import (
    RULE_CHOICES,
    Choices,
    aware,
    check_choices,
    check_schedule_name,
    choices_of,
    definition_of,
)
from durio.model.schedule_tick import coming_runs
from durio.ports.control import AuditNote
from durio.ports.records import Record

PAGE = 500
DECLARED_MAX = 400  # schedules in the code of one App
REASON_CHARS_MAX = 200
PREVIEW_MAX = 1000


class Declared(NamedTuple):
    """A schedule that the code declares."""

    name: str
    definition: Definition
    place: str  # where in the code


class Schedules:
    """The schedules of an App: `app.schedules`.

    Without an event loop, run a call with `app.run_sync(app.schedules.get("digest"))`.
    """

    __module__ = "durio.schedules"

    def __init__(self, client: SchedulesClient) -> None:
        self._client = client
        self.declared: dict[str, Declared] = {}  # those in the code, by name
        self.by: str | None = None  # who acts, for the audit; None: the App's user
        self.audit_details = ""  # more for the audit, as JSON

    # --- in code

    def declare(
        self,
        name: str,  # unique in the App
        what: Any,  # a task, its name, a signature or a plan
        *,
        args: Sequence[Any] = (),  # positional arguments of each job
        kwargs: Mapping[str, Any] | None = None,  # arguments by name
        place: str = "app.schedules.declare",  # where the code says it, for messages
        **choices: Unpack[Choices],
    ) -> None:
        """Declare a schedule in code; workers store it when they start.

        Raises InvalidSchedule and InvalidArguments.
        """
        name = check_schedule_name(name)
        known = self.declared.get(name)
        if known is not None:
            raise InvalidSchedule(
                f"two schedules are named {name!r}: {known.place} and {place}",
                cure="Give one of them another name: name='...'.",
            )
        if len(self.declared) >= DECLARED_MAX:
            raise InvalidSchedule(
                f"the code declares more than {DECLARED_MAX} schedules",
                cure="Create them in the store: await app.schedules.create(...).",
            )
        link = link_of(self._client, what, args, kwargs)
        definition = definition_of(link_document(link), choices, None)
        self.declared[name] = Declared(name, definition, place)

    async def declare_at_start(self) -> None:
        """Write what the code declares, as a worker does once when it starts."""
        for name, declared in self.declared.items():
            try:
                await store_declaration(self._client, name, declared.definition)
            except UsageError as error:  # a damaged record stops no worker
                self._client.emit("schedule.failed", schedule=name, error=str(error))

    # --- reading

    async def get(self, name: str) -> Schedule:
        """Return a schedule; raises ScheduleNotFound if there is none."""
        stored = await read_schedule(self._client, name)
        return schedule_view(stored.record, await store_now(self._client))

    async def list(self, prefix: str = "") -> Sequence[Schedule]:
        """Return the schedules in the order of their names, or those that begin so."""
        kind, now = schedules_kind(self._client.name), await store_now(self._client)
        store, after = await self._client.store(), ""
        views: Any = []
        while True:
            page = await store.list_records(
                kind, prefix=prefix, after=after, limit=PAGE
            )
            views += [view for record in page if (view := self._view(record, now))]
            if len(page) < PAGE:
                return views
            after = page[-1].name

    def _view(self, record: Record, now: float) -> Schedule | None:
        """Return a schedule; report a damaged one, which must not hide the others."""
        try:
            return schedule_view(record, now)
        except InvalidSchedule as error:
            self._client.emit("schedule.failed", schedule=record.name, error=str(error))
            return None

    async def preview(
        self,
        name: str,  # of the schedule
        count: int = 10,  # at most 1,000
        after: datetime | None = None,  # default: now
    ) -> Sequence[CronRun]:
        """Return the next ticks of a schedule, in its time zone, without jitter.

        With `max_runs` only those that have a run left; of a fixed delay only the next.
        """
        stored = await read_schedule(self._client, name)
        client = self._client
        moment = await store_now(client) if after is None else aware("after", after)
        if type(count) is not int or not 1 <= count <= PREVIEW_MAX:
            raise InvalidSchedule(
                f"a preview cannot have {count!r:.40} ticks",
                cure=f"Give a number from 1 to {PREVIEW_MAX}.",
            )
        return coming_runs(stored.schedule, moment, count)

    # --- writing

    async def create(
        self,
        name: str,  # unique in the App
        what: Any,  # a task, its name, a signature or a plan
        *,
        args: Sequence[Any] = (),  # positional arguments of each job
        kwargs: Mapping[str, Any] | None = None,  # arguments by name
        **choices: Unpack[Choices],
    ) -> Schedule:
        """Store a new schedule; raises ScheduleConflict if there is one of this name.

        Raises InvalidSchedule, UnknownTask and InvalidArguments before anything is
        written.
        """
        name, now = check_schedule_name(name), await store_now(self._client)
        link = link_of(self._client, what, args, kwargs)
        definition = definition_of(link_document(link), choices, now)
        await check_tasks(self._client, link)

        def change(stored: ScheduleRecord | None) -> ScheduleChange:
            if stored is not None:
                raise ScheduleConflict(
                    f"there is a schedule {name!r} already",
                    cure="Use another name, or app.schedules.change(name, ...).",
                    name=name,
                )
            return ScheduleChange(new_record(definition, now, is_manual=True))

        return await self._changed(name, change, "create")

    async def change(
        self,
        name: str,  # of the schedule
        what: Any = None,  # another task, signature or plan; None: the same
        *,
        args: Sequence[Any] | None = None,  # other arguments; None: the same
        # Arguments by name. With `args` they replace all arguments that there were.
        kwargs: Mapping[str, Any] | None = None,
        version: int | None = None,  # only if the schedule still has this version
        **choices: Unpack[Choices],
    ) -> Schedule:
        """Change a schedule; what is not given stays as it is.

        A new rule (`cron`, `every` or `at`) replaces the one before. Raises
        ScheduleConflict if `version` is given and the schedule was changed since.
        """
        check_choices(choices)
        now, document = await store_now(self._client), None
        if what is not None or args is not None or kwargs is not None:
            link = await self._other_link(name, what, args, kwargs)
            await check_tasks(self._client, link)
            document = link_document(link)

        def change(stored: ScheduleRecord | None) -> ScheduleChange:
            known = found(stored, name)
            given = merged(choices_of(known.definition), dict(choices))
            link = document or known.definition.link
            is_new_rule = not choices.keys().isdisjoint(RULE_CHOICES)
            definition = definition_of(link, given, now if is_new_rule else None)
            return redefined(replace(known, is_manual=True), definition, now)

        return await self._changed(name, change, "change", version)

    async def _other_link(
        self,
        name: str,
        what: Any,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
    ) -> AnyLink:
        """Return the new task and arguments; without a task, the same with its options."""
        if what is not None:
            return link_of(self._client, what, args, kwargs)
        stored = (await read_schedule(self._client, name)).schedule.definition.link
        return with_arguments(self._client, name, stored, args, kwargs)

    async def pause(self, name: str, reason: str = "") -> Schedule:
        """Stop a schedule; ticks meanwhile are not made up for when it is resumed."""
        why = storable(str(reason), REASON_CHARS_MAX)
        by, now = self._acting_user(), await store_now(self._client)

        def change(stored: ScheduleRecord | None) -> ScheduleChange:
            return paused(found(stored, name), Pause(by, now, why))

        return await self._changed(name, change, f"pause: {why}" if why else "pause")

    async def resume(self, name: str) -> Schedule:
        """Let a paused schedule go on, from its next tick after now.

        One that was paused because no code declares it any more is `manual` from then on.
        """
        now = await store_now(self._client)

        def change(stored: ScheduleRecord | None) -> ScheduleChange:
            known = found(stored, name)
            if known.pause is not None and known.pause.is_undeclared:
                known = replace(known, is_manual=True)  # else it is paused again
            return resumed(known, now)

        return await self._changed(name, change, "resume")

    async def reset(self, name: str) -> Schedule:
        """Give a schedule that people changed back to the code that declares it."""
        now = await store_now(self._client)

        def change(stored: ScheduleRecord | None) -> ScheduleChange:
            known = found(stored, name)
            if known.code is None:
                raise InvalidSchedule(
                    f"no code declares the schedule {name!r}",
                    cure="Change it with app.schedules.change, or delete it.",
                )
            return redefined(replace(known, is_manual=False), known.code, now)

        return await self._changed(name, change, "reset")

    async def run(self, name: str, *, force: bool = False) -> Job[Any] | PlanJob[Any]:
        """Make one job now, beside the rule; it counts for overlap.

        Raises ScheduleConflict while a run goes on, unless the schedule allows overlap or
        `force` is given.
        """
        note = self._note("run", name)
        return await run_schedule(self._client, name, note, force=force)

    async def delete(
        self,
        name: str,  # of the schedule
        *,
        version: int | None = None,  # only if the schedule still has this version
    ) -> None:
        """Delete a schedule; its jobs stay. Raises ScheduleNotFound if there is none.

        Raises ScheduleConflict if `version` is given and the schedule was changed since.
        """
        store, kind = await self._client.store(), schedules_kind(self._client.name)
        note = self._note("delete", name)
        for _ in range(TRIES_MAX):
            found_now = await records_of(self._client, name)
            if not found_now:
                raise not_found(name)
            if version is not None:
                await check_version(self._client, found_now[0], version)
            put = Put(kind, name, None, if_version=found_now[0].version)
            if (await store.commit(Effects(puts=[put]), note=note)).conflict is None:
                return
        raise overtaken(name)

    async def backfill(
        self,
        name: str,  # of the schedule
        start: datetime,  # the first tick is not before this time
        end: datetime,  # the last tick is before this time, which is past
        *,
        at_a_time: int = 10,  # most jobs of the backfill that run at the same time
        dry_run: bool = False,  # only return how many ticks there are
    ) -> Backfill:
        """Make the ticks of a time in the past again, whether they ran or not.

        At most 10,000 ticks. Each makes one job, with `ctx.tick.is_backfill`.
        """
        client, now = self._client, await store_now(self._client)
        _, stored = await read_schedule(client, name)
        by = self._acting_user()
        record = new_backfill(stored, name, start, end, at_a_time, by, now)
        if dry_run:
            return backfill_view("", record)
        backfill = id_text(client.clock.new_id())
        put = backfill_put(client.name, backfill, record)
        note = self._note(f"backfill {record.total} ticks", name)
        await (await client.store()).commit(Effects(puts=[put]), note=note)
        return backfill_view(backfill, record)

    async def backfills(self) -> Sequence[Backfill]:
        """Return the backfills of the last seven days, and those that go on."""
        store, kind = await self._client.store(), backfills_kind(self._client.name)
        records = await store.list_records(kind, limit=PAGE)
        return [stored_backfill(record) for record in records]

    async def cancel_backfill(self, backfill: str) -> None:
        """Make no more jobs of a backfill; those that are made go on."""
        store, kind = await self._client.store(), backfills_kind(self._client.name)
        if type(backfill) is not str or not await store.records(kind, [backfill]):
            raise backfill_not_found(backfill)
        effects = Effects(puts=[Put(kind, backfill, None)])
        note = self._note("cancel", backfill, "backfill")
        await store.commit(effects, note=note)

    # --- parts

    async def _changed(
        self, name: str, change: Change, verb: str, version: int | None = None
    ) -> Schedule:
        note = self._note(verb, name)
        return await change_schedule(self._client, name, change, note, version)

    def _note(self, verb: str, name: str, what: str = "schedule") -> AuditNote:
        who = self._acting_user()
        target = f"{what} {name}"
        return AuditNote(self._client.name, who, verb, target, self.audit_details)

    def _acting_user(self) -> str:
        return self.by or self._client.acting_user()
