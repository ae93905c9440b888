"""Draws the figures of postgres_scaling.py: two panels, for light and dark pages."""

from collections.abc import Mapping
from typing import Any

from tests.soak.plot import Points, Scale, head, linear_scale, rect, stroke, style, text

WIDTH, LEFT, GAP, RIGHT = 960, 84, 96, 36
TOP, PANEL, FOOT = 92, 220, 64
PLOT = (WIDTH - LEFT - GAP - RIGHT) / 2


def svg(figures: Mapping[str, Any]) -> str:
    """The whole picture; both panels have one scale."""
    processes, ahead = figures["by_processes"], figures["by_prefetch"]
    scale = linear_scale([*map(float, processes.values()), *map(float, ahead.values())])
    height = TOP + PANEL + FOOT
    where = f"PostgreSQL {figures['postgresql']}, server and workers on "
    where += (
        f"{figures['cores']} cores, Python {figures['python']}, {figures['loop']}; "
    )
    where += durability(figures["settings"])
    out = [
        head(height),
        "<title>Jobs per second on PostgreSQL</title>",
        style(),
        rect("page", 0, 0, WIDTH, height),
        text(LEFT, 24, "PostgreSQL: jobs done a second", size=16, weight=600),
        text(LEFT, 44, where, colour="soft"),
        *panel(LEFT, "worker processes", processes, scale),
        *panel(LEFT + PLOT + GAP, "jobs claimed ahead (prefetch)", ahead, scale),
    ]
    return "\n".join([*out, "</svg>"]) + "\n"


def durability(settings: Mapping[str, str]) -> str:
    """The server's durability settings, in words."""
    off = [name for name, value in settings.items() if value == "off"]
    return f"{', '.join(off)} off" if off else "every commit on disk"


def panel(
    left: float, title: str, values: Mapping[Any, float], scale: Scale
) -> list[str]:
    """One series over evenly spaced points."""

    def y(value: float) -> float:
        return TOP + PANEL * (1 - scale.share(value))

    out = [text(left, TOP - 16, f"by {title}", weight=600)]
    for tick in scale.ticks:
        out.append(stroke("grid", [(left, y(tick)), (left + PLOT, y(tick))], 1))
        out.append(text(left - 8, y(tick) + 4, f"{tick:,.0f}", "soft", anchor="end"))
    step = PLOT / len(values)
    points: Points = []
    for number, (name, value) in enumerate(values.items()):
        x = left + step * (number + 0.5)
        points.append((x, y(value)))
        out.append(text(x, y(value) - 9, f"{value:,.0f}", anchor="middle"))
        out.append(rect("first", x - 3, y(value) - 3, 6, 6))
        out.append(text(x, TOP + PANEL + 18, f"{name}", "soft", anchor="middle"))
    middle = left + PLOT / 2
    out.append(text(middle, TOP + PANEL + 40, title, "soft", anchor="middle"))
    return [*out, stroke("first", points, 1.5)]
