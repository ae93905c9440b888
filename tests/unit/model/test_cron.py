"""Cron: what is refused and how, the keyword form, changes of the clock, previews."""

import copy
import math
import pickle  # noqa: TID251 - users may copy values so
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from durio.model.cron import Cron, CronRun
from durio.model.errors import InvalidSchedule

PARIS = ZoneInfo("Europe/Paris")
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)

# text | what the message says | what the cure says
WRONG_TEXTS = """
 | has 0 fields, not 5 or 6 | Write: minute, hour
* | has 1 field, not | as in '0 9 * * MON-FRI'
0 9 | has 2 fields, not | minute, hour
0 9 * | has 3 fields, not | minute, hour
0 9 * * | has 4 fields, not | minute, hour
0 0 9 * * * 2026 | has 7 fields, not | no field for the year
0 0 30 2 * | field 3 (day of month): '30' never occurs with month '2' | L is the last day
0 0 31 2,4,6 * | field 3 (day of month): '31' never occurs | Change the day
0 0 0 30-31 FEB * | field 4 (day of month): '30-31' never occurs with month 'FEB' | Change
0 0 */29 2 MON#5 | '*/29' never occurs with month '2' and day of week 'MON#5' | Change
60 * * * * | field 1 (minute): '60' is outside 0 to 59 | Give 0 to 59, a list
0 24 * * * | field 2 (hour): '24' is outside 0 to 23 | Give 0 to 23
0 0 0 * * | field 3 (day of month): '0' is outside 1 to 31 | Give 1 to 31
0 0 32 * * | field 3 (day of month): '32' is outside | Give 1 to 31
0 0 * 0 * | field 4 (month): '0' is outside 1 to 12 | Give 1 to 12 or JAN to DEC
0 0 * 13 * | field 4 (month): '13' is outside | JAN to DEC
0 0 * * 8 | field 5 (day of week): '8' is outside 0 to 7 | SUN to SAT
60 0 0 * * * | field 1 (second): '60' is outside 0 to 59 | Give 0 to 59
0 60 0 * * * | field 2 (minute): '60' is outside 0 to 59 | Give 0 to 59
0 0,25 * * * | field 2 (hour): '25' is outside | Give 0 to 23
0-99999999 * * * * | field 1 (minute): '0-99999999' is outside | Give 0 to 59
0 0 * JANUARY * | field 4 (month): 'JANUARY' is unknown | Did you mean 'JAN'?
0 0 * * MONDAY | field 5 (day of week): 'MONDAY' is unknown | Did you mean 'MON'?
0 0 * * MON-FRY | 'MON-FRY' has an unknown 'FRY' | Did you mean 'FRI'?
MON * * * * | field 1 (minute): 'MON' is unknown | Give 0 to 59
H * * * * | field 1 (minute): 'H' is unknown | Give 0 to 59
@every 5m | '@every 5m' is not a cron text | use every='5m'
@every | not a cron text | every='5m'
@reboot | '@reboot' is not a cron text | where your program starts
@dayly | '@dayly' is not a cron text | Did you mean '@daily'?
@daily 5 | '@daily 5' is not a cron text | Known are @yearly
0 0 15W * * | field 3 (day of month): '15W' is unknown | nearest weekday, is not supported
0 0 W * * | field 3 (day of month): 'W' is unknown | LW, the last one, is
0 0 ? * MON | field 3 (day of month): '?' cannot be read | in Quartz 1 is Sunday
0 0 * * ? | field 5 (day of week): '?' cannot be read | Write '*'
0 0 * * FRI-MON | field 5 (day of week): 'FRI-MON' goes backwards | FRI-SAT,SUN-MON
0 0 * * 5-1 | '5-1' goes backwards | Write 5-6,0-1
0 0 * * 7-2 | '7-2' goes backwards | Write 7-7,0-2
0 22-2 * * * | field 2 (hour): '22-2' goes backwards | Write 22-23,0-2
0 22-2/2 * * * | '22-2/2' goes backwards | Write 22-23,0-2
0 0 * NOV-FEB * | field 4 (month): 'NOV-FEB' goes backwards | NOV-DEC,JAN-FEB
5/0 * * * * | field 1 (minute): '5/0' has the step 0 | at least 1
*/0 * * * * | '*/0' has the step 0 | at least 1
*/90 * * * * | '*/90' has a step beyond 0-59: only 0 would match | every='90m'
0 */48 * * * | '*/48' has a step beyond 0-23 | every='48h'
50/15 * * * * | '50/15' has a step beyond 50-59: only 50 would match | Write 50
10-20/30 * * * * | '10-20/30' has a step beyond 10-20 | Write 10
0 0 1 */13 * | '*/13' has a step beyond 1-12 | Write 1.
0 0 * * */8 | '*/8' has a step beyond 0-6 | Write 0.
1,,2 * * * * | field 1 (minute): '1,,2' has an empty item | between two commas
1, * * * * | '1,' has an empty item | between two commas
5,* * * * * | field 1 (minute): '5,*' lists '*' among others | '*' alone
0 0 * * 1-5#2 | field 5 (day of week): '1-5#2' cannot be read | MON#2
0 0 * * MON#6 | 'MON#6' counts beyond the month | #1 to #5
0 0 * * MON#0 | 'MON#0' counts beyond the month | #1 to #5
0 0 * * DAY#1 | 'DAY#1' has an unknown 'DAY' | SUN to SAT
0 0 MON#1 * * | field 3 (day of month): 'MON#1' cannot be read | Give 1 to 31
0 0 L-3 * * | field 3 (day of month): 'L-3' has an unknown 'L' | no distance
0 0 L/2 * * | 'L/2' has an unknown 'L' | no step
0 0 * * L | field 5 (day of week): 'L' is unknown | Write 5L for the last Friday
0 0 * * 5L/2 | '5L/2' has an unknown '5L' | Write 5L
0 0 * * 8L | '8L' is outside 0 to 7 | SUN to SAT
0 L * * * | field 2 (hour): 'L' is unknown | Give 0 to 23
0 -1 * * * | field 2 (hour): '-1' cannot be read | Give 0 to 23
1.5 * * * * | '1.5' cannot be read | Give 0 to 59
1-5-7 * * * * | '1-5-7' cannot be read | Give 0 to 59
*/2/3 * * * * | '*/2/3' cannot be read | Give 0 to 59
*-5 * * * * | '*-5' cannot be read | Give 0 to 59
0 0 * * \u017fun | cannot be read | SUN to SAT
\u0663 * * * * | cannot be read | Give 0 to 59
TZ=Europe/Paris 0 9 * * * | begins with a setting, 'TZ=Europe/Paris' | tz='Europe/Paris'
"""
WRONG_ROWS = [
    [cell.strip() for cell in line.split(" | ")]
    for line in WRONG_TEXTS.splitlines()
    if line
]

