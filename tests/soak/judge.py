"""Judges the record of a soak: what held, what broke, what the run was too short to show.

It is pure: a record in, findings out. Memory is compared within one process, and
between processes of the same age: a young and an old one cannot be compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from statistics import fmean, median

from tests.soak.record import Phase, PhaseName, Record, Sample, Vitals

MEGABYTE = 1 << 20

THROUGHPUT_SHARE = 0.9  # of the base, after healing
RECOVERY_SECONDS_MAX = 30.0
WINDOW_SECONDS = 4.0  # the span over which a throughput counts
WARM_UP_SECONDS = 3.0  # of the load, not part of the base

LIFE_SECONDS_MIN = 120.0  # least age of a process whose memory is judged
WARM_UP_SHARE, WARM_UP_SECONDS_MAX = 0.25, 120.0  # of a life: caches fill
GROWTH_SHARE_MAX, GROWTH_BYTES_MAX = 0.06, 4 * MEGABYTE  # per life; the larger
FDS_MORE_MAX = 4
YOUNG_SECONDS = (10.0, 20.0)  # the age at which processes are compared
YOUNG_LIVES_MIN = 6

FILE_SECONDS_MIN = 120.0
FILE_SHARE_MAX, FILE_BYTES_MAX = 1.25, 4 * MEGABYTE  # last third over the second

ENDS_MIN, FAULTS_MIN = 200, 2  # fewer prove nothing
POINTS_MAX = 400  # for a slope: more are thinned out


class Judgement(StrEnum):
    HELD = "held"
    BROKEN = "broken"
    UNKNOWN = "not exercised"


@dataclass(frozen=True)
class Finding:
    what: str
    judgement: Judgement
    text: str


@dataclass(frozen=True)
class Recovery:
    """After one phase of faults; None: the base did not come back in time."""

    healed_at: float
    seconds: float | None
    share: float  # of the base, until the phase ends; a sample counts at most 1


def judge(record: Record) -> list[Finding]:
    return [
        *([judge_length(record)] if record.cut_short else []),
        judge_ledger(record),
        judge_recovery(record),
        judge_memory(record),
        judge_young(record),
        judge_descriptors(record),
        judge_file(record),
        judge_run(record),
    ]


def exit_code(findings: Sequence[Finding]) -> int:
    """0 held, 1 broken, 2 unknown: the last finding says whether enough happened."""
    if any(finding.judgement is Judgement.BROKEN for finding in findings):
        return 1
    return 0 if findings[-1].judgement is Judgement.HELD else 2


def finding(what: str, text: str, *, holds: bool) -> Finding:
    return Finding(what, Judgement.HELD if holds else Judgement.BROKEN, text)


# --- what was promised


def judge_length(record: Record) -> Finding:
    """Broken only in a run that was stopped early."""
    text = (
        f"cut short after {record.seconds:.0f} s; {record.totals.unfinished} jobs were "
        "not finished then, and are safe in the store"
    )
    return Finding("the run is whole", Judgement.UNKNOWN, text)


def judge_ledger(record: Record) -> Finding:
    totals = record.totals
    text = (
        f"{totals.acknowledged} acknowledged, {totals.ok} ok, {totals.lost} lost, "
        f"{totals.unexpected} unexpected, {totals.duplicated} duplicated, "
        f"{totals.reruns} run again ({totals.unexplained} for no reason), "
        f"quick_check {totals.quick_check}"
    )
    holds = not totals.problems and totals.quick_check == "ok"
    holds &= totals.ok + totals.unfinished == totals.acknowledged
    wrong = totals.lost + totals.unexpected + totals.duplicated + totals.unexplained
    return finding("no job lost, none done twice", text, holds=holds and not wrong)


def judge_run(record: Record) -> Finding:
    """Whether enough happened for the other findings to mean something."""
    enough = record.totals.ok >= ENDS_MIN and len(record.faults) >= FAULTS_MIN
    others = fmean([sample.other_cores for sample in record.samples] or [0.0])
    text = (
        f"{record.totals.ok} jobs and {len(record.faults)} faults; other programs kept "
        f"{others:.1f} cores busy meanwhile"
    )
    judgement = Judgement.HELD if enough else Judgement.UNKNOWN
    return Finding("enough happened", judgement, text)


# --- throughput


def base_samples(record: Record) -> list[Sample]:
    [base] = record.named(PhaseName.BASE)
    return record.within(base.begin + WARM_UP_SECONDS, base.end)


def base_throughput(record: Record) -> float:
    seen = base_samples(record)
    return median(sample.jobs_per_second for sample in seen) if seen else 0.0


def mean_throughput(samples: Sequence[Sample]) -> float:
    seconds = sum(sample.seconds for sample in samples)
    ends = sum(sample.jobs_per_second * sample.seconds for sample in samples)
    return ends / seconds if seconds else 0.0


def recoveries(record: Record) -> list[Recovery]:
    base = base_throughput(record)
    whole = record.phases[:-1] if record.cut_short else record.phases
    healings = [phase for phase in whole if phase.name is PhaseName.HEALED]
    return [recovery(record, phase, base) for phase in healings]


def recovery(record: Record, phase: Phase, base: float) -> Recovery:
    """When the base was back: for a whole window, with every worker taking part."""
    seen = record.within(phase.begin, phase.end)
    crew = taking_part(record.samples)
    for place, first in enumerate(seen):
        window = [s for s in seen[place:] if s.at - first.at < WINDOW_SECONDS]
        is_whole = seen[-1].at - first.at >= WINDOW_SECONDS - first.seconds
        back = mean_throughput(window) >= THROUGHPUT_SHARE * base
        if is_whole and back and crew <= taking_part(window):
            seconds = first.at - first.seconds - phase.begin
            return Recovery(phase.begin, seconds, capped_share(seen[place:], base))
    return Recovery(phase.begin, None, capped_share(seen, base))


def taking_part(window: Sequence[Sample]) -> set[str]:
    """Workers that have ended jobs: a missing one is down, or claims nothing."""
    return {v.slot for sample in window for v in sample.workers if v.ends}


def capped_share(samples: Sequence[Sample], base: float) -> float:
    """Share of the base; a surplus in one sample hides no gap in another."""
    seconds = sum(sample.seconds for sample in samples)
    ends = sum(min(s.jobs_per_second, base) * s.seconds for s in samples)
    return ends / seconds / base if seconds and base else 0.0


def judge_recovery(record: Record) -> Finding:
    what = "90 % of the throughput back within 30 s"
    if not base_samples(record):
        text = "the base was too short to know what must come back"
        return Finding(what, Judgement.UNKNOWN, text)
    found = recoveries(record)
    if record.cut_short and not found:
        return Finding(what, Judgement.UNKNOWN, "no healing came to its end")
    held = [
        each.seconds is not None
        and each.seconds <= RECOVERY_SECONDS_MAX
        and each.share >= THROUGHPUT_SHARE
        for each in found
    ]
    times = [each.seconds for each in found if each.seconds is not None]
    text = (
        f"{sum(held)} of {len(found)} healings; base "
        f"{base_throughput(record):.0f} jobs/s; back within "
        f"{median(times) if times else 0:.1f} s (median), "
        f"{max(times, default=0):.1f} s (longest); then at least "
        f"{100 * min((each.share for each in found), default=0):.0f} % of the base"
    )
    return finding(what, text, holds=bool(found) and all(held))


# --- memory and descriptors


def long_lives(record: Record) -> list[list[tuple[float, Vitals]]]:
    """Processes old enough to be judged, without the time in which they warm up."""
    found: list[list[tuple[float, Vitals]]] = []
    for life in record.lives().values():
        ages = [vitals.age for _, vitals in life]
        if ages[-1] >= LIFE_SECONDS_MIN:
            warm = min(WARM_UP_SHARE * ages[-1], WARM_UP_SECONDS_MAX)
            found.append([each for each in life if each[1].age >= warm])
    return found


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median of all slopes between two points: single peaks do not change it."""
    thin = points[:: -(-len(points) // POINTS_MAX)]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(thin, 2)]
    return median(slopes) if slopes else 0.0


def memory_slopes(record: Record) -> list[tuple[float, float, float]]:
    """For each long life: median memory in bytes, bytes per second, seconds judged."""
    return [
        (
            median(vitals.rss_bytes for _, vitals in life),
            slope([(vitals.age, vitals.rss_bytes) for _, vitals in life]),
            life[-1][1].age - life[0][1].age,
        )
        for life in long_lives(record)
    ]


def judge_memory(record: Record) -> Finding:
    what, slopes = "memory of one process is flat", memory_slopes(record)
    if not slopes:
        text = f"no process lived {LIFE_SECONDS_MIN:g} s"
        return Finding(what, Judgement.UNKNOWN, text)
    holds = all(each * life <= growth_max(rss) for rss, each, life in slopes)
    rss, worst, life = max(slopes, key=lambda each: each[1] * each[2])
    text = (
        f"{len(slopes)} long lives; the steepest: {worst * life / MEGABYTE:+.2f} MB in "
        f"{life:.0f} s at {rss / MEGABYTE:.1f} MB "
        f"({worst * 3600 / MEGABYTE:+.1f} MB an hour)"
    )
    return finding(what, text, holds=holds)


def growth_max(rss: float) -> float:
    return max(GROWTH_SHARE_MAX * rss, GROWTH_BYTES_MAX)


def young_memory(record: Record) -> list[float]:
    """The memory of each process at the same age, in order of their starts."""
    low, high = YOUNG_SECONDS
    found: list[float] = []
    for life in record.lives().values():
        young = [vitals.rss_bytes for _, vitals in life if low <= vitals.age <= high]
        if young:
            found.append(median(young))
    return found


def judge_young(record: Record) -> Finding:
    """A worker that starts late must not use more memory than one that started early."""
    what, young = "memory of new processes is the same", young_memory(record)
    if len(young) < YOUNG_LIVES_MIN:
        text = f"{len(young)} lives of {YOUNG_SECONDS[0]:g} s; {YOUNG_LIVES_MIN} needed"
        return Finding(what, Judgement.UNKNOWN, text)
    third = len(young) // 3
    early, late = median(young[:third]), median(young[-third:])
    text = (
        f"{len(young)} lives at an age of 10 to 20 s: the first third "
        f"{early / MEGABYTE:.1f} MB, the last third {late / MEGABYTE:.1f} MB"
    )
    return finding(what, text, holds=late - early <= growth_max(early))


def judge_descriptors(record: Record) -> Finding:
    what, lives = "descriptors are bounded", long_lives(record)
    if not lives:
        text = f"no process lived {LIFE_SECONDS_MIN:g} s"
        return Finding(what, Judgement.UNKNOWN, text)
    more: list[float] = []
    for life in lives:
        fds = [vitals.fds for _, vitals in life]
        third = max(1, len(fds) // 3)
        more.append(median(fds[-third:]) - median(fds[:third]))
    most = max(vitals.fds for life in lives for _, vitals in life)
    text = f"at most {most} in a process; {max(more):+.0f} over the longest lives"
    return finding(what, text, holds=max(more) <= FDS_MORE_MAX)


# --- the file


def judge_file(record: Record) -> Finding:
    what = "the file is bounded"
    if record.seconds < max(FILE_SECONDS_MIN, 4 * record.retention_seconds):
        return Finding(what, Judgement.UNKNOWN, f"{record.seconds:.0f} s are too short")
    third = record.seconds / 3
    parts: list[str] = []
    holds = True
    for name in ("file_bytes", "wal_bytes"):
        middle, last = (
            [getattr(s, name) for s in record.within(begin, begin + third)]
            for begin in (third, 2 * third)
        )
        bound = max(FILE_SHARE_MAX * max(middle), max(middle) + FILE_BYTES_MAX)
        holds &= max(last) <= bound
        parts.append(
            f"{name.partition('_')[0]} {max(middle) / MEGABYTE:.1f} MB, then "
            f"{max(last) / MEGABYTE:.1f} MB"
        )
    text = f"at most, in the second and in the last third: {'; '.join(parts)}"
    return finding(what, text, holds=holds)


def latency(record: Record, name: PhaseName) -> tuple[float, float]:
    """The means of the samples' p50 and p99 in such phases, in ms."""
    seen = [
        (s.p50_ms, s.p99_ms)
        for phase in record.named(name)
        for s in record.within(phase.begin, phase.end)
        if s.p50_ms is not None and s.p99_ms is not None
    ]
    if not seen:
        return 0.0, 0.0
    return fmean(p50 for p50, _ in seen), fmean(p99 for _, p99 in seen)
