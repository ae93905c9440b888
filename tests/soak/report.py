"""Writes the report of a soak: a page with its figures, and the plot."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.soak.judge import Finding, latency
from tests.soak.plot import minutes_of, svg
from tests.soak.record import PhaseName, Record

PICTURE = (
    "![Throughput, latency, memory, descriptors and file size over time, with the faults "
    "marked](soak.svg)"
)
CUT_SHORT = (
    "**Cut short:** this run was stopped; these are the figures up to then, and "
    "not the verdict of a whole run."
)
EXPLANATION = (
    "Worker 1 is only ever stopped (SIGSTOP), so that one process lives through the whole "
    "run; worker 2 is also killed and asked to stop, and replaced at once. This page is "
    "written by `make soak`; `tests/soak/judge.py` has the exact bounds."
)
WORDS = (
    ("attempted", "enqueues called"),
    ("acknowledged", "enqueues confirmed by the store"),
    ("ok", "acknowledged and done, with their effect"),
    ("lost", "acknowledged and not done"),
    ("unexpected", "run, but never enqueued"),
    ("duplicated", "outcomes accepted after the first"),
    ("recovered", "enqueues whose caller was killed, which ran anyway"),
    ("reruns", "attempts repeated after a fault or an intended failure"),
    ("unexplained", "attempts repeated without a reason"),
)


def write_report(record: Record, findings: Sequence[Finding], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak.svg").write_text(svg(record), encoding="utf-8")
    (folder / "soak.md").write_text(page(record, findings), encoding="utf-8")


def page(record: Record, findings: Sequence[Finding]) -> str:
    faults = Counter(fault.kind for fault in record.faults)
    parts = [
        "# Soak",
        summary(record),
        *([CUT_SHORT] if record.cut_short else []),
        PICTURE,
        EXPLANATION,
        "## Verdict",
        table(
            ("what", "verdict", "figures"),
            [(each.what, each.judgement, each.text) for each in findings],
        ),
        "## Jobs",
        table(
            ("word", "meaning", "jobs"),
            [(word, what, f"{getattr(record.totals, word):,}") for word, what in WORDS],
        ),
        "## Latency, from the enqueue to the first start",
        table(
            ("phases", "p50", "p99"),
            [(name, *latency_words(record, name)) for name in PhaseName],
        ),
        "Means over the samples of such phases.",
        "## Faults",
        table(
            ("fault", "times"), [(kind, str(n)) for kind, n in sorted(faults.items())]
        ),
        "## Run",
        table(
            ("", ""),
            [
                (
                    "commit",
                    f"`{record.commit}` (dirty: with changes not yet committed)",
                ),
                ("machine", record.machine),
                ("command", f"`{record.command}`"),
                ("seed", str(record.seed)),
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def summary(record: Record) -> str:
    healings = len(record.named(PhaseName.HEALED))
    return (
        "Two workers and two producers, real processes on one SQLite file, for "
        f"{minutes_of(record)} minutes at {record.rate:g} jobs a second. Done jobs are "
        f"deleted after {record.retention_seconds:g} s. After a calm base phase, faults "
        f"and healing by turns: {healings} times."
    )


def latency_words(record: Record, name: PhaseName) -> tuple[str, str]:
    p50, p99 = latency(record, name)
    return f"{p50:.0f} ms", f"{p99:.0f} ms"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
