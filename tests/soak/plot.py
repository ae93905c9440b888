"""Draws a soak: small charts over one time axis, with the phases of faults as bands.

The output is plain SVG. Elements carry the colours for a light page. A style sheet
inside gives the same classes other colours on a dark page, so that both are legible.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from tests.soak.judge import THROUGHPUT_SHARE, base_throughput
from tests.soak.record import Fault, PhaseName, Record, Sample, Vitals

MEGABYTE = 1 << 20
WIDTH, LEFT, RIGHT, TOP = 960, 72, 24, 64
LANE, PANEL, GAP, FOOT = 20, 104, 44, 44
PLOT = WIDTH - LEFT - RIGHT
LETTER = 7.3  # approximate width of a letter in a legend
TICKS = 4  # about this many on a value axis
TIME_TICKS = 10
DECADES_MIN = 2  # of a logarithmic axis

# class -> (on a light page, on a dark one)
COLOURS = {
    "page": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "soft": ("#59636e", "#9da7b1"),
    "grid": ("#dde3e9", "#2b323b"),
    "band": ("#fbe9dc", "#33241a"),
    "first": ("#0b5cad", "#62aeff"),
    "second": ("#b3510a", "#ffab5c"),
}

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """A series; it has gaps where one process ends and another starts."""

    name: str
    colour: str
    pieces: list[Points]


@dataclass(frozen=True)
class Panel:
    title: str
    lines: list[Line]
    is_log: bool = False
    mark: tuple[float, str] | None = None  # a value to compare with, and its name


@dataclass(frozen=True)
class Scale:
    """Maps values to heights, with the ticks beside them."""

    low: float
    high: float
    ticks: list[float]
    is_log: bool

    def share(self, value: float) -> float:
        if self.is_log:
            value = max(value, self.low)
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def svg(record: Record) -> str:
    lanes = ["worker 1", "worker 2", "producers"]
    panels = panels_of(record)
    top = TOP + LANE * len(lanes) + GAP
    height = top + len(panels) * (PANEL + GAP) - GAP + FOOT
    out = [
        head(height),
        f"<title>Soak of {minutes_of(record)} minutes</title>",
        style(),
        rect("page", 0, 0, WIDTH, height),
        *bands(record, TOP, height - FOOT),
        text(LEFT, 24, headline(record), size=16, weight=600),
        text(
            LEFT,
            44,
            f"{record.rate:g} jobs a second on 2 workers; shaded: phases of faults",
            colour="soft",
        ),
        *fault_lanes(record, lanes),
    ]
    for place, panel in enumerate(panels):
        out += draw_panel(record, panel, top + place * (PANEL + GAP))
    out += time_axis(record, height - FOOT)
    return "\n".join([*out, "</svg>"]) + "\n"


def headline(record: Record) -> str:
    short = ", cut short" if record.cut_short else ""
    return f"Soak: {minutes_of(record)} minutes{short}"


def minutes_of(record: Record) -> str:
    return f"{round(record.seconds / 60, 2):g}"


# --- what is drawn


def panels_of(record: Record) -> list[Panel]:
    samples = record.samples
    base = base_throughput(record)
    wanted = (THROUGHPUT_SHARE * base, "90 % of the base")
    return [
        Panel(
            "Throughput, jobs ended a second",
            [whole("ended", "first", samples, lambda s: s.jobs_per_second)],
            mark=wanted,
        ),
        Panel(
            "From enqueue to start, ms (logarithmic)",
            [
                whole("p50", "first", samples, lambda s: s.p50_ms),
                whole("p99", "second", samples, lambda s: s.p99_ms),
            ],
            is_log=True,
        ),
        Panel("Memory of a worker, MB", by_worker(record, lambda v: mega(v.rss_bytes))),
        Panel("Open descriptors of a worker", by_worker(record, lambda v: v.fds)),
        Panel(
            "Busy cores of the machine",
            [
                whole("the soak", "first", samples, lambda s: s.own_cores),
                whole("other programs", "second", samples, lambda s: s.other_cores),
            ],
        ),
        Panel(
            "Size on disk, MB",
            [
                whole("database", "first", samples, lambda s: mega(s.file_bytes)),
                whole(
                    "write-ahead log", "second", samples, lambda s: mega(s.wal_bytes)
                ),
            ],
        ),
    ]


def mega(size: float) -> float:
    return size / MEGABYTE


def whole(
    name: str,
    colour: str,
    samples: Sequence[Sample],
    value: Callable[[Sample], float | None],
) -> Line:
    """One value of every sample; a sample without it is a gap."""
    pieces: list[Points] = [[]]
    for sample in samples:
        found = value(sample)
        if found is None:
            pieces.append([])
        else:
            pieces[-1].append((sample.at, found))
    return Line(name, colour, [piece for piece in pieces if piece])


def by_worker(record: Record, value: Callable[[Vitals], float]) -> list[Line]:
    """One line per slot, with one piece per process."""
    pieces: dict[str, list[Points]] = {}
    for life in record.lives().values():
        points = [(at, value(vitals)) for at, vitals in life]
        pieces.setdefault(life[0][1].slot, []).append(points)
    colours = ("first", "second")
    return [
        Line(name, colours[place % 2], pieces[name])
        for place, name in enumerate(sorted(pieces))
    ]


# --- how it is drawn


def draw_panel(record: Record, panel: Panel, top: float) -> list[str]:
    values = [v for line in panel.lines for piece in line.pieces for _, v in piece]
    if panel.mark is not None:
        values.append(panel.mark[0])
    scale = log_scale(values) if panel.is_log else linear_scale(values)

    def y(value: float) -> float:
        return top + PANEL * (1 - scale.share(value))

    out = [
        text(LEFT, top - 10, panel.title, weight=600),
        *legend(panel.lines, top - 10),
    ]
    for tick in scale.ticks:
        out.append(stroke("grid", [(LEFT, y(tick)), (LEFT + PLOT, y(tick))], 1))
        out.append(text(LEFT - 8, y(tick) + 4, f"{tick:g}", "soft", anchor="end"))
    if panel.mark is not None:
        level, name = panel.mark
        ends = [(LEFT, y(level)), (LEFT + PLOT, y(level))]
        out.append(stroke("soft", ends, 1, dashes="4 4"))
        words = f"dashed: {name}"
        out.append(text(WIDTH - RIGHT, top - 10, words, "soft", anchor="end"))
    for line in panel.lines:
        for piece in line.pieces:
            points = [(x_of(record, at), y(value)) for at, value in piece]
            points += points if len(points) == 1 else []  # a short life is a dot
            out.append(stroke(line.colour, points, 1.5))
    return out


def fault_lanes(record: Record, lanes: Sequence[str]) -> list[str]:
    """Faults by slot: a bar for a pause, a cross or a triangle for other faults."""
    out: list[str] = []
    for place, lane in enumerate(lanes):
        y = TOP + LANE * (place + 0.5)
        out.append(text(LEFT - 8, y + 4, lane, "soft", anchor="end", size=11))
        out.append(stroke("grid", [(LEFT, y), (LEFT + PLOT, y)], 1))
        mine = [f for f in record.faults if f.slot.startswith(lane.rstrip("s"))]
        out += [fault_mark(record, fault, y) for fault in mine]
    keys = (
        "bar: stopped (SIGSTOP)   cross: killed (SIGKILL)   ring: told to end (SIGTERM)"
    )
    out.append(text(WIDTH - RIGHT, TOP - 20, keys, "soft", anchor="end", size=11))
    return out


def fault_mark(record: Record, fault: Fault, y: float) -> str:
    x = x_of(record, fault.begin)
    if fault.kind == "stop":
        return rect("ink", x, y - 4, max(2.0, x_of(record, fault.end) - x), 8)
    if fault.kind == "term":
        colour = COLOURS["ink"][0]
        return (
            f'<circle class="s-ink" cx="{x:.1f}" cy="{y:.1f}" r="4" fill="none" '
            f'stroke="{colour}" stroke-width="1.5"/>'
        )
    down = stroke("ink", [(x - 4, y - 4), (x + 4, y + 4)], 1.5)
    return down + stroke("ink", [(x - 4, y + 4), (x + 4, y - 4)], 1.5)


def bands(record: Record, top: float, bottom: float) -> list[str]:
    found: list[str] = []
    for phase in record.named(PhaseName.FAULTS):
        begin, end = x_of(record, phase.begin), x_of(record, phase.end)
        found.append(rect("band", begin, top, end - begin, bottom - top))
    return found


def time_axis(record: Record, bottom: float) -> list[str]:
    minutes = record.seconds / 60
    step = nice_step(minutes / TIME_TICKS)
    out: list[str] = []
    for number in range(int(minutes / step + 1e-9) + 1):
        x = x_of(record, 60 * number * step)
        out.append(stroke("soft", [(x, bottom), (x, bottom + 4)], 1))
        out.append(text(x, bottom + 17, f"{number * step:g}", "soft", anchor="middle"))
    out.append(stroke("soft", [(LEFT, bottom), (LEFT + PLOT, bottom)], 1))
    middle = LEFT + PLOT / 2
    return [*out, text(middle, bottom + 34, "minutes", "soft", anchor="middle")]


def legend(lines: Sequence[Line], y: float) -> list[str]:
    """The names of a panel's lines, at its upper right; a single line needs none."""
    if len(lines) < 2:
        return []
    out: list[str] = []
    x = float(WIDTH - RIGHT)
    for line in reversed(lines):
        out.append(text(x, y, line.name, anchor="end"))
        x -= LETTER * len(line.name) + 6
        out.append(stroke(line.colour, [(x - 16, y - 4), (x, y - 4)], 3))
        x -= 32
    return out


