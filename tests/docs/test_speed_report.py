"""The report of speed: its page and its plot are those of its figures."""

import copy
import json
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from benchmarks.release import with_entry
from benchmarks.release_page import CASES, PANELS, page, svg
from tests.checkout import ROOT
from tests.soak.test_plot import SVG, number, points, with_class

FOLDER = ROOT / "docs/reports"
ENTRIES = json.loads((FOLDER / "speed.json").read_text(encoding="utf-8"))


@pytest.fixture
def entry() -> dict[str, Any]:
    return copy.deepcopy(ENTRIES[0])


def lines(entry: dict[str, Any], name: str) -> list[list[tuple[float, float]]]:
    """Return the lines of one store, panel by panel."""
    root = ET.fromstring(svg(entry))  # noqa: S314 - it is our own
    found = [points(each) for each in with_class(root, "polyline", f"s-{name}")]
    return found[-len(PANELS) :]  # the first one is that of the legend


def test_page_and_plot_are_those_of_the_figures() -> None:
    for name, text in (("speed.md", page(ENTRIES)), ("speed.svg", svg(ENTRIES[0]))):
        assert (FOLDER / name).read_text(encoding="utf-8") == text, (
            f"{name} is out of date: python -m benchmarks.release --draw"
        )


def test_every_figure_is_on_the_page(entry: dict[str, Any]) -> None:
    assert {case for case, _, _ in CASES} == {*entry["speed"]["sqlite"]}
    for number_, store in enumerate(("sqlite", "postgresql")):
        for place, case in enumerate(entry["speed"][store]):
            entry["speed"][store][case] = 1000.0 + 100 * number_ + place
    text = page([entry])
    for value in [*range(1000, 1000 + len(CASES)), *range(1100, 1100 + len(CASES))]:
        assert f"| {value:,} |" in text


def test_same_version_is_replaced_and_others_are_kept(entry: dict[str, Any]) -> None:
    older = {**entry, "version": "0.0.9"}
    newer = {**entry, "commit": "another"}
    entries = with_entry([entry, older], newer)
    assert entries == [newer, older]
    text = page(entries)
    assert "`another`" in text
    assert "| 0.0.9 |" in text.partition("## Releases")[2]


def test_a_missing_peer_is_named(entry: dict[str, Any]) -> None:
    figures = {"drain 10": entry["speed"]["postgresql"]["drain"] / 4, "one": 1234.0}
    figures |= {"wake-up p50 ms": 4.25, "wake-up p99 ms": 9.75}
    there = page([{**entry, "peers": {"PgQueuer 1.6.0": figures}}])
    assert "not installed" not in there
    assert "PgQueuer 1.6.0, batches of 10 |" in there
    assert "| 4.0 | 1,234 | 4.25 ms | 9.75 ms |" in there
    assert "| PgQueuer | not installed |" in page([{**entry, "peers": {}}])


def test_a_line_goes_where_its_figures_are(entry: dict[str, Any]) -> None:
    entry["speed"]["sqlite"]["drain 2"] = 2 * entry["speed"]["sqlite"]["drain"]
    entry["speed"]["sqlite"]["drain 4"] = 0.0
    (_, one), (_, two), (_, none) = lines(entry, "first")[0]
    assert none - two == pytest.approx(2 * (none - one), abs=0.3)
    assert [len(line) for line in lines(entry, "second")] == [3, 4, 4]


def test_plot_lies_inside_its_frame(entry: dict[str, Any]) -> None:
    root = ET.fromstring(svg(entry))  # noqa: S314 - it is our own
    places = [p for line in root.iter(f"{SVG}polyline") for p in points(line)]
    places += [(number(t, "x"), number(t, "y")) for t in root.iter(f"{SVG}text")]
    width, height = number(root, "width"), number(root, "height")
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)