ZONES = [
    *("Europe/Paris", "Europe/London", "Europe/Dublin", "Europe/Chisinau"),
    *("America/New_York", "America/Los_Angeles", "America/St_Johns", "America/Havana"),
    *("America/Santiago", "America/Asuncion", "Pacific/Easter", "Africa/Casablanca"),
    *("Africa/Cairo", "Asia/Beirut", "Asia/Jerusalem", "Asia/Gaza"),
    *("Australia/Sydney", "Australia/Lord_Howe", "Pacific/Chatham", "Antarctica/Troll"),
]


@pytest.mark.parametrize(("text", "problem", "cure"), WRONG_ROWS)
def test_a_wrong_text_points_at_its_field(text: str, problem: str, cure: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        Cron(text)
    assert problem in caught.value.what
    assert cure in caught.value.cure


def test_an_error_has_its_field_as_values() -> None:
    with pytest.raises(InvalidSchedule) as caught:
        Cron("0 25 * * *")
    assert caught.value.values == {"field": "hour", "value": "25"}


@pytest.mark.parametrize("text", [5, b"* * * * *", ["0"], 1.5])
def test_a_text_is_a_str(text: Any) -> None:
    with pytest.raises(InvalidSchedule, match=f"not {type(text).__name__}"):
        Cron(text)


def test_a_text_has_a_limit() -> None:
    Cron(f"0 0 1{',1' * 123} * *".rjust(256))
    with pytest.raises(InvalidSchedule, match="of 257 characters: at most 256"):
        Cron(" " * 257)


@pytest.mark.parametrize(
    ("tz", "problem", "cure"),
    [
        (
            "Europe/Pariss",
            "no time zone 'Europe/Pariss'",
            "Did you mean 'Europe/Paris'",
        ),
        ("europe/paris", "no time zone", "Did you mean 'Europe/Paris'"),
        ("Europe", "no time zone", "Did you mean 'Europe/"),
        *(
            (wrong, "no time zone", "tz='UTC'")
            for wrong in ("", "../x", "/etc", "a\0b")
        ),
        ("x" * 500, f"no time zone '{'x' * 80}'", "tz='UTC'"),
        ("local", "differs between machines", "tz='Europe/Paris'"),
        ("localtime", "differs between machines", "tz='Europe/Paris'"),
        ("right/Europe/Paris", "count leap seconds", "tz='Europe/Paris'"),
        (timezone(timedelta(hours=2)), "only the name of a zone", "tz='Europe/Paris'"),
        (None, "only the name of a zone", "tz='Europe/Paris'"),
    ],
)
def test_a_wrong_zone_is_refused(tz: Any, problem: str, cure: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        Cron("0 9 * * *", tz=tz)
    assert problem in caught.value.what
    assert cure in caught.value.cure


def test_a_zone_without_a_name_is_refused() -> None:
    class Unnamed(ZoneInfo):
        key = None  # pyright: ignore[reportAssignmentType]

    with pytest.raises(InvalidSchedule, match="only the name of a zone"):
        Cron("0 9 * * *", tz=Unnamed("Europe/Paris"))


def test_a_cron_is_a_value() -> None:
    cron = Cron("0  9 * * mon-fri", tz=PARIS)
    assert (cron.text, cron.tz) == ("0 9 * * MON-FRI", "Europe/Paris")
    assert repr(cron) == "Cron('0 9 * * MON-FRI', tz='Europe/Paris')"
    assert cron == Cron(" 0 9 * * MON-FRI ", tz="Europe/Paris")
    assert hash(cron) == hash(Cron("0 9 * * MON-FRI", tz="Europe/Paris"))
    assert len({cron, Cron(cron.text), Cron("0 9 * * *", tz=PARIS)}) == 3
    assert Cron("@daily") == Cron("0 0 * * *") != "0 0 * * *"
    assert copy.copy(cron) == copy.deepcopy(cron) == pickle.loads(pickle.dumps(cron))  # noqa: S301
    assert Cron.__module__ == "durio"
    with pytest.raises(AttributeError):
        cron.text = "* * * * *"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.proves("M152")
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"hour": 3}, "0 3 * * *"),
        ({"hour": 3, "minute": 0}, "0 3 * * *"),
        ({"minute": 30}, "30 * * * *"),
        ({"second": 30}, "30 * * * * *"),
        ({"second": 0, "hour": 3}, "0 * 3 * * *"),
        ({"day": 15}, "0 0 15 * *"),
        ({"weekday": "mon"}, "0 0 * * MON"),
        ({"month": 1}, "0 0 1 1 *"),
        ({"month": "JAN", "weekday": "MON#1"}, "0 0 * JAN MON#1"),
        ({"minute": 0, "month": 6}, "0 * * 6 *"),
        ({"day": "L", "hour": 18}, "0 18 L * *"),
        ({"minute": " */5 "}, "*/5 * * * *"),
        ({"minute": range(0, 60, 20)}, "0,20,40 * * * *"),
        ({"hour": range(9, 18), "weekday": "MON-FRI"}, "0 9-17 * * MON-FRI"),
        ({"hour": {22, 23, 0, 1, 12}}, "0 0-1,12,22-23 * * *"),
        ({"hour": [8, 8]}, "0 8 * * *"),
        ({"hour": iter([1, 3])}, "0 1,3 * * *"),
        ({"minute": range(60)}, "0-59 * * * *"),
    ],
)
def test_keywords_make_a_text(fields: dict[str, Any], text: str) -> None:
    assert Cron(**fields, tz="Asia/Tokyo") == Cron(text, tz="Asia/Tokyo")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "needs a text"),
        ({"text": "* * * * *", "hour": 3}, "not both"),
        ({"hour": 25}, r"\(hour\): '25' is outside"),
        ({"hour": -1}, r"\(hour\): '-1' cannot be read"),
        ({"hour": True}, "hour cannot be True"),
        ({"hour": 1.5}, "hour cannot be 1.5"),
        ({"hour": ""}, "hour cannot be ''"),
        ({"hour": "1 2"}, "hour cannot be '1 2'"),
        ({"hour": []}, r"hour cannot be \[\]"),
        ({"weekday": ["MON"]}, r"weekday cannot be \['MON'\]"),
        ({"hour": [True]}, r"hour cannot be \[True\]"),
        ({"minute": range(61)}, r"minute cannot be range\(0, 61\)"),
    ],
)
def test_wrong_keywords_are_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSchedule, match=problem):
        Cron(**fields)


