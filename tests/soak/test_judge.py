"""The judge of the soak finds what is planted, and nothing in a healthy record."""

from dataclasses import replace

import pytest

from tests.soak.judge import Judgement, exit_code, judge, recoveries, slope
from tests.soak.nemesis import phases_of
from tests.soak.planted import (
    MEGABYTE,
    SECONDS,
    Change,
    changed,
    healthy,
    with_workers,
)
from tests.soak.record import PhaseName, Record, Sample, Totals

HEALED = healthy().named(PhaseName.HEALED)[1]  # the second recovery


def broken(record: Record) -> list[str]:
    """What the judge finds broken; its exit code must agree."""
    found = judge(record)
    names = [each.what for each in found if each.judgement is Judgement.BROKEN]
    assert exit_code(found) == (1 if names else 0), found
    return names


def slow(share: float, begin: float, end: float) -> Change:
    """Throughput falls to a share of itself between two moments."""

    def change(s: Sample) -> Sample:
        within = begin < s.at <= end
        return replace(s, jobs_per_second=share * s.jobs_per_second) if within else s

    return change


def test_a_healthy_run_holds() -> None:
    found = judge(healthy())
    assert {each.judgement for each in found} == {Judgement.HELD}, found
    assert exit_code(found) == 0


# --- memory


@pytest.mark.parametrize("mb_a_minute", [1.0, 0.6])
def test_a_leak_is_broken(mb_a_minute: float) -> None:
    leak = mb_a_minute * MEGABYTE / 60
    record = changed(
        healthy(),
        with_workers(lambda v: replace(v, rss_bytes=int(v.rss_bytes + leak * v.age))),
    )
    assert broken(record) == ["memory of one process is flat"]


def test_a_warm_up_is_no_leak() -> None:
    """Eight megabytes of cache fill in the first minute."""
    record = changed(
        healthy(),
        with_workers(
            lambda v: replace(
                v, rss_bytes=int(v.rss_bytes - max(0, 60 - v.age) / 60 * 8 * MEGABYTE)
            )
        ),
    )
    assert broken(record) == []


def test_a_single_peak_is_no_leak() -> None:
    record = changed(
        healthy(),
        with_workers(
            lambda v: replace(v, rss_bytes=2 * v.rss_bytes) if 500 < v.age < 510 else v
        ),
    )
    assert broken(record) == []


def test_workers_that_are_born_heavier_are_broken() -> None:
    record = healthy()
    for place, seen in enumerate(record.samples):
        first, second = seen.workers
        more = int(seen.at / record.seconds * 12 * MEGABYTE)
        second = replace(second, rss_bytes=second.rss_bytes + more)
        record.samples[place] = replace(seen, workers=[first, second])
    assert "memory of new processes is the same" in broken(record)


def test_descriptors_that_stay_open_are_broken() -> None:
    record = changed(
        healthy(), with_workers(lambda v: replace(v, fds=v.fds + int(v.age / 60)))
    )
    assert broken(record) == ["descriptors are bounded"]


def test_slope_is_that_of_the_line() -> None:
    assert slope([(x, 3.0 * x + 5) for x in range(1000)]) == pytest.approx(3.0)
    assert slope([(1.0, 1.0)]) == 0.0


# --- throughput


def test_a_slow_recovery_is_broken() -> None:
    begin = HEALED.begin
    record = changed(healthy(), slow(0.5, begin, begin + 34))
    assert broken(record) == ["90 % of the throughput back within 30 s"]
    seconds = recoveries(record)[1].seconds
    assert seconds is not None
    assert seconds >= 30


def test_a_quick_recovery_holds() -> None:
    record = changed(healthy(), slow(0.0, HEALED.begin, HEALED.begin + 8))
    assert broken(record) == []
    seconds = recoveries(record)[1].seconds
    assert seconds is not None
    assert 4 <= seconds <= 12


