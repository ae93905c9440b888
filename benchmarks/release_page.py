"""The page and the plot of `release.py`, from the entries of speed.json."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.soak.plot import (
    Line,
    Points,
    Scale,
    head,
    legend,
    linear_scale,
    rect,
    stroke,
    style,
    text,
)
from tests.soak.report import table

Entry = Mapping[str, Any]

STORES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
# case of speed.py, unit, what it means
CASES = (
    ("drain", "jobs/s", "one worker process runs jobs of 100 bytes without a result"),
    ("drain 2", "jobs/s", "the same, two worker processes"),
    ("drain 4", "jobs/s", "the same, four worker processes"),
    ("drain 1k", "jobs/s", "one worker process, jobs of 1 KiB"),
    ("drain 4k", "jobs/s", "one worker process, jobs of 4 KiB"),
    ("drain 16k", "jobs/s", "one worker process, jobs of 16 KiB"),
    ("drain results", "jobs/s", "jobs that return a number, which is stored"),
    ("prefetch 64", "jobs/s", "as the first row, claiming at most 64 jobs ahead"),
    ("prefetch 256", "jobs/s", "at most 256 jobs ahead"),
    ("prefetch 1024", "jobs/s", "at most 1,024 jobs ahead"),
    ("prefetch 2048", "jobs/s", "at most 2,048 jobs ahead"),
    ("naps", "s", "2,000 jobs that sleep 0.5 s in 500 slots; 2 s is the least"),
    ("one", "jobs/s", "`enqueue`, awaited one after the other"),
    ("hundred", "jobs/s", "`enqueue` of 100 callers at once"),
    ("many", "jobs/s", "`enqueue_many`"),
    ("wake-up p50 ms", "ms", "from the call of `enqueue` to the task's first line"),
    ("wake-up p99 ms", "ms", "the same, 99th percentile"),
)
CPU = (
    ("drain", "worker", "a worker, per job that it runs"),
    ("drain", "server", "the PostgreSQL server, per job that is run"),
    ("enqueue_many", "client", "the caller of `enqueue_many`"),
    ("enqueue_many", "server", "the PostgreSQL server meanwhile"),
    ("enqueue_concurrent", "client", "100 callers of `enqueue` in one process"),
    ("enqueue_concurrent", "server", "the PostgreSQL server meanwhile"),
)
FLOORS = (
    ("flush", "append 4 KiB to a file and `fdatasync` it, in the folder of SQLite"),
    ("sqlite commit", "insert one row with apsw and commit, WAL, `synchronous=FULL`"),
    ("postgresql round trip", "`select 1` with asyncpg through a Unix socket"),
    ("postgresql commit", "insert one row with asyncpg, with its commit"),
    ("loop turn", "one turn of the event loop, `asyncio.sleep(0)`"),
    ("hand-over", "from the event loop to a waiting thread and back"),
)
# title of a panel -> its points, each with its case
PANELS = {
    "worker processes": {"1": "drain", "2": "drain 2", "4": "drain 4"},
    "prefetch": {f"{n}": f"prefetch {n}" for n in (64, 256, 1024, 2048)},
    "size of the arguments": {
        "100 B": "drain",
        "1 KiB": "drain 1k",
        "4 KiB": "drain 4k",
        "16 KiB": "drain 16k",
    },
}
SMALL = 100  # figures below it have three digits
ONE, P50, P99 = "one", "wake-up p50 ms", "wake-up p99 ms"

MACHINE = "{system}, {cores} cores, {memory_gib} GiB, Python {python}, {event_loop}"
INTRO = """\
`make speed` measures a release and writes this page. This is Durio {version}, commit `{commit}` of {date}.