@pytest.mark.parametrize("wrong", [datetime(2026, 1, 1), 5.0, None])  # noqa: DTZ001
def test_a_time_without_a_zone_is_refused(wrong: Any) -> None:
    cron = Cron("0 9 * * *")
    for method in (cron.next, cron.prev, lambda after: cron.preview(1, after)):
        with pytest.raises(InvalidSchedule, match="is not a time with a zone"):
            method(wrong)


def test_runs_are_strictly_after_and_before() -> None:
    cron = Cron("0 9 * * *", tz=PARIS)
    nine = datetime(2026, 1, 1, 9, tzinfo=PARIS)
    day, moment = timedelta(days=1), timedelta(microseconds=1)
    assert cron.next(nine - moment) == cron.prev(nine + moment) == nine
    assert cron.next(nine) == nine + day
    assert cron.prev(nine) == nine - day
    assert cron.next(nine.astimezone(UTC)).tzinfo is PARIS
    assert cron.next_seconds(nine.timestamp() - 0.25) == nine.timestamp()
    assert cron.prev_seconds(nine.timestamp() + 0.25) == nine.timestamp()
    assert cron.next_seconds(nine.timestamp()) == nine.timestamp() + 86400
    assert cron.prev_seconds(nine.timestamp()) == nine.timestamp() - 86400


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
@pytest.mark.parametrize("text", ["* * * * *", "0 9 * * *", "0 0 29 2 *"])
def test_beyond_the_calendar_there_is_no_run(text: str, zone: str) -> None:
    cron = Cron(text, tz=zone)
    first, last = (
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    )
    assert cron.next_seconds(1e12) is cron.next_seconds(math.inf) is None
    assert cron.prev_seconds(-1e12) is cron.prev_seconds(-math.inf) is None
    assert cron.interval_seconds(1e12) == math.inf
    assert cron.preview(5, last) == []
    with pytest.raises(InvalidSchedule, match="has no run after 9999-12-31"):
        cron.next(last)
    with pytest.raises(InvalidSchedule, match="has no run before 0001-01-01"):
        cron.prev(first)


