"""What workers answer, as text for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from durio.cli.output import to_json
from durio.model.duration import spoken

WHERE = {
    "loop": "on the event loop",
    "thread": "in a thread",
    "child": "in a child process",
}
WIDTH = 12
MIB = 2**20


def stack_text(answer: Mapping[str, Any]) -> str:
    """Where every attempt, thread and child is."""
    lines = [head(answer)]
    for attempt in answer["attempts"]:
        lines += [f"{attempt_line(attempt)}, {WHERE[attempt['where']]}"]
        lines += indented(attempt["stack"])
    for thread in answer["threads"]:
        lines += [f"thread {thread['name']}", *indented(thread["stack"])]
    for child in answer["children"]:
        lines += [f"child process {child['pid']}", *indented(child["stack"])]
    if answer["left_out"]:
        lines.append(f"... {answer['left_out']} more do not fit into one answer")
    return "\n".join(lines)


def report_text(answer: Mapping[str, Any]) -> str:
    """What a worker does and has."""
    stats = answer["stats"]
    figures = {
        "app": f"{answer['namespace']}, durio {answer['version']}",
        "queues": ", ".join(answer["queues"]) or "all",
        "weights": named(answer["weights"]),
        "slots": named(answer["slots"]),
        "running": f"{stats['running']} of {stats['concurrency']}",
        "reserved": stats["reserved"],
        "ended": stats["ended"],
        "cpu": spoken(stats["cpu_seconds"]),
        "memory": f"{stats['rss_bytes'] // MIB} MiB",
        "children": stats["children"],
        "tasks": ", ".join(answer["registered"]),
    }
    lines = [head(answer)]
    lines += [
        f"  {name:<{WIDTH}}{value}" for name, value in figures.items() if value != ""
    ]
    lines += section("active", [active_line(each) for each in answer["active"]])
    lines += section("reserved", [job_line(each) for each in answer["reserved"]])
    return "\n".join(lines)


def head(answer: Mapping[str, Any]) -> str:
    """Who it is, and how its loop is."""
    lag = answer["loop_lag_seconds"]
    told = (
        "its event loop is blocked" if lag is None else f"loop lag {lag * 1000:.1f} ms"
    )
    return f"worker {answer['worker']} {answer['name']}: {told}"


def section(title: str, lines: Sequence[str]) -> list[str]:
    """Some lines under a title, if there are any."""
    return [title, *(f"  {line}" for line in lines)] if lines else []


def named(values: Mapping[str, Any]) -> str:
    """`high=4, low=1`."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def attempt_line(attempt: Mapping[str, Any]) -> str:
    """Which attempt at what, and for how long already."""
    return f"{job_line(attempt)}, for {spoken(attempt['seconds'])}"


def active_line(attempt: Mapping[str, Any]) -> str:
    """A running attempt with its limit and progress."""
    hard = attempt["hard_seconds"]
    limit = "no limit" if hard is None else f"limit {spoken(hard)}"
    progress = attempt["progress"]
    told = "" if progress is None else f", progress {to_json(progress)}"
    return f"{attempt_line(attempt)}, {limit}{told}"


def job_line(job: Mapping[str, Any]) -> str:
    """A job in a worker's hands."""
    return (
        f"{job['task']} {job['job_id']} queue {job['queue']} attempt {job['attempt']}"
    )


def indented(text: str) -> list[str]:
    """Lines below a head."""
    return [f"    {line}" for line in text.rstrip().splitlines()]