# --- scales


def x_of(record: Record, at: float) -> float:
    return LEFT + PLOT * min(at, record.seconds) / record.seconds


def nice_step(rough: float) -> float:
    """The next of 1, 2, 5, 10 ... above this."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= rough * 0.999)


def linear_scale(values: Sequence[float]) -> Scale:
    top = max([*values, 0.0]) or 1.0
    step = nice_step(top / TICKS)
    count = math.ceil(top / step - 1e-9)
    ticks = [step * number for number in range(count + 1)]
    return Scale(0.0, ticks[-1], ticks, is_log=False)


def log_scale(values: Sequence[float]) -> Scale:
    above = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(above)))
    high = max(low + DECADES_MIN, math.ceil(math.log10(max(above))))
    ticks = [10.0**power for power in range(low, high + 1)]
    return Scale(ticks[0], ticks[-1], ticks, is_log=True)


# --- elements


def head(height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" font-size="12" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">'
    )


def style() -> str:
    rules = [
        f".f-{name}{{fill:{dark}}}.s-{name}{{stroke:{dark}}}"
        for name, (_, dark) in COLOURS.items()
    ]
    return f"<style>@media (prefers-color-scheme: dark){{{''.join(rules)}}}</style>"


def rect(colour: str, x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="f-{colour}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" fill="{COLOURS[colour][0]}"/>'
    )


def stroke(
    colour: str, points: Sequence[tuple[float, float]], width: float, dashes: str = ""
) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<polyline class="s-{colour}" points="{path}" fill="none" '
        f'stroke="{COLOURS[colour][0]}" stroke-width="{width:g}" '
        f'stroke-linejoin="round" stroke-linecap="round"{dashed}/>'
    )


def text(
    x: float,
    y: float,
    words: str,
    colour: str = "ink",
    *,
    anchor: str = "start",
    size: int = 12,
    weight: int = 400,
) -> str:
    return (
        f'<text class="f-{colour}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
        f'font-size="{size}" font-weight="{weight}" fill="{COLOURS[colour][0]}">'
        f"{escape(words)}</text>"
    )