def test_the_interval_is_between_the_next_two_runs() -> None:
    weekdays = Cron("0 9 * * MON-FRI")
    thursday = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert weekdays.interval_seconds(thursday) == 86400
    assert weekdays.interval_seconds(thursday + 86400) == 3 * 86400
    last_summer = datetime(9998, 6, 1, tzinfo=UTC).timestamp()
    assert Cron("0 0 1 1 *").interval_seconds(last_summer) == math.inf
    assert Cron("*/10 * * * * *").interval_seconds(thursday) == 10


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0 9 * * MON-FRI", "At 09:00 on Monday through Friday (Europe/Paris)"),
        ("0 0 21 * *", "At 00:00 on the 21st day of every month (Europe/Paris)"),
        ("0 0 12,22,23 * *", None),
        ("*/5 * * * *", "Every fifth minute of every hour (Europe/Paris)"),
        ("0 0 * * FRIL", "At 00:00 on the last Friday of the month (Europe/Paris)"),
    ],
)
def test_a_text_in_words(text: str, sentence: str | None) -> None:
    found = Cron(text, tz=PARIS).explain()
    assert sentence is None or found == sentence
    assert "2th" not in found.replace("12th", "")


# --- changes of the clock


def changes(zone: ZoneInfo) -> Iterator[tuple[datetime, timedelta]]:
    """Every change of ten years: the first second in UTC, and by how much."""
    hour = datetime(2018, 1, 1, tzinfo=UTC)
    while hour.year < 2028:
        later = hour + timedelta(days=1)
        jump = later.astimezone(zone).utcoffset() - hour.astimezone(zone).utcoffset()
        if jump:
            low, high = hour, later
            while high - low > timedelta(minutes=1):
                middle = low + (high - low) // 2
                same = (
                    middle.astimezone(zone).utcoffset()
                    == low.astimezone(zone).utcoffset()
                )
                low, high = (middle, high) if same else (low, middle)
            # Halving a day does not end on a minute; changes do.
            yield high.replace(second=0, microsecond=0), jump
        hour = later


