"""Decide in Python whether a stored job matches a term of the query language.

Stores filter what they can (`query_pushdown.py`); this is the meaning of every term, and
what filters the rest on the way down.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, cast

from durio.client.job_view import readable
from durio.model.error_groups import group_of_job
from durio.model.errors import InvalidOption
from durio.model.failure import Failure, failures
from durio.model.job import PRIORITY_MAX, READY, RUNNING, StoredJob, attempt_number
from durio.model.names import queue_of
from durio.model.options import NO_ROW_OPTIONS, RowOptions, row_options
from durio.model.query_keys import Moments, QueryValue
from durio.model.query_language import QueryTerm
from durio.ports.browse import WorkerRow

WORD_DIGITS_MIN = 8  # of a bare word that may begin an id
MISSING: Any = object()


class SearchFacts(NamedTuple):
    """What a term is compared with, besides the job."""

    app: str | None  # names without an App belong to it; None: to any
    now: float
    workers: Mapping[str, WorkerRow] = {}  # by id and by name

    @property
    def now_ms(self) -> int:
        return int(self.now * 1000)


class DecodedJob:
    """A stored job; each part is decoded at most once, when a term asks for it."""

    def __init__(self, stored: StoredJob) -> None:
        self.stored = stored

    @cached_property
    def options(self) -> RowOptions:
        try:
            return row_options(self.stored.opts)
        except InvalidOption:
            return NO_ROW_OPTIONS

    @cached_property
    def calls(self) -> list[tuple[list[Any], dict[str, Any]]]:
        """The arguments of its calls: of one, or of all that a chunk has."""
        payload = readable(self.stored.payload)
        calls = payload if self.options.is_chunk else [payload]
        found: list[tuple[list[Any], dict[str, Any]]] = []
        for call in cast("list[Any]", calls) if isinstance(calls, list) else ():
            match call:
                case [list(), dict()]:
                    found.append(cast("tuple[list[Any], dict[str, Any]]", call))
                case _:
                    continue  # damaged: it has no arguments that can be named
        return found

    @cached_property
    def last_failure(self) -> Failure | None:
        found = failures(self.stored.errors)
        return found[-1] if found else None

    @cached_property
    def error(self) -> str | None:
        """Type and message of the last error, as stores search them."""
        last = self.last_failure
        return None if last is None else f"{last.type}: {last.message}".casefold()

    @cached_property
    def group(self) -> str | None:
        return group_of_job(self.stored)

    @property
    def made_ms(self) -> int:
        """When its id was made, in milliseconds since 1970."""
        return int.from_bytes(self.stored.id[:6])


def matches(term: QueryTerm, job: DecodedJob, facts: SearchFacts) -> bool:
    """Whether a job matches one term."""
    return is_meant(term, job, facts) is not term.is_negated


def is_meant(term: QueryTerm, job: DecodedJob, facts: SearchFacts) -> bool:
    if term.key is None:
        return is_meant_by_word(term.values[0], job, facts)
    name = term.key.name
    if name in PATH_KEYS:
        found = list(PATH_KEYS[name](job, term.path))
        return any(json_fits(each, value) for value in term.values for each in found)
    if name in TEXT_KEYS:
        texts = TEXT_KEYS[name](job, facts)
        return any(
            text_fits(text, value)
            for text in texts
            if text is not None
            for value in term.values
        )
    fits = OTHER_KEYS[name]
    return any(fits(job, value, facts) for value in term.values)


def is_meant_by_word(word: QueryValue, job: DecodedJob, facts: SearchFacts) -> bool:
    """Whether a bare word is the task, the beginning of the id, or a part of the error."""
    if task_fits(job, word, facts):
        return True
    digits = word.text.lower().replace("-", "")
    if len(digits) >= WORD_DIGITS_MIN and job.stored.id.hex().startswith(digits):
        return True
    if word.is_prefix or not word.text.strip():
        return False
    return job.error is not None and word.text.casefold() in job.error


def task_fits(job: DecodedJob, value: QueryValue, facts: SearchFacts) -> bool:
    """Whether the task is meant; a name without a dot is that of a task of the App."""
    task = job.stored.task
    if "." in value.text:
        return text_fits(task, value)
    app, dot, own = task.partition(".")
    return bool(dot) and facts.app in (None, app) and text_fits(own, value)


def text_fits(text: str, value: QueryValue) -> bool:
    return text.startswith(value.text) if value.is_prefix else text == value.text


# --- keys whose values are texts


Texts = Iterator[str | None] | tuple[str | None, ...]


def workers_of(job: DecodedJob, facts: SearchFacts) -> Texts:
    """Return id and name of the worker that runs it, or the name of the last that failed."""
    worker = job.stored.worker
    if worker is not None:
        row = facts.workers.get(str(worker))
        return (str(worker), None if row is None else row.info["name"])
    last = job.last_failure
    return (last.worker or None,) if last else ()


def versions_of(job: DecodedJob, facts: SearchFacts) -> Texts:
    """Return the version of the code of that worker, while the worker is registered."""
    found = (facts.workers.get(name) for name in workers_of(job, facts) if name)
    return tuple(row.info.get("code_version") for row in found if row is not None)[:1]


def schedule_of(job: DecodedJob, facts: SearchFacts) -> Texts:
    del facts
    tick = job.options.tick
    return (tick.schedule if tick else None,)


TEXT_KEYS: Mapping[str, Callable[[DecodedJob, SearchFacts], Texts]] = {
    "queue": lambda job, _: (queue_of(job.stored.lane),),
    "key": lambda job, _: (job.options.key,),
    "reason": lambda job, _: (job.stored.reason,),
    "worker": workers_of,
    "version": versions_of,
    "schedule": schedule_of,
}


# --- arguments and meta


def arguments_at(job: DecodedJob, path: tuple[str, ...]) -> Iterator[Any]:
    """Yield the value at a path of each call: by name, or of a positional by its number."""
    first, *rest = path
    for args, kwargs in job.calls:
        place = place_in(args, first)
        found = kwargs.get(first, MISSING) if place is MISSING else place
        yield value_below(found, rest)


def meta_at(job: DecodedJob, path: tuple[str, ...]) -> Iterator[Any]:
    yield value_below(job.options.meta or {}, path)


def value_below(value: Any, path: tuple[str, ...] | list[str]) -> Any:
    """Return the value at a path of objects and lists; MISSING without one."""
    for name in path:
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(name, MISSING)
        else:
            value = place_in(value, name)
    return value


def place_in(value: Any, name: str) -> Any:
    """Return the item of a list with this number; MISSING for anything else."""
    if not isinstance(value, list) or not (name.isascii() and name.isdigit()):
        return MISSING
    items = cast("list[Any]", value)
    return items[int(name)] if int(name) < len(items) else MISSING


def json_fits(found: Any, value: QueryValue) -> bool:
    """Whether a JSON value, or an item of a list, is the one that is meant."""
    if found is MISSING:
        return False
    if value.is_prefix and not value.text:
        return True
    items = cast("list[Any]", found) if isinstance(found, list) else [found]
    return any(item_fits(item, value) for item in items)


def item_fits(item: Any, value: QueryValue) -> bool:
    if isinstance(item, str):
        return not value.operator and text_fits(item, value)
    if item is None or isinstance(item, bool):
        text = {None: "null", True: "true", False: "false"}[item]
        return not value.operator and text_fits(text, value)
    if not isinstance(item, int | float):
        return False
    if value.is_prefix:
        return str(item).startswith(value.text)
    return value.meaning is not None and compared(item, value, value.meaning)


PATH_KEYS = {"args": arguments_at, "meta": meta_at}


# --- numbers and times


def compared(found: float, value: QueryValue, limit: float) -> bool:
    match value.operator:
        case "<":
            return found < limit
        case "<=":
            return found <= limit
        case ">":
            return found > limit
        case ">=":
            return found >= limit
        case _:
            return found == limit


def moment_span(value: QueryValue, now_ms: int) -> tuple[int | None, int | None]:
    """Return the milliseconds that are meant: the first, and the first one after them."""
    meant = value.meaning
    if isinstance(meant, Moments):
        return {
            "<": (None, meant.first),
            "<=": (None, meant.end),
            ">": (meant.end, None),
            ">=": (meant.first, None),
            "": (meant.first, meant.end),
        }[value.operator]
    then = now_ms - round(meant * 1000)  # "less than an hour ago" is after then
    return {
        "<": (then + 1, None),
        "<=": (then, None),
        ">": (None, then),
        ">=": (None, then + 1),
    }[value.operator]


def moment_fits(moment_ms: int, value: QueryValue, facts: SearchFacts) -> bool:
    first, end = moment_span(value, facts.now_ms)
    return (first is None or moment_ms >= first) and (end is None or moment_ms < end)


def age_fits(job: DecodedJob, value: QueryValue, facts: SearchFacts) -> bool:
    return moment_fits(job.made_ms, value, facts)


def finished_fits(job: DecodedJob, value: QueryValue, facts: SearchFacts) -> bool:
    ended = job.stored.finished_at
    return ended is not None and moment_fits(int(ended * 1000), value, facts)


def wait_fits(job: DecodedJob, value: QueryValue, facts: SearchFacts) -> bool:
    waited = seconds_waited(job.stored, facts.now)
    return waited is not None and compared(waited, value, value.meaning)


def seconds_waited(job: StoredJob, now: float) -> float | None:
    """Return how long a ready job has been due, or was before its last attempt began."""
    due = max(job.created_at, job.run_at or 0.0)
    if job.state == READY:
        return max(0.0, now - due)
    if job.state < RUNNING or job.started_at is None:
        return None
    return max(0.0, job.started_at - due)


def run_fits(job: DecodedJob, value: QueryValue, facts: SearchFacts) -> bool:
    ran = seconds_run(job.stored, facts.now)
    return ran is not None and compared(ran, value, value.meaning)


def seconds_run(job: StoredJob, now: float) -> float | None:
    """Return how long the attempt runs, or how long the last one ran."""
    if job.started_at is None or job.state < RUNNING:
        return None
    end = now if job.state == RUNNING else job.finished_at
    return None if end is None else max(0.0, end - job.started_at)


def digits_fit(text: str | None, value: QueryValue) -> bool:
    return text is not None and text.startswith(value.meaning)


def plan_fits(job: DecodedJob, value: QueryValue, facts: SearchFacts) -> bool:
    del facts
    plan = job.options.plan
    return digits_fit(plan and plan.plan.replace("-", ""), value)


def error_fits(job: DecodedJob, value: QueryValue, facts: SearchFacts) -> bool:
    del facts
    error = job.error
    if error is None:
        return False
    return (
        error.startswith(value.meaning) if value.is_prefix else value.meaning in error
    )


def attempt_fits(job: DecodedJob, value: QueryValue, facts: SearchFacts) -> bool:
    del facts
    number = attempt_number(job.stored.retried, job.stored.losses)
    return compared(number, value, value.meaning)


def priority_fits(job: DecodedJob, value: QueryValue, facts: SearchFacts) -> bool:
    del facts
    return compared(PRIORITY_MAX - job.stored.rank, value, value.meaning)


OTHER_KEYS: Mapping[str, Callable[[DecodedJob, QueryValue, SearchFacts], bool]] = {
    "task": task_fits,
    "state": lambda job, value, _: job.stored.state == value.meaning,
    "id": lambda job, value, _: digits_fit(job.stored.id.hex(), value),
    "plan": plan_fits,
    "group": lambda job, value, _: digits_fit(job.group, value),
    "error": error_fits,
    "attempt": attempt_fits,
    "priority": priority_fits,
    "age": age_fits,
    "created": age_fits,
    "finished": finished_fits,
    "wait": wait_fits,
    "run": run_fits,
}
