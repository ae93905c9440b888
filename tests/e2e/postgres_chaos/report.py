"""The report of a run: a page for people, a JSON for machines."""

import json
import os
import platform
from typing import Any

from tests.checkout import commit
from tests.e2e.chaos.judge import Verdict
from tests.e2e.chaos.report import COUNTED
from tests.e2e.postgres_chaos.play import Played
from tests.e2e.postgres_chaos.strikes import STRIKES
from tests.figures import percentile

HEAD = """# Chaos report: PostgreSQL

Result of the last run of `make chaos-postgres`: worker processes and producers on one
PostgreSQL 18 with fsync on, while the server is restarted and killed and connections are cut at
every bad moment. The verdict is computed afterwards from append-only ledgers of all processes and a
dump of the store, by the same rules as the [chaos report](chaos.md), which explains the words.
"""
TAIL = """
- **times:** how often the fault struck.
- **works again:** seconds from the end of a fault to the next job that a worker began, for each
  worker that survived it. Promised: 10; the run is broken at three times that.
- **cut before:** the message never reached the server whole. **Cut after:** it was executed, and
  its reply was dropped. *enqueue* and *exchange* are the single statements that commit by
  themselves; *commit* is an explicit COMMIT: of a repeated enqueue, or of an exchange in steps.
- Faults of the server explain no re-run: a job runs twice only where its worker was killed.
"""


def facts(played: Played) -> dict[str, Any]:
    """Return where and how it was run."""
    plan = played.plan
    return {
        "commit": commit(),
        "machine": f"{platform.system()} {platform.release()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "seed": played.seed,
        "seconds": round(played.seconds),
        "workers": plan.workers,
        "producers": plan.producers,
    }


def words(verdict: Verdict) -> dict[str, int]:
    """Return the seven figures, and the re-runs."""
    return {name: getattr(verdict, name) for name in COUNTED}


def times(values: list[float]) -> dict[str, float | None]:
    """Return a summary of these times."""
    return {
        "p50": percentile(values, 0.5),
        "p99": percentile(values, 0.99),
        "max": max(values, default=None),
    }


def as_json(played: Played) -> str:
    verdict = played.verdict
    told = {
        **facts(played),
        "verdict": verdict.word,
        **words(verdict),
        "problems": verdict.problems,
        "too_little": verdict.too_little,
        "struck": dict(played.struck),
        "works_again": {name: times(each) for name, each in played.resumed.items()},
        "rerun": times(verdict.recovery),
        "server_complaints": dict(played.complaints.most_common()),
    }
    return json.dumps(told, indent=1)


def as_page(played: Played) -> str:
    """Return the page for the docs."""
    verdict = played.verdict
    run = ", ".join(f"{name} {value}" for name, value in facts(played).items())
    lines = [HEAD, f"Run: {run}.", "", f"**Verdict: {verdict.word}.**", ""]
    lines += [f"| {' | '.join(COUNTED.values())} |", f"|{'---|' * len(COUNTED)}"]
    lines += [f"| {' | '.join(map(str, words(verdict).values()))} |", ""]
    lines += [
        "| fault | times | works again: p50 | p99 | max |",
        "|---|---|---|---|---|",
    ]
    for name in STRIKES:
        seconds = times(played.resumed.get(name, [])).values()
        row = (name, str(played.struck[name]), *map(shown, seconds))
        lines.append(f"| {' | '.join(row)} |")
    rerun = times(verdict.recovery)
    again = f"{shown(rerun['p50'])} s (p50), {shown(rerun['max'])} s (max)"
    none = "" if verdict.problems + verdict.too_little else " none."
    lines += ["", f"Jobs of killed workers ran again after {again}.", ""]
    lines += [f"**Problems:**{none}", ""]
    lines += [f"- {problem}" for problem in verdict.problems + verdict.too_little]
    lines += ["**What the server said:**", ""]
    lines += [f"- {count} x {text}" for text, count in played.complaints.most_common()]
    return "\n".join(lines).rstrip("\n") + "\n" + TAIL


def shown(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def in_short(played: Played) -> str:
    """Return a few lines for a terminal."""
    verdict = played.verdict
    told = [f"{verdict.word} in {played.seconds:.0f} s, seed {played.seed}"]
    told.append(", ".join(f"{name} {value}" for name, value in words(verdict).items()))
    for name, seconds in sorted(played.resumed.items()):
        figures = times(seconds)
        told.append(
            f"{name}: works again p50 {shown(figures['p50'])} s, "
            f"max {shown(figures['max'])} s"
        )
    return "\n".join([*told, *verdict.problems, *verdict.too_little])
