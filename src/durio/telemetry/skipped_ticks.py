"""The events about skipped and late ticks: the leader and people report them alike."""

from durio.model.schedule_rule import MISSED_SECONDS, Rule
from durio.model.schedule_tick import SkippedTicks, shown
from durio.telemetry.emit import Emit


def report_skipped(emit: Emit, name: str, some: SkippedTicks) -> None:
    """Report ticks of a schedule that made no job; `at_least`: there were more."""
    emit(
        "schedule.skipped",
        schedule=name,
        reason=some.reason,
        count=some.ticks,
        first_at=shown(some.first_at),
        last_at=shown(some.last_at),
        at_least=some.is_least,
    )


def report_late(emit: Emit, name: str, rule: Rule, due_at: float, late: float) -> None:
    """Report a tick that was handled so many seconds after its time, if it was missed."""
    if late > MISSED_SECONDS and late > rule.missed_seconds(due_at):
        emit("schedule.missed", schedule=name, seconds=round(late, 1))
