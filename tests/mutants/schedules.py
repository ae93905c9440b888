"""Bugs about schedules: ticks that are lost, doubled, or made by an old rule."""

from tests.mutants.planting import Seeds, Tests, one_patch

TICKS = Tests("tests/simulation/test_schedules.py")
LATE = Tests("tests/simulation/test_late_schedulers.py")
CHANGES = Tests("tests/unit/model/test_schedule_change.py")

TICKER = "maintenance/ticker.py"
DECISION = "model/schedule_tick.py"

PLANTED = (
    one_patch(
        "tick_without_its_condition",
        "A scheduler writes a tick whatever has become of the schedule meanwhile.",
        TICKER,
        "puts = [self._put(one, now) for one in fired]",
        "puts = [self._put(one, now)._replace(if_version=None) for one in fired]",
        LATE,
    ),
    one_patch(
        "schedule_gets_an_old_version",
        "A schedule that is deleted and created again has the version of the old one.",
        "stores/sqlite/migrations/0003_records.sql",
        "version integer primary key autoincrement",
        "version integer primary key",
        LATE,
    ),
    one_patch(
        "catch_up_without_its_bound",
        "After downtime every late tick runs, not only the last `catchup_max` of them.",
        DECISION,
        "most = definition.catchup_max if ",
        "most = 10**9 if ",
        TICKS,
    ),
    one_patch(
        "catch_up_runs_the_oldest",
        "Of many late ticks the oldest ones run.",
        DECISION,
        "for tick in ticks[-most:] if tick",
        "for tick in ticks[:most] if tick",
        TICKS,
    ),
    one_patch(
        "overlap_is_ignored",
        "A tick makes its job while the run before it goes on.",
        DECISION,
        'if overlap == "allow" or not ticks:',
        "if overlap or not ticks:",
        Seeds(30),
    ),
    one_patch(
        "paused_schedule_stays_due",
        "A schedule that is paused goes on.",
        "model/schedule.py",
        "if record.pause is not None or record.is_over:",
        "if record.is_over:",
        TICKS,
    ),
    one_patch(
        "next_tick_counts_from_now",
        "A late tick makes all ticks after it late.",
        DECISION,
        "        due, skipped, next_at = due_ticks(record, next_at, now)\n",
        "        due, skipped, next_at = due_ticks(record, next_at, now)\n"
        "        next_at = now + rule.every if rule.every and next_at else next_at\n",
        TICKS,
    ),
    one_patch(
        "job_before_its_record",
        "A tick commits its job first, and the schedule after that.",
        TICKER,
        "effects = joined(*(one.effects for one in fired), Effects(puts=puts))",
        "for one in fired:\n"
        "            if one.made:\n"
        "                await self.store.commit(one.effects, enters=True)\n"
        "        effects = Effects(puts=puts)",
        TICKS,
    ),
    one_patch(
        "change_overwrites_a_tick",
        "A change of a schedule is written whatever ticks were made meanwhile.",
        "client/schedule_store.py",
        "answer = await store.commit(Effects(puts=[put]), note=note)",
        "put = put._replace(if_version=None)\n"
        "        answer = await store.commit(Effects(puts=[put]), note=note)",
        TICKS,
    ),
    one_patch(
        "late_deletion_hits_another_schedule",
        "A deletion that arrives late deletes a schedule that was created after it.",
        "client/schedules.py",
        "put = Put(kind, name, None, if_version=found_now[0].version)",
        "put = Put(kind, name, None)",
        LATE,
    ),
    one_patch(
        "changed_rule_keeps_its_next_tick",
        "The first tick after a change is that of the rule before.",
        "model/schedule_change.py",
        "return change._replace(record=replace(changed, next_at=tick_after(changed, now)))",
        "kept = stored.next_at or tick_after(changed, now)\n"
        "    return change._replace(record=replace(changed, next_at=kept))",
        TICKS,
    ),
    one_patch(
        "resume_makes_up_for_the_pause",
        "The ticks of a pause run when the schedule is resumed.",
        "model/schedule_change.py",
        "if active.next_at is not None and active.next_at > now:",
        "if active.next_at is not None:",
        TICKS,
    ),
    one_patch(
        "late_ticks_vanish_in_a_change",
        "Ticks that no scheduler has handled before a change are not counted.",
        "model/schedule_change.py",
        "late = late_ticks(stored, until, reason)",
        "late = late_ticks(stored, 0.0, reason)",
        CHANGES,
    ),
    one_patch(
        "delay_counts_from_the_start",
        "The interval of a fixed delay does not count from the end of the run.",
        DECISION,
        "last = max((ended[run.id].at for run in record.live), default=now)",
        "last = record.last_at or now",
        Seeds(30),
    ),
)
