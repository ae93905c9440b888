"""Checks of task code: no backoff, no time limit, blocking calls, pickles, naive times."""

import inspect
import os
from collections.abc import Callable, Iterator, Sequence

from durio.app.tasks import function_location
from durio.doctor.source import SourceCall, calls_of
from durio.model.finding import Finding, fine, warning
from durio.ports.handler import Handler

NAMED_MAX = 5
# Calls that block the event loop; a name that ends with a dot includes everything below it.
BLOCKING = (
    *("time.sleep", "os.system", "os.waitpid", "os.wait", "builtins.input", "input"),
    *("subprocess.run", "subprocess.call", "subprocess.check_call"),
    *("subprocess.check_output", "subprocess.getoutput", "requests."),
    *("urllib.request.urlopen", "urllib3.request", "http.client.", "ftplib."),
    *("smtplib.", "imaplib.", "poplib.", "paramiko.", "boto3.client"),
    *("httpx.get", "httpx.post", "httpx.put", "httpx.patch", "httpx.delete"),
    *("httpx.request", "httpx.Client", "socket.create_connection"),
    *("sqlite3.connect", "psycopg2.connect", "psycopg.connect", "pymysql.connect"),
    *("mysql.connector.connect", "MySQLdb.connect", "redis.Redis", "redis.from_url"),
)
PICKLES = (
    "pickle.",
    "_pickle.",
    "cPickle.",
    "cloudpickle.",
    "dill.",
    "shelve.",
    "marshal.",
)
# How many positional arguments a call takes before one of them is a time zone.
NAIVE_TIME_CALLS = {
    "datetime.datetime.utcnow": 99,
    "datetime.datetime.utcfromtimestamp": 99,
    "datetime.datetime.today": 99,
    "datetime.datetime.now": 1,
    "datetime.datetime.fromtimestamp": 2,
}

Handlers = Sequence[Handler]


def code_checks(handlers: Handlers) -> dict[str, Callable[[], Iterator[Finding]]]:
    found = {
        "code.backoff": backoff,
        "code.time_limits": time_limits,
        "code.blocking_calls": blocking_calls,
        "code.pickle": pickles,
        "code.naive_times": naive_times,
    }
    return {name: lambda check=check: check(handlers) for name, check in found.items()}


def backoff(handlers: Handlers) -> Iterator[Finding]:
    """Report tasks that are retried at once when they fail."""
    bad = [
        h.task for h in handlers if h.retry.has_no_backoff or h.errors.has_no_backoff
    ]
    problem = f"retried without a pause: {first_names(bad)}"
    fix = "Set Retry(base=...), and delays in errors=, above 0: a pause lets the failing service recover."
    yield task_finding("code.backoff", bad, problem, fix, "every retry waits")


def time_limits(handlers: Handlers) -> Iterator[Finding]:
    """Report tasks that may hang forever."""
    bad = [h.task for h in handlers if h.limits.hard_seconds is None]
    problem = f"without a time limit (timeout=None): {first_names(bad)}"
    fix = "Set a timeout, even hours: a job that hangs keeps its slot for ever."
    yield task_finding(
        "code.time_limits", bad, problem, fix, "every task has a hard limit"
    )


def blocking_calls(handlers: Handlers) -> Iterator[Finding]:
    """Report async tasks that block every other job of their worker."""
    on_loop = [h for h in handlers if h.is_async and not h.is_process]
    bad = bad_calls(on_loop, is_blocking)
    fix = "Use an async library, or a plain `def` task: those run in threads."
    problem = f"blocks the event loop: {first_names(bad)}"
    yield task_finding(
        "code.blocking_calls", bad, problem, fix, "none seen in async tasks"
    )


def pickles(handlers: Handlers) -> Iterator[Finding]:
    """Report tasks that load pickles, because a pickle may run any code."""
    bad = bad_calls(handlers, lambda call: is_one_of(call.name, PICKLES))
    fix = "Use JSON: arguments and results are stored as JSON."
    yield task_finding("code.pickle", bad, first_names(bad), fix, "none seen in tasks")


def naive_times(handlers: Handlers) -> Iterator[Finding]:
    """Report tasks that make times without a zone, which differ between machines."""
    bad = bad_calls(handlers, is_naive)
    fix = "Use datetime.now(UTC)."
    yield task_finding(
        "code.naive_times", bad, first_names(bad), fix, "none seen in tasks"
    )


def bad_calls(handlers: Handlers, is_bad: Callable[[SourceCall], bool]) -> list[str]:
    return [
        f"{h.task} calls {call.name} ({call_location(h, call)})"
        for h in handlers
        for call in calls_of(h.function)
        if is_bad(call)
    ]


def is_blocking(call: SourceCall) -> bool:
    return not call.is_awaited and is_one_of(call.name, BLOCKING)


def is_naive(call: SourceCall) -> bool:
    wanted = NAIVE_TIME_CALLS.get(call.name)
    if wanted is None or call.keywords & {"tz", "**"}:
        return False
    return call.arguments < wanted


def is_one_of(name: str, listed: Sequence[str]) -> bool:
    """Whether a resolved name is listed, or is below a listed one that ends with a dot."""
    return any(
        name.startswith(each) if each.endswith(".") else name == each for each in listed
    )


def call_location(handler: Handler, call: SourceCall) -> str:
    path = function_location(inspect.unwrap(handler.function)).rpartition(":")[0]
    return f"{path.rpartition(os.sep)[2]}:{call.line}"


def first_names(bad: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(bad) - NAMED_MAX
    return "; ".join(bad[:NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")


def task_finding(
    name: str, bad: Sequence[str], problem: str, fix: str, ok_text: str
) -> Finding:
    """Return one finding about all tasks: a warning if any is `bad`, else `ok_text`."""
    return warning(name, problem, fix) if bad else fine(name, ok_text)
