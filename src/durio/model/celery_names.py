"""Names of Celery: errors about them say what to write in Durio."""

from typing import Any

# An option of Celery, and what to write; `{}` is the value that was given.
OPTIONS = {
    "bind": "Write @app.task, and `ctx: Context` as the first parameter.",
    "countdown": "Write .options(delay={}).enqueue(...).",
    "eta": "Write .options(at={}).enqueue(...).",
    "max_retries": "Write retry={}, or retry=Retry({}, base=30).",
}
# A method of Celery's tasks; `{}` is the task's name.
METHODS = {
    "apply_async": "Write await {0}.enqueue(...), or {0}.enqueue_sync(...) without an "
    "event loop; options come first: {0}.options(delay=60).enqueue(...).",
    "delay": "Write await {0}.enqueue(...), or {0}.enqueue_sync(...) without an event "
    "loop.",
}
# A method of Celery's signatures and canvases.
PLAN_METHODS = {
    "apply_async": "Write await plan.enqueue(...), or plan.enqueue_sync(...).",
    "delay": "Write await plan.enqueue(...), or plan.enqueue_sync(...).",
    "link": "Write signature | following.s().",
    "link_error": "Write .on_error(alert.s()).",
    "set": "Write task.options(queue=..., delay=...).s(...), or plan.options(...).",
    "stamp": "Write plan.options(meta={...}).",
}


def line_for_option(name: str, value: Any) -> str | None:
    """Return the line to write for this option of Celery; None for other names."""
    line = OPTIONS.get(name)
    given = repr(value) if isinstance(value, int | float) else "..."
    return None if line is None else line.replace("{}", given)


def line_for_method(name: str, task: str) -> str | None:
    """Return the line to write for this method of Celery; None for other names."""
    line = METHODS.get(name)
    return None if line is None else line.format(task.rpartition(".")[2])
