"""What the statements of the dashboard's calls read on PostgreSQL, by `auto_explain`.

Big tables are those with a row for each job. A statement is named that counts such a table
without a bound, or skips rows of it with OFFSET, or reads more than READ_MAX of its rows.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

EXPLAIN = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "auto_explain.log_nested_statements": "off",
}
# For connections from then on.
EXPLAIN_ALL = """
do $$ begin
  execute format('alter database %I set auto_explain.log_min_duration = 0', current_database());
end $$
"""
BIG = re.compile(r"^(job|ready|sched|kept|hist|hist_\w+|seed)$")
READ_MAX = 110_000  # a look ends after 100,000 rows
PLANS = re.compile(r"duration: ([\d.]+) ms +plan:\n((?:\t.*\n)+)")
OFFSET = re.compile(r"\boffset\b(?!\s+0\b)", re.IGNORECASE)

Node = dict[str, Any]


class Reading(NamedTuple):
    """What one statement did."""

    sql: str
    milliseconds: float
    rows: int  # read from big tables
    counts: bool  # all rows of a big table that match, without a bound
    skips: bool

    @property
    def problem(self) -> str:
        """What is wrong with it; empty if nothing is."""
        found: list[str] = []
        if self.counts and self.rows > READ_MAX:
            found.append("counts without a bound")
        if self.skips and self.rows > READ_MAX:
            found.append("skips rows with OFFSET")
        if not found and self.rows > READ_MAX:
            found.append("reads many rows")
        return ", ".join(found)


def readings(log: str) -> Iterator[Reading]:
    """Return what each statement in the server's log read."""
    for took, text in PLANS.findall(log):
        explained = json.loads(text.replace("\n\t", "\n"))
        sql, plan = explained["Query Text"], explained["Plan"]
        yield Reading(
            " ".join(sql.split()),
            float(took),
            round(sum(rows_of(node) for node in nodes_of(plan))),
            has_open_count(plan),
            bool(OFFSET.search(sql)),
        )


def nodes_of(plan: Node) -> Iterator[Node]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from nodes_of(each)


def is_big(node: Node) -> bool:
    return bool(BIG.match(str(node.get("Relation Name", ""))))


def rows_of(node: Node) -> float:
    """The rows that a node read from a big table, also those that it filtered away."""
    if not is_big(node):
        return 0.0
    removed = node.get("Rows Removed by Filter", 0)
    removed += node.get("Rows Removed by Index Recheck", 0)
    return (node["Actual Rows"] + removed) * node["Actual Loops"]


def has_open_count(node: Node, *, is_counted: bool = False) -> bool:
    """Whether an aggregate reads a big table with no LIMIT in between."""
    kind = str(node["Node Type"])
    if is_counted and is_big(node):
        return True
    is_counted = (is_counted or "Aggregate" in kind) and kind != "Limit"
    return any(
        has_open_count(each, is_counted=is_counted) for each in node.get("Plans", ())
    )
