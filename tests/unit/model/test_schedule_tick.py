"""What a scheduler decides about a schedule that is due, without a store."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from durio.errors import InvalidSchedule
from durio.model.backfill import BackfillRecord, load_backfill, ticks_of
from durio.model.ids import id_text, uuid7
from durio.model.schedule import (
    LINK_BYTES_MAX,
    LINKS_BYTES_MAX,
    LIVE_MAX,
    TICKS_KEPT,
    Definition,
    Pause,
    ScheduleRecord,
    TickNote,
    TickRun,
    check_size,
    load_schedule,
    schedule_put,
)
from durio.model.schedule_change import new_record, with_manual_run
from durio.model.schedule_rule import EXCLUDED_MAX, Rule
from durio.model.schedule_tick import (
    COUNTED_MAX,
    LOOK_SECONDS,
    WAITING_MAX,
    Ended,
    SkippedTicks,
    TickDecision,
    decide,
    due_time,
    shown,
    with_run,
    without_run,
)
from durio.model.tick import TickPlace, tick_id, tick_of
from durio.ports.records import RECORD_BYTES_MAX

NOW = 1_800_000_000.0
OVERLAPS = ("skip", "queue_one", "queue_all", "cancel_previous", "allow")
LINK = {"task": "shop.work"}


def schedule(every: float = 60.0, **choices: Any) -> ScheduleRecord:
    """A schedule of one minute, made at NOW."""
    rule = {
        name: choices.pop(name)
        for name in ("cron", "at", "fixed_delay", "exclude", "end")
        if name in choices
    }
    if not {"cron", "at"} & rule.keys():
        rule["every"] = every
    definition = Definition(link=LINK, rule=Rule(**rule), **choices)
    return new_record(definition, NOW, is_manual=True)


def run(number: int, made_at: float = NOW) -> TickRun:
    return TickRun(id_text(uuid7(int(made_at * 1000), number, number)))


def fired(decision: TickDecision) -> list[float]:
    """Return the times of ticks that run, in seconds after NOW."""
    return [tick - NOW for tick in decision.fire]


def skipped(decision: TickDecision) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in decision.skipped:
        found[some.reason] = found.get(some.reason, 0) + some.ticks
    return found


# --- overlap, with a run in each state

LIVE, DONE, FAILED = "live", "done", "failed"
DECISIONS = {
    ("skip", LIVE): ([], [], 1),
    ("queue_one", LIVE): ([], [60], 0),
    ("queue_all", LIVE): ([], [60], 0),
    ("cancel_previous", LIVE): ([], [60], 0),
    ("allow", LIVE): ([60], [], 0),
}


@pytest.mark.parametrize("state", [LIVE, DONE, FAILED])
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_a_tick_after_a_run_in_each_state(overlap: Any, state: str) -> None:
    before = run(1)
    record = replace(schedule(overlap=overlap), live=(before,))
    ended = {} if state == LIVE else {before.id: Ended(NOW, state == FAILED)}
    decision = decide(record, NOW + 60, ended)
    fire, waiting, lost = DECISIONS.get((overlap, state), ([60], [], 0))
    assert fired(decision) == fire
    assert [tick - NOW for tick in decision.record.waiting] == waiting
    assert skipped(decision) == ({"overlap": lost} if lost else {})
    assert decision.record.live == ((before,) if state == LIVE else ())
    is_cancelled = (overlap, state) == ("cancel_previous", LIVE)
    assert decision.cancels == ((before,) if is_cancelled else ())
    assert decision.record.next_at == NOW + 120


def test_ticks_that_wait_are_bounded() -> None:
    record = replace(
        schedule(overlap="queue_all"),
        live=(run(1),),
        waiting=tuple(NOW - n for n in range(WAITING_MAX, 0, -1)),
    )
    decision = decide(record, NOW + 60, {})
    assert len(decision.record.waiting) == WAITING_MAX
    assert skipped(decision) == {"overlap": 1}


def test_ticks_that_wait_for_another_commit_are_bounded() -> None:
    """Plans may be so large that one commit has room for one of them."""
    waiting = tuple(NOW - n for n in range(WAITING_MAX, 0, -1))
    record = replace(schedule(overlap="allow"), waiting=waiting)
    decision = decide(record, NOW + 60, {})
    assert len(decision.fire) == WAITING_MAX
    assert skipped(decision) == {"overlap": 1}


def test_the_largest_schedule_fits_into_a_record() -> None:
    """With all that a schedule may have, and that it may gather."""
    link = {"task": "shop.work", "args": ["x" * (LINK_BYTES_MAX - 40)]}
    of_code = {"args": ["x" * (LINKS_BYTES_MAX - LINK_BYTES_MAX - 20)]}
    dates = tuple(f"2030-{n // 31 + 1:02}-{n % 31 + 1:02}" for n in range(EXCLUDED_MAX))
    text = ",".join(str(n) for n in range(60))
    rule = Rule(
        cron=f"{text} {text[:80]} * * * *",
        tz="America/Argentina/ComodRivadavia",
        start=NOW + 0.123456,
        end=NOW + 1.123456,
        exclude=dates,
    )
    definition = Definition(
        link=link,
        rule=rule,
        overlap="cancel_previous",
        catchup="none",
        catchup_window=NOW + 0.123456,
        catchup_max=1000,
        jitter=NOW + 0.123456,
        max_runs=10**9,
        pause_on_failure=True,
    )
    record = ScheduleRecord(
        definition=definition,
        created_at=NOW + 0.123456,
        code=replace(definition, link=of_code),
        version=10**14,
        pause=Pause("\u20ac" * 100, NOW + 0.123456, "\u20ac" * 200, is_undeclared=True),
        next_at=NOW + 0.123456,
        run_count=10**9,
        skipped_count=10**9,
        last_at=NOW + 0.123456,
        ticks=tuple(TickNote(NOW + 0.123456, run(n)) for n in range(TICKS_KEPT)),
        live=tuple(run(n)._replace(is_plan=True) for n in range(LIVE_MAX)),
        waiting=tuple(NOW + n + 0.123456 for n in range(WAITING_MAX)),
    )
    check_size(record, "s")
    put = schedule_put("shop", "s", record, 1, NOW)
    assert put.body is not None
    assert 0.9 * RECORD_BYTES_MAX < len(put.body) <= RECORD_BYTES_MAX


def test_the_code_is_stored_without_what_it_shares() -> None:
    record = new_record(schedule().definition, NOW, is_manual=False)
    assert record.code is not None
    stored = schedule_put("shop", "s", record, 1, NOW).body or b""
    assert stored.count(b"shop.work") == 1
    assert load_schedule(stored, "s") == record
    other = replace(record, code=replace(record.code, link={"task": "shop.other"}))
    stored = schedule_put("shop", "s", other, 1, NOW).body or b""
    assert load_schedule(stored, "s") == other
    check_size(record, "s")
    large = {"task": "shop.work", "args": ["x" * LINKS_BYTES_MAX]}
    with pytest.raises(InvalidSchedule, match=r"'s' has 20 bytes .* declares 28,"):
        check_size(replace(record, code=replace(record.code, link=large)), "s")


# --- a failed run


@pytest.mark.parametrize("fixed_delay", [True, False])
def test_a_failed_run_skips_what_is_due(*, fixed_delay: bool) -> None:
    record = schedule(pause_on_failure=True, fixed_delay=fixed_delay)
    record = replace(record, live=(run(1),))
    ended = {run(1).id: Ended(NOW, is_failed=True)}
    early = decide(record, NOW + 59, ended)
    assert (early.paused, early.skipped) == ("failure", ())
    assert early.record.next_at == NOW + 60
    late = decide(record, NOW + 200, ended)
    assert (late.paused, late.late_seconds) == ("failure", 140)
    count = 1 if fixed_delay else len((60, 120, 180))
    assert skipped(late) == {"paused": count}
    assert late.record.skipped_count == count
    assert late.record.next_at == (None if fixed_delay else NOW + 240)


# --- runs by people


def test_a_run_by_people_counts_for_max_runs() -> None:
    free = schedule()
    assert with_manual_run(free, NOW, run(1)).record.next_at == NOW + 60
    three = schedule(max_runs=3, overlap="queue_all")
    first = with_manual_run(three, NOW, run(1)).record
    assert (first.run_count, first.next_at) == (1, NOW + 60)
    waiting = replace(first, waiting=(NOW + 60, NOW + 120), next_at=None)
    change = with_manual_run(waiting, NOW + 130, run(2))
    second = change.record
    assert (second.waiting, second.next_at) == ((NOW + 60,), None)
    over = SkippedTicks("max_runs", NOW + 120, NOW + 120, 1)
    assert change.skipped == (over,)
    last = with_manual_run(second, NOW + 140, run(3)).record
    assert (last.run_count, last.waiting, last.skipped_count) == (3, (), 2)


def test_times_are_shown_in_utc() -> None:
    assert shown(NOW) == "2027-01-15T08:00:00+00:00"
    assert shown(1e300) == "1e+300"


def test_only_the_newest_tick_waits_for_a_cancelled_run() -> None:
    record = replace(
        schedule(overlap="cancel_previous"), live=(run(1),), waiting=(NOW,)
    )
    decision = decide(record, NOW + 60, {})
    assert decision.record.waiting == (NOW + 60,)
    assert skipped(decision) == {"overlap": 1}
    ended = {run(1).id: Ended(NOW + 61)}
    assert fired(decide(decision.record, NOW + 61, ended)) == [60]


# --- catch-up, against a plain count of the ticks

RULES: list[dict[str, Any]] = [
    {"every": 60.0},
    {"every": 0.1},
    {"every": 7.7, "end": NOW + 300},
    {"cron": "*/2 * * * *"},
    {"cron": "*/20 * * * * *", "end": NOW + 600},
    {"every": 3600.0, "exclude": ("2027-01-15", "2027-01-17")},
    {"cron": "0 */3 * * *", "exclude": ("2027-01-16",)},
    {"at": NOW + 5},
]


@settings(max_examples=100)
@given(
    st.sampled_from(RULES),
    st.sampled_from(["none", "latest", "all"]),
    st.integers(1, 20),
    st.sampled_from([0.0, 30.0, 90.0, 3600.0, 86400.0]),
    st.one_of(st.floats(0, 400), st.floats(0, 4 * 86400)),
)
def test_catchup_is_what_a_plain_count_gives(
    rule: dict[str, Any], catchup: Any, most: int, window: float, late: float
) -> None:
    record = schedule(
        **rule,
        overlap="allow",
        catchup=catchup,
        catchup_max=most,
        catchup_window=window,
    )
    first = record.next_at
    assert first is not None
    if record.definition.rule.every == 0.1:
        late = min(late, 40)
    now = first + late
    ticks, tick = list[float](), record.next_at
    while tick is not None and tick <= now:
        ticks.append(tick)
        tick = record.definition.rule.after(tick)
    oldest = now - (60.0 if catchup == "none" else max(window, 60.0))
    last = ticks[-most if catchup == "all" else -1 :]
    wanted = [each for each in last if each >= oldest]
    decision = decide(record, now, {})
    assert list(decision.fire) == wanted
    is_counted = record.definition.rule.every is None
    count = min(len(ticks), COUNTED_MAX) if is_counted else len(ticks)
    assert decision.record.skipped_count == count - len(wanted)
    assert decision.record.next_at == tick
    assert decision.late_seconds == now - first
    for some in decision.skipped:
        lost = [each for each in ticks if each not in set(wanted)]
        assert (some.first_at, some.last_at) == (lost[0], lost[-1])


def test_ticks_of_years_are_counted_to_a_bound() -> None:
    record = schedule(cron="* * * * *")
    decision = decide(record, NOW + 5 * 365 * 86400.0, {})
    assert len(decision.fire) == 1
    assert skipped(decision) == {"catchup": COUNTED_MAX - 1}
    assert decision.skipped[0].is_least
    exact = schedule(cron="* * * * *")
    decision = decide(exact, NOW + COUNTED_MAX * 60.0 + 59.0, {})
    assert skipped(decision) == {"catchup": COUNTED_MAX - 1}
    assert not decision.skipped[0].is_least
    divided = decide(schedule(), NOW + 5 * 365 * 86400.0, {})
    assert not divided.skipped[0].is_least


# --- what follows from a run


def test_a_fixed_delay_waits_for_the_end_of_its_run() -> None:
    record = schedule(fixed_delay=True)
    first = decide(record, NOW + 60, {})
    assert (fired(first), first.record.next_at) == ([60], None)
    going = with_run(first.record, NOW + 60, run(1))
    look = decide(going, NOW + 61, {})
    assert (look.fire, look.record.next_at) == ((), None)
    ended = decide(going, NOW + 90, {run(1).id: Ended(NOW + 85)})
    assert (ended.fire, ended.record.next_at) == ((), NOW + 145)
    late = decide(going, NOW + 900, {run(1).id: Ended(NOW + 85)})
    assert (fired(late), late.late_seconds) == ([145], 755)


def test_a_tick_of_a_fixed_delay_that_overlaps() -> None:
    """A run by people goes on: the tick is skipped, and the delay counts from its end."""
    record = replace(schedule(fixed_delay=True), live=(run(1),))
    decision = decide(record, NOW + 60, {})
    assert skipped(decision) == {"overlap": 1}
    assert decision.record.next_at is None
    assert not decision.record.is_over
    after = decide(decision.record, NOW + 70, {run(1).id: Ended(NOW + 65)})
    assert after.record.next_at == NOW + 125


def test_a_tick_of_a_fixed_delay_that_waited() -> None:
    """The delay counts from the end of its own run, not of the run before."""
    record = replace(schedule(fixed_delay=True, overlap="queue_one"), live=(run(1),))
    waits = decide(record, NOW + 60, {}).record
    assert (waits.waiting, waits.next_at) == ((NOW + 60,), None)
    decision = decide(waits, NOW + 70, {run(1).id: Ended(NOW + 70)})
    assert (fired(decision), decision.record.next_at) == ([60], None)


@pytest.mark.parametrize(("left", "fire", "over"), [(3, 3, 0), (2, 2, 1), (0, 0, 3)])
def test_max_runs(left: int, fire: int, over: int) -> None:
    record = replace(
        schedule(overlap="allow", catchup="all", max_runs=5), run_count=5 - left
    )
    decision = decide(record, NOW + 180, {})
    assert len(decision.fire) == fire
    assert skipped(decision) == ({"max_runs": over} if over else {})
    assert decision.record.next_at is None


def test_max_runs_count_ticks_that_wait() -> None:
    record = schedule(overlap="queue_all", catchup="all", max_runs=2)
    decision = decide(record, NOW + 180, {})
    assert (fired(decision), len(decision.record.waiting)) == ([60], 1)
    assert skipped(decision) == {"max_runs": 1}
    assert not decision.record.is_over


def test_a_failed_run_pauses() -> None:
    record = replace(schedule(pause_on_failure=True), live=(run(1), run(2)))
    decision = decide(record, NOW + 60, {run(2).id: Ended(NOW, is_failed=True)})
    assert decision.paused == "failure"
    assert decision.record.pause == Pause("durio", NOW + 60, f"run {run(2).id} failed")
    assert decision.record.live == (run(1),)
    assert decision.fire == ()
    fine = decide(record, NOW + 60, {run(2).id: Ended(NOW)})
    assert fine.paused is None


def test_a_tick_that_cannot_be_made() -> None:
    """It is counted, and the schedule goes on, also where the next tick was not known."""
    plain = decide(schedule(), NOW + 60, {}).record
    after = without_run(plain, NOW + 60, "invalid", NOW + 60)
    assert (after.next_at, after.skipped_count, after.run_count) == (NOW + 120, 1, 0)
    for choices in ({"fixed_delay": True}, {"max_runs": 1}):
        record = decide(schedule(**choices), NOW + 60, {}).record
        assert record.next_at is None
        after = without_run(record, NOW + 60, "queue_closed", NOW + 60)
        assert after.next_at == NOW + 120
    once = decide(schedule(at=NOW + 5), NOW + 60, {}).record
    assert without_run(once, NOW + 5, "queue_closed", NOW + 60).is_over


def test_runs_are_watched_only_if_it_matters() -> None:
    assert with_run(schedule(overlap="allow"), NOW, run(1)).live == ()
    for choices in (
        {"overlap": "skip"},
        {"overlap": "allow", "pause_on_failure": True},
        {"overlap": "allow", "fixed_delay": True},
    ):
        record = with_run(schedule(**choices), NOW, run(1))
        assert record.live == (run(1),)
        assert (record.run_count, record.last_at) == (1, NOW)


def test_the_newest_runs_and_ticks_are_kept() -> None:
    record = schedule()
    for number in range(LIVE_MAX + 5):
        record = with_run(record, NOW + number, run(number))
    assert record.live == tuple(run(n) for n in range(5, LIVE_MAX + 5))
    assert [note.due_at - NOW for note in record.ticks] == list(
        range(LIVE_MAX - 5, LIVE_MAX + 5)
    )


# --- when the record is due again


def test_a_record_is_due_at_its_next_tick() -> None:
    assert due_time(schedule(), NOW) == NOW + 60
    assert due_time(replace(schedule(), next_at=None), NOW) is None


def test_a_record_is_due_to_look_at_a_run() -> None:
    """Soon after the begin of the run, then less often, and not after the next tick."""
    waits = replace(schedule(overlap="queue_all"), live=(run(1),), waiting=(NOW,))
    assert due_time(waits, NOW) == NOW + 0.1
    assert due_time(waits, NOW + 1) == NOW + 1.5
    assert due_time(waits, NOW + 30) == NOW + 30 + LOOK_SECONDS
    assert due_time(waits, NOW + 59.9) == NOW + 60
    over = replace(waits, next_at=None)
    assert due_time(over, NOW + 30) == NOW + 30 + LOOK_SECONDS
    assert due_time(replace(over, live=()), NOW) == NOW + 0.1


def test_a_fixed_delay_is_looked_at_as_often_as_it_is_long() -> None:
    for every, pause in ((0.2, 0.2), (60.0, LOOK_SECONDS)):
        record = schedule(every, fixed_delay=True)
        going = replace(record, next_at=None, live=(run(1),))
        assert due_time(going, NOW) == NOW + pause


def test_ticks_that_wait_for_another_commit_are_due_now() -> None:
    record = replace(schedule(overlap="allow"), waiting=(NOW,))
    assert due_time(record, NOW) == NOW


# --- storage


def test_a_paused_or_ended_schedule_is_not_due() -> None:
    record = schedule()
    assert schedule_put("shop", "s", record, 3, NOW)[3:5] == (3, NOW)
    paused = replace(record, pause=Pause("ann", NOW))
    assert schedule_put("shop", "s", paused, 3, NOW).due_at is None
    ended = replace(record, next_at=None)
    assert schedule_put("shop", "s", ended, 3, NOW).due_at is None


def test_a_record_is_read_as_it_was_written() -> None:
    record = with_run(schedule(overlap="queue_all"), NOW, run(1))
    record = replace(record, pause=Pause("ann", NOW, "why"), waiting=(NOW + 1,))
    body = msgspec.json.encode(record)
    assert load_schedule(body, "s") == record
    assert (record.origin, replace(record, is_manual=False).origin) == (
        "manual",
        "code",
    )


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b"[" * 100_000])
def test_a_damaged_record(body: bytes) -> None:
    with pytest.raises(
        InvalidSchedule, match="the record of the schedule 's' is damaged"
    ):
        load_schedule(body, "s")
    with pytest.raises(
        InvalidSchedule, match="the record of the backfill b is damaged"
    ):
        load_backfill(body, "b")


def test_a_backfill_with_a_rule_of_another_version() -> None:
    record = BackfillRecord(
        schedule="s",
        link=LINK,
        rule=Rule(cron="0 0 ? * *"),
        next_at=NOW,
        until=NOW + 1,
        at_a_time=1,
        total=1,
        by="ann",
        created_at=NOW,
    )
    body = msgspec.json.encode(record)
    with pytest.raises(InvalidSchedule, match=r"backfill b is damaged.*field 3"):
        load_backfill(body, "b")
    fine = replace(record, rule=Rule(every=5.0))
    assert load_backfill(msgspec.json.encode(fine), "b") == fine


def test_the_ticks_of_a_backfill() -> None:
    rule = Rule(every=60.0, anchor=NOW)
    assert ticks_of(rule, NOW, NOW + 180, 9) == [NOW, NOW + 60, NOW + 120]
    assert ticks_of(rule, NOW, NOW + 180, 2) == [NOW, NOW + 60]
    assert ticks_of(Rule(at=NOW), NOW, NOW + 180, 9) == [NOW]


def test_ids_of_ticks() -> None:
    """The present is their time; the rest follows from schedule, due time and backfill."""
    places = [
        TickPlace("a", NOW),
        TickPlace("b", NOW),
        TickPlace("a", NOW + 0.1),
        TickPlace("a", NOW, "1"),
        TickPlace("a", NOW, "2"),
    ]
    ids = [tick_id("shop", place, 5) for place in places]
    assert len({one[6:] for one in ids}) == 5
    assert {one[:6] for one in ids} == {(5).to_bytes(6)}
    assert tick_id("shop", places[0], 9)[6:] == ids[0][6:]
    assert tick_id("bank", places[0], 5) != ids[0]


def test_the_tick_that_a_task_sees() -> None:
    assert tick_of(None) is None
    tick = tick_of(TickPlace("s", NOW, "backfill"))
    assert tick is not None
    assert (tick.schedule, tick.due_at.timestamp(), tick.is_backfill) == (
        "s",
        NOW,
        True,
    )


# --- many ticks, in any order of events


@settings(max_examples=100)
@given(
    st.sampled_from(OVERLAPS),
    st.sampled_from(["none", "latest", "all"]),
    st.one_of(st.none(), st.integers(1, 6)),
    st.lists(st.tuples(st.floats(0.1, 300.0), st.booleans()), max_size=25),
)
def test_every_tick_runs_is_skipped_or_waits(
    overlap: Any, catchup: Any, most: int | None, steps: list[tuple[float, bool]]
) -> None:
    """Never two runs at once, except with `allow`; never more than `max_runs`."""
    record = schedule(overlap=overlap, catchup=catchup, max_runs=most)
    now, number = NOW, 0
    runs, seen = dict[float, TickRun](), list[float]()
    for seconds, does_end in steps:
        now += seconds
        ended = {one.id: Ended(now) for one in record.live} if does_end else {}
        decision = decide(record, now, ended)
        record = decision.record
        for tick in decision.fire:
            number += 1
            assert tick not in runs
            runs[tick] = run(number, now)
            record = with_run(record, tick, runs[tick])
        seen += decision.fire
        assert len(record.live) <= 1 or overlap == "allow"
    if overlap != "cancel_previous":
        assert seen == sorted(seen), "in the order of their times"
    assert record.run_count == len(runs) <= (most or len(runs))
    handled = record.run_count + record.skipped_count + len(record.waiting)
    if record.next_at is not None:
        assert handled == (record.next_at - NOW) // 60 - 1