@pytest.mark.proves("M162")
@pytest.mark.parametrize("name", ZONES)
def test_a_daily_job_runs_once_on_every_day(name: str) -> None:
    zone = ZoneInfo(name)
    found = list(changes(zone))
    assert len(found) >= 6
    for change, jump in found:
        before = change.astimezone(zone).replace(tzinfo=None) - jump
        middle = before + jump / 2  # in the gap, or in the time that occurs twice
        others = (timedelta(0), jump, timedelta(hours=5), timedelta(minutes=-1))
        for at in {middle, *(before + other for other in others)}:
            cron = Cron(minute=at.minute, hour=at.hour, tz=name)
            day = change.astimezone(zone).date()
            assert run_days(cron, day, zone) == [
                day + timedelta(n) for n in range(-2, 3)
            ]


def run_days(cron: Cron, day: date, zone: ZoneInfo) -> list[date]:
    """The local days of all runs from two days before a day to two days after it."""
    start = datetime(day.year, day.month, day.day, tzinfo=zone) - timedelta(days=2)
    run = cron.next(start.astimezone(UTC) - timedelta(seconds=1))
    days: list[date] = []
    while run.date() <= day + timedelta(days=2):
        days.append(run.date())
        run = cron.next(run)
    return days


def test_in_the_second_pass_of_an_hour_the_first_is_over() -> None:
    cron = Cron("30 2 * * *", tz=PARIS)
    for minute in (10, 30, 50):
        again = datetime(2026, 10, 25, 2, minute, tzinfo=PARIS, fold=1)
        assert str(cron.next(again)) == "2026-10-26 02:30:00+01:00"
        assert str(cron.prev(again)) == "2026-10-25 02:30:00+02:00"