Machine: {where}, SQLite {machine[sqlite]}, PostgreSQL {machine[postgresql]}. Server, workers and callers share it.
Every enqueue and every end of a job is flushed to disk. Each figure is the median of {rounds} rounds. A drain has {jobs:,} jobs, one
with jobs of 4 KiB half as many, one with jobs of 16 KiB a quarter."""
TRIAL = (
    "**A trial with few jobs (`--quick`): it shows that the program works. Its figures "
    "are not those of a release.**"
)
PICTURE = (
    "![Jobs per second by worker processes, by prefetch and by size of the arguments, on "
    "SQLite and on PostgreSQL](speed.svg)"
)
CPU_WORDS = """\
User and system time in microseconds, as `durio bench --cpu` measures it: the lowest of all passes ({passes}). It
depends less on the disk and on other programs than jobs per second. So it shows best whether a release is slower."""
FLOOR_WORDS = """\
The least that one step takes on this machine without Durio, in microseconds. In the same rounds one awaited
`enqueue` took {sqlite:,.0f} µs on SQLite and {postgresql:,.0f} µs on PostgreSQL. It includes one commit. A wake-up
includes a commit, the way to another process, and a claim."""
PEER_WORDS = """\
PgQueuer on the same server, in the same rounds: jobs of 100 bytes that do nothing, one worker process. Its worker
takes 10 jobs at a time by default. Durio runs with its defaults. The column `ratio` is Durio's drain divided by that
of the row."""
RELEASES_WORDS = "SQLite / PostgreSQL. Compare rows of the same machine only."
REPEAT = """\
```text
make speed
make speed SPEED_ARGS="--peer-python /path/to/python"   # a Python with PgQueuer: pip install pgqueuer
make speed SPEED_ARGS="--quick --report /tmp"           # a trial of about a minute
```

