"""The answer of a worker about its stacks, as text."""

from collections.abc import Mapping
from typing import Any

from durio.model.quantities import counted, format_duration

EXECUTOR_TEXTS = {
    "loop": "on the event loop",
    "thread": "in a thread",
    "child": "in a child process",
}


def stack_text(answer: Mapping[str, Any], *, is_all: bool) -> str:
    """Return the attempts and children of a worker; with `is_all` also its threads."""
    lines, threads = [worker_heading(answer)], answer["threads"]
    if not answer["attempts"]:
        lines.append("  no running jobs")
    for attempt in answer["attempts"]:
        lines += [f"{attempt_line(attempt)}, {EXECUTOR_TEXTS[attempt['where']]}"]
        lines += indented(attempt["stack"])
    for child in answer["children"]:
        lines += [f"child process {child['pid']}", *indented(child["stack"])]
    for thread in threads if is_all else ():
        lines += [f"thread {thread['name']}", *indented(thread["stack"])]
    if not is_all:
        lines.append(f"  {counted(len(threads), 'thread')} of the process: --all")
    if answer["left_out"]:
        lines.append(f"... {answer['left_out']} more do not fit into one answer")
    return "\n".join(lines)


def worker_heading(answer: Mapping[str, Any]) -> str:
    """Return the name of the worker, and the lag of its loop."""
    lag = answer["loop_lag_seconds"]
    state = (
        "its event loop is blocked" if lag is None else f"loop lag {lag * 1000:.1f} ms"
    )
    return f"worker {answer['worker']} {answer['name']}: {state}"


def attempt_line(attempt: Mapping[str, Any]) -> str:
    """Return a line about a job, and for how long its attempt has run."""
    return f"{job_line(attempt)}, for {format_duration(attempt['seconds'])}"


def job_line(job: Mapping[str, Any]) -> str:
    return (
        f"{job['task']} {job['job_id']} queue {job['queue']} attempt {job['attempt']}"
    )


def indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.rstrip().splitlines()]