# text | after | run and note; run and note
PREVIEWS = """
30 2 * * *    | 2026-03-28 12:00 | 2026-03-29 03:00:00+02:00 clocks go forward: 02:30 does not exist, runs at 03:00; 2026-03-30 02:30:00+02:00
15 30 2 * * * | 2026-03-28 12:00 | 2026-03-29 03:00:15+02:00 clocks go forward: 02:30 does not exist, runs at 03:00:15
0,40 2 * * *  | 2026-03-28 12:00 | 2026-03-29 03:00:00+02:00 clocks go forward: 02:00 to 02:40 do not exist, one run at 03:00
*/20 2 * * *  | 2026-03-28 12:00 | 2026-03-30 02:00:00+02:00 clocks go forward: 02:00 to 02:40 do not exist, no run then; 2026-03-30 02:20:00+02:00
0 */2 * * *   | 2026-03-29 00:00 | 2026-03-29 04:00:00+02:00 clocks go forward: 02:00 does not exist, no run then
30 2 * * *    | 2026-10-24 12:00 | 2026-10-25 02:30:00+02:00 clocks go back: 02:30 occurs twice, runs once; 2026-10-26 02:30:00+01:00
30 * * * *    | 2026-10-25 02:00 | 2026-10-25 02:30:00+02:00 clocks go back: 02:30 occurs twice, runs both times; 2026-10-25 02:30:00+01:00 clocks go back: 02:30 occurs twice, runs both times; 2026-10-25 03:30:00+01:00
0 9 * * *     | 2026-01-01 00:00 | 2026-01-01 09:00:00+01:00; 2026-01-02 09:00:00+01:00
"""


@pytest.mark.parametrize("row", PREVIEWS.strip().splitlines())
def test_a_preview_says_what_the_clock_does(row: str) -> None:
    text, after, runs = (cell.strip() for cell in row.split("|"))
    wanted = runs.split("; ")
    start = datetime.fromisoformat(after).replace(tzinfo=PARIS)
    found = Cron(text, tz=PARIS).preview(len(wanted), start)
    assert all(isinstance(run, CronRun) for run in found)
    assert [f"{run.at} {run.note or ''}".strip() for run in found] == wanted


@pytest.mark.parametrize("count", [0, -1, 1001, True, 1.5])
def test_a_preview_has_a_limit(count: Any) -> None:
    with pytest.raises(InvalidSchedule, match="a preview cannot have"):
        Cron("* * * * *").preview(count, NEW_YEAR)


# --- next and prev are inverse


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    pair = st.tuples(number, number).map(sorted)
    item = st.one_of(
        number.map(str),
        pair.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.integers(1, 5).map(lambda step: f"*/{step}"),
        number.map(lambda start: f"{start}/1"),
    )
    return st.one_of(
        st.just("*"), item, st.lists(item, min_size=2, max_size=3).map(",".join)
    )


TEXTS = st.one_of(
    st.tuples(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7)),
    st.tuples(field(0, 59), field(0, 59), field(0, 23), *[st.just("*")] * 3),
    st.tuples(field(0, 59), field(0, 4), st.just("*"), st.just("*"), field(0, 7)),
).map(" ".join)
# Seconds from 2018 to 2028; the examples are in the two hours around changes in Paris.
INSTANTS = st.integers(1514764800, 1830297600)


@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(text=TEXTS, zone=st.sampled_from([*ZONES, "UTC"]), after=INSTANTS)
@example(text="30 2 * * *", zone="Europe/Paris", after=1792890000)
@example(text="*/7 2 * * *", zone="Europe/Paris", after=1792890000)
@example(text="30 2 * * *", zone="Europe/Paris", after=1774746000)
def test_next_and_prev_are_inverse(text: str, zone: str, after: int) -> None:
    cron = Cron(text, tz=zone)
    run = cron.next_seconds(after)
    assert run is not None
    assert run > after
    earlier = cron.prev_seconds(run)
    assert earlier is not None
    assert earlier <= after
    assert cron.next_seconds(earlier) == run
    assert cron.prev_seconds(run + 0.5) == run
    assert cron.next_seconds(run - 0.5) == run
    assert cron.explain().endswith(f"({zone})")


WORDS = st.text("0123456789*/-,LW#?@ MONFRISUAPRJ", max_size=8)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(WORDS, max_size=7).map(" ".join))
@example("0 0 * * FRI-SUN")
@example("0 0 * * FRIL")
@example("\0 \ud800 * * *")
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidSchedule):
        cron = Cron(text)
        assert Cron(cron.text).text == cron.text
        assert cron.next(NEW_YEAR) > NEW_YEAR
