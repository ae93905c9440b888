"""The plot of the soak: well-formed, inside its frame, legible, true to its figures."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from tests.soak.judge import judge
from tests.soak.planted import changed, healthy
from tests.soak.plot import (
    COLOURS,
    LEFT,
    PLOT,
    WIDTH,
    linear_scale,
    log_scale,
    svg,
    x_of,
)
from tests.soak.record import PhaseName, Record
from tests.soak.report import page

SVG = "{http://www.w3.org/2000/svg}"


def drawn(record: Record) -> ET.Element:
    return ET.fromstring(svg(record))  # noqa: S314 - it is our own


def with_class(root: ET.Element, tag: str, name: str) -> list[ET.Element]:
    return [each for each in root.iter(f"{SVG}{tag}") if each.get("class") == name]


def number(element: ET.Element, name: str) -> float:
    return float(element.get(name, "nan"))


def points(element: ET.Element) -> list[tuple[float, float]]:
    pairs = [pair.split(",") for pair in element.get("points", "").split()]
    return [(float(x), float(y)) for x, y in pairs]


def test_everything_lies_inside_the_frame() -> None:
    root = drawn(healthy())
    height = number(root, "height")
    places = [p for line in root.iter(f"{SVG}polyline") for p in points(line)]
    places += [(number(t, "x"), number(t, "y")) for t in root.iter(f"{SVG}text")]
    assert len(places) > 1000
    assert all(0 <= x <= WIDTH and 0 <= y <= height for x, y in places)


def test_each_phase_of_faults_has_its_band() -> None:
    record = healthy()
    bands = with_class(drawn(record), "rect", "f-band")
    wanted = [
        (x_of(record, phase.begin), x_of(record, phase.end))
        for phase in record.named(PhaseName.FAULTS)
    ]
    seen = [
        (number(band, "x"), number(band, "x") + number(band, "width")) for band in bands
    ]
    assert [pytest.approx(each, abs=0.2) for each in wanted] == seen


def test_each_fault_has_its_mark() -> None:
    record = healthy()
    record.faults.append(replace(record.faults[0], kind="term"))
    root = drawn(record)
    kinds = [fault.kind for fault in record.faults]
    assert len(with_class(root, "rect", "f-ink")) == kinds.count("stop")
    assert len(with_class(root, "polyline", "s-ink")) == 2 * kinds.count("kill")
    assert len(with_class(root, "circle", "s-ink")) == kinds.count("term")


def test_axes_say_their_units() -> None:
    words = [text.text or "" for text in drawn(healthy()).iter(f"{SVG}text")]
    for wanted in ("jobs ended a second", ", ms", "Memory of a worker, MB", "minutes"):
        assert any(wanted in each for each in words), wanted


def test_a_line_goes_where_its_figures_are() -> None:
    """Throughput falls to zero, at the axis, two thirds of the way through."""
    record = healthy()
    changed(record, lambda s: replace(s, jobs_per_second=0.0), 400.0)
    longest = max(
        with_class(drawn(record), "polyline", "s-first"), key=lambda p: len(points(p))
    )
    line = points(longest)
    floor = max(y for _, y in line)
    fallen = [x for x, y in line if y == floor]
    assert min(fallen) == pytest.approx(x_of(record, 402.0), abs=0.2)
    assert max(fallen) == pytest.approx(LEFT + PLOT, abs=0.2)


def test_a_process_is_a_piece_of_a_line() -> None:
    """A new process starts a new line: memory is not drawn across its start."""
    record = healthy()
    second = [life for life in record.lives().values() if life[0][1].slot[-1] == "2"]
    lines = with_class(drawn(record), "polyline", "s-second")
    swatches = 5  # p99, twice worker 2, other programs, WAL
    whole = 3  # the first, the fourth and the last panel
    assert len(lines) == 2 * len(second) + swatches + whole


def test_a_gap_in_the_latency_is_a_gap() -> None:
    record = healthy()
    seen = record.samples[50]
    before = len(with_class(drawn(record), "polyline", "s-first"))
    record.samples[50] = replace(seen, p50_ms=None, p99_ms=None)
    assert len(with_class(drawn(record), "polyline", "s-first")) == before + 1


# --- legible, on a light and on a dark page


def contrast(one: str, other: str) -> float:
    """The luminance ratio of WCAG, which says what readers need."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [0, 1])
@pytest.mark.parametrize("ground", ["page", "band"])
@pytest.mark.parametrize(
    ("name", "ratio"), [("ink", 7), ("soft", 4.5), ("first", 4.5), ("second", 4.0)]
)
def test_colours_stand_out(name: str, ratio: float, ground: str, dark: int) -> None:
    assert contrast(COLOURS[name][dark], COLOURS[ground][dark]) >= ratio


def test_every_class_has_a_dark_colour() -> None:
    root = drawn(healthy())
    [style] = root.iter(f"{SVG}style")
    used = {each.get("class") for each in root.iter() if each.get("class")}
    assert "prefers-color-scheme: dark" in (style.text or "")
    for name in used:
        assert f".{name}{{" in (style.text or ""), name


# --- scales


@pytest.mark.parametrize("top", [0.0, 0.3, 1.0, 7.0, 181.0, 99_999.0])
def test_linear_scale_holds_its_values(top: float) -> None:
    scale = linear_scale([0.0, top])
    assert scale.ticks[0] == 0.0
    assert scale.high >= top
    assert 2 <= len(scale.ticks) <= 7


def test_log_scale_holds_its_values() -> None:
    scale = log_scale([3.0, 4000.0])
    assert scale.ticks == [1.0, 10.0, 100.0, 1000.0, 10_000.0]
    assert scale.share(0.0) == 0.0
    assert log_scale([]).ticks == [1.0, 10.0, 100.0]


# --- the page


def test_page_has_the_figures() -> None:
    record = healthy()
    text = page(record, judge(record))
    assert text.startswith("# Soak\n")
    assert "](soak.svg)" in text
    assert "| lost | acknowledged and not done | 0 |" in text
    assert "| no job lost, none done twice | held |" in text
    for figure in ("`commit`", "`command`", "machine", "10 minutes"):
        assert figure in text