def test_no_recovery_is_broken() -> None:
    record = changed(healthy(), slow(0.85, HEALED.begin, HEALED.end))
    assert broken(record) == ["90 % of the throughput back within 30 s"]
    assert recoveries(record)[1].seconds is None


def test_a_dip_after_the_recovery_is_broken() -> None:
    """Also when the missed jobs are made up for later."""
    record = changed(healthy(), slow(0.0, HEALED.begin + 20, HEALED.begin + 28))
    changed(record, slow(2.0, HEALED.begin + 28, HEALED.begin + 36))
    assert broken(record) == ["90 % of the throughput back within 30 s"]


def test_a_deaf_worker_is_broken() -> None:
    """The other worker does all the work: the throughput alone shows nothing."""
    record = changed(
        healthy(),
        with_workers(lambda v: replace(v, ends=0) if v.slot == "worker 2" else v),
        HEALED.begin,
    )
    assert broken(record) == ["90 % of the throughput back within 30 s"]


# --- the file


@pytest.mark.parametrize("name", ["file_bytes", "wal_bytes"])
def test_a_file_that_grows_for_ever_is_broken(name: str) -> None:
    def grow(s: Sample) -> Sample:
        more = {name: getattr(s, name) + int(s.at / 60 * 3 * MEGABYTE)}
        return replace(s, **more)

    assert broken(changed(healthy(), grow)) == ["the file is bounded"]


# --- the ledger


@pytest.mark.parametrize(
    "totals",
    [
        Totals(acknowledged=1000, ok=999, lost=1),
        Totals(acknowledged=1000, ok=1000, duplicated=1),
        Totals(acknowledged=1000, ok=1000, unexpected=1),
        Totals(acknowledged=1000, ok=1000, reruns=1, unexplained=1),
        Totals(acknowledged=1000, ok=999),
        Totals(acknowledged=1000, ok=1000, quick_check="row 7 missing"),
        Totals(acknowledged=1000, ok=1000, problems=["worker 1 ended by itself"]),
    ],
)
def test_a_broken_promise_is_broken(totals: Totals) -> None:
    record = healthy()
    record.totals = totals
    assert broken(record) == ["no job lost, none done twice"]


def test_too_little_is_unknown_and_not_held() -> None:
    record = healthy()
    record.faults.clear()
    assert exit_code(judge(record)) == 2
    record = healthy()
    record.totals = Totals(acknowledged=10, ok=10)
    assert exit_code(judge(record)) == 2


def test_a_short_run_says_what_it_cannot_show() -> None:
    found = {each.what: each.judgement for each in judge(healthy(24.0))}
    assert found["memory of one process is flat"] is Judgement.UNKNOWN
    assert found["the file is bounded"] is Judgement.UNKNOWN
    assert found["90 % of the throughput back within 30 s"] is Judgement.HELD
    shortest = {each.what: each.judgement for each in judge(healthy(12.0))}
    recovery = shortest["90 % of the throughput back within 30 s"]
    assert recovery is Judgement.UNKNOWN, "its base is all warm-up"


def test_a_base_of_nothing_is_nothing_to_come_back_to() -> None:
    """It was measured, and no job ended: that is broken, not unknown."""
    record = changed(healthy(), slow(0.0, 0.0, SECONDS))
    assert broken(record) == ["90 % of the throughput back within 30 s"]


# --- phases


@pytest.mark.parametrize("seconds", [20.0, 60.0, 600.0, 1800.0])
def test_phases_fill_the_whole_time(seconds: float) -> None:
    phases = phases_of(seconds)
    names = [phase.name for phase in phases]
    assert names[0] is PhaseName.BASE
    assert names[1::2] == [PhaseName.FAULTS] * (len(names) // 2)
    assert names[2::2] == [PhaseName.HEALED] * (len(names) // 2)
    ends = [0.0, *(phase.end for phase in phases)]
    assert [phase.begin for phase in phases] == pytest.approx(ends[:-1])
    assert ends[-1] == pytest.approx(seconds)