The programs are in `benchmarks/`: `release.py` runs `speed.py`, `cpu_per_job.py`, `floors.py` and `peers.py`.
[Why a worker is fast](../explanation/why-a-worker-is-fast.md) explains the figures."""


PEER_HEAD = ("", "drain, jobs/s", "ratio", "`enqueue`, jobs/s", "wake-up p50", "p99")
RELEASES_HEAD = (
    "version",
    "date",
    "drain, jobs/s",
    "`enqueue`, jobs/s",
    "wake-up p50, ms",
    "CPU of a worker, µs per job",
    "machine",
)


def page(entries: Sequence[Entry]) -> str:
    """Return the newest entry in full, and one row for each older one."""
    entry = entries[0]
    where = MACHINE.format(**entry["machine"])
    taken_us = {store: 1e6 / entry["speed"][store][ONE] for store in STORES}
    parts = [
        "# Speed",
        INTRO.format(**entry, where=where),
        *([TRIAL] if entry["quick"] else []),
        PICTURE,
        "## Jobs",
        table(("what", "unit", *STORES.values()), list(case_rows(entry))),
        "## CPU time per job",
        CPU_WORDS.format(**entry),
        table(("CPU time of", *STORES.values()), list(cpu_rows(entry))),
        "## The least that a step takes",
        FLOOR_WORDS.format(**taken_us),
        table(
            ("step", "µs"),
            [(what, shown(entry["floors_us"][name])) for name, what in FLOORS],
        ),
        "## Compared with PgQueuer",
        PEER_WORDS,
        table(PEER_HEAD, list(peer_rows(entry))),
        "## Releases",
        RELEASES_WORDS,
        table(RELEASES_HEAD, [release_row(one) for one in entries]),
        "## Repeat it",
        REPEAT,
    ]
    return "\n\n".join(parts) + "\n"


def shown(value: float | None) -> str:
    """Three digits or more; a dash for what a store does not have."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= SMALL else f"{value:#.3g}"


def of_both(entry: Entry, case: str) -> list[str]:
    return [shown(entry["speed"][store][case]) for store in STORES]


def case_rows(entry: Entry) -> Iterable[Sequence[str]]:
    for case, unit, what in CASES:
        yield what, unit, *of_both(entry, case)


def cpu_rows(entry: Entry) -> Iterable[Sequence[str]]:
    for part, process, what in CPU:
        costs = (entry["cpu_us_per_job"][s][part].get(process) for s in STORES)
        yield what, *map(shown, costs)


def peer_rows(entry: Entry) -> Iterable[Sequence[str]]:
    ours = entry["speed"]["postgresql"]
    rest = [shown(ours[ONE]), f"{shown(ours[P50])} ms", f"{shown(ours[P99])} ms"]
    yield f"Durio {entry['version']}", shown(ours["drain"]), "", *rest
    if not entry["peers"]:
        yield "PgQueuer", "not installed", "", "", "", ""
    for name, peer in entry["peers"].items():
        waits = [f"{shown(peer[P50])} ms", f"{shown(peer[P99])} ms"]
        rest = [shown(peer[ONE]), *waits]
        for case in (case for case in peer if case.startswith("drain ")):
            batch = f"{name}, batches of {case.removeprefix('drain ')}"
            ratio = f"{ours['drain'] / peer[case]:.1f}"
            yield batch, shown(peer[case]), ratio, *rest
            rest = ["", "", ""]  # measured once, with the default


def release_row(entry: Entry) -> list[str]:
    figures = [of_both(entry, case) for case in ("drain", ONE, P50)]
    costs = entry["cpu_us_per_job"]
    figures.append([shown(costs[store]["drain"]["worker"]) for store in STORES])
    where = MACHINE.format(**entry["machine"])
    return [entry["version"], entry["date"], *map(" / ".join, figures), where]


# --- the plot

WIDTH, LEFT, GAP, RIGHT = 960, 72, 44, 24
TOP, PANEL, FOOT = 96, 240, 60
PLOT = (WIDTH - LEFT - RIGHT - GAP * (len(PANELS) - 1)) / len(PANELS)


def svg(entry: Entry) -> str:
    """Return three panels on one scale, with a line for each store."""
    speeds = entry["speed"]
    cases = [case for points in PANELS.values() for case in points.values()]
    scale = linear_scale([speed[case] for speed in speeds.values() for case in cases])
    height = TOP + PANEL + FOOT
    where = MACHINE.format(**entry["machine"])
    colours = zip(STORES.values(), ("first", "second"), strict=True)
    names = [Line(name, colour, []) for name, colour in colours]
    out = [
        head(height),
        f"<title>Jobs per second of Durio {entry['version']}</title>",
        style(),
        rect("page", 0, 0, WIDTH, height),
        text(
            LEFT, 24, f"Durio {entry['version']}: jobs per second", size=16, weight=600
        ),
        text(LEFT, 44, f"{where}; every enqueue and end flushed", "soft"),
        *legend(names, 24),
    ]
    for place, (title, points) in enumerate(PANELS.items()):
        left = LEFT + place * (PLOT + GAP)
        out += frame(left, title, list(points), scale)
        of_first, of_second = (
            [speeds[store][case] for case in points.values()] for store in STORES
        )
        out += series(left, "first", of_first, of_second, scale)
        out += series(left, "second", of_second, of_first, scale)
    if entry["quick"]:
        out.append(text(WIDTH - RIGHT, 44, "a trial with few jobs", anchor="end"))
    for tick in scale.ticks:
        y = height_of(tick, scale) + 4
        out.append(text(LEFT - 8, y, f"{tick:,.0f}", "soft", anchor="end"))
    return "\n".join([*out, "</svg>"]) + "\n"


def frame(left: float, title: str, names: list[str], scale: Scale) -> list[str]:
    out = [text(left, TOP - 16, f"by {title}", weight=600)]
    for tick in scale.ticks:
        y = height_of(tick, scale)
        out.append(stroke("grid", [(left, y), (left + PLOT, y)], 1))
    for x, name in zip(places(left, len(names)), names, strict=True):
        out.append(text(x, TOP + PANEL + 34, name, "soft", anchor="middle"))
    return out


def series(
    left: float, colour: str, values: list[float], others: list[float], scale: Scale
) -> list[str]:
    """Return a line with its values: above the point if it is higher than the other's."""
    out: list[str] = []
    points: Points = []
    across = places(left, len(values))
    for x, value, other in zip(across, values, others, strict=True):
        y = height_of(value, scale)
        points.append((x, y))
        out.append(rect(colour, x - 3, y - 3, 6, 6))
        label = y - 9 if value > other else y + 18
        out.append(text(x, label, f"{value:,.0f}", anchor="middle", size=11))
    return [*out, stroke(colour, points, 1.5)]


def places(left: float, count: int) -> list[float]:
    """Return evenly spaced points of a panel."""
    return [left + PLOT / count * (number + 0.5) for number in range(count)]


def height_of(value: float, scale: Scale) -> float:
    return TOP + PANEL * (1 - scale.share(value))
