"""Complete a query of the language at a position: keys, then values that the store knows."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from durio.client.error_groups import list_groups
from durio.client.job_filter import REASONS
from durio.client.job_view import options_of
from durio.client.task_list import KnownTask, list_tasks
from durio.model.job import PRIORITY_MAX, Priority, State
from durio.model.names import queue_of
from durio.model.query_keys import KEYS, QueryKey, quoted
from durio.model.query_language import QUERY_CHARS_MAX
from durio.model.schedule import schedules_kind
from durio.ports.browse import Query
from durio.ports.store import Store

ITEMS_MAX = 20
NAMES_READ_MAX = 1_000
JOBS_READ = 50  # whose meta names keys
WORD_MATCHES_MAX = 8
OPERATORS = "<>="
DURATIONS = {">1m": "more than a minute", ">1h": "more than an hour", "<1d": "in a day"}


class Suggested(NamedTuple):
    """One way to go on."""

    text: str  # what it stands for
    insert: str  # replaces the term at the position
    note: str  # what it means, and how it is searched


class CompletionScope(NamedTuple):
    """What may be suggested to a user."""

    app: str
    queues: tuple[str, ...] | None = None  # that the user sees; None: all of them
    has_payloads: bool = True  # whether arguments and meta may be searched
    sees_task: Callable[[str], bool] | None = None  # None: all of them

    def sees(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    @property
    def sees_all(self) -> bool:
        return self.queues is None


class OpenTerm(NamedTuple):
    """The term at the position, as far as it is written."""

    sign: str
    key: str | None  # None: no ':' yet
    before: str  # values before the last one, with commas
    typed: str  # of the key or of the last value


async def complete_query(
    store: Store, text: str, at: int, scope: CompletionScope
) -> list[Suggested]:
    """Return what may follow `text[:at]`, the most useful first."""
    term = open_term(text[: min(max(at, 0), QUERY_CHARS_MAX)])
    if term.key is None:
        found = keys_like(term, scope)
        if term.typed:
            found += await names_like(store, term, scope)
        return found[:ITEMS_MAX]
    name, dot, _ = term.key.partition(".")
    key = KEYS.get(name)
    if key is None or dot:
        return []
    values = await values_of(store, key, scope)
    values = sorted(values, key=lambda each: not each[0].startswith(term.typed))
    return [
        Suggested(value, f"{term.sign}{name}:{term.before}{quoted_value(value)}", note)
        for value, note in values
        if term.typed.casefold() in value.casefold()
    ][:ITEMS_MAX]


def open_term(text: str) -> OpenTerm:
    """Return the term that the text ends in; an empty one after a space."""
    start, is_quoted, place = 0, False, 0
    while place < len(text):
        char = text[place]
        if char == "\\" and is_quoted:
            place += 1
        elif char == '"':
            is_quoted = not is_quoted
        elif char.isspace() and not is_quoted:
            start = place + 1
        place += 1
    term = text[start:]
    sign = "-" if term.startswith("-") else ""
    term = term[len(sign) :]
    key, colon, value = term.partition(":")
    if not colon or '"' in key:
        return OpenTerm(sign, None, "", term)
    last = last_comma(value)
    before = value[:last]
    typed = value[last:].strip('"').replace('\\"', '"').replace("\\\\", "\\")
    return OpenTerm(sign, key, before, typed)


def last_comma(value: str) -> int:
    """Return where the last value begins: after the last comma outside of quotes."""
    found, is_quoted, place = 0, False, 0
    while place < len(value):
        char = value[place]
        if char == "\\" and is_quoted:
            place += 1
        elif char == '"':
            is_quoted = not is_quoted
        elif char == "," and not is_quoted:
            found = place + 1
        place += 1
    return found


def quoted_value(value: str) -> str:
    """Return a value as it is written; a comparison stays one."""
    return value if value[:1] in OPERATORS else quoted(value)


# --- keys


def keys_like(term: OpenTerm, scope: CompletionScope) -> list[Suggested]:
    return [
        Suggested(shown, f"{term.sign}{shown}", f"{key.about} ({how_searched(key)})")
        for key in KEYS.values()
        if key.name.startswith(term.typed.lower())
        and (scope.has_payloads or not key.has_path)
        for shown in [f"{key.name}." if key.has_path else f"{key.name}:"]
    ]


def how_searched(key: QueryKey) -> str:
    return "indexed" if key.is_indexed else "scan"


async def names_like(
    store: Store, term: OpenTerm, scope: CompletionScope
) -> list[Suggested]:
    """Return states, tasks, queues and arguments whose name has the typed text in it."""
    typed, found = term.typed.strip('"').casefold(), list[Suggested]()
    name, dot, rest = typed.partition(".")
    if dot and name in ("args", "meta"):
        paths = await paths_of(store, name, scope)
        return [
            Suggested(f"{name}.{path}:", f"{term.sign}{name}.{path}:", note)
            for path, note in paths
            if path.casefold().startswith(rest)
        ]
    for key in (KEYS["state"], KEYS["task"], KEYS["queue"]):
        values = await values_of(store, key, scope)
        found += [
            Suggested(
                f"{key.name}:{value}", f"{term.sign}{key.name}:{quoted(value)}", note
            )
            for value, note in values
            if typed in value.casefold()
        ][:WORD_MATCHES_MAX]
    return found


async def paths_of(
    store: Store, name: str, scope: CompletionScope
) -> list[tuple[str, str]]:
    """Return names of arguments that workers published, or of meta in the newest jobs."""
    if not scope.has_payloads:
        return []
    if name == "args":
        found: dict[str, str] = {}
        for task in await visible_tasks(store, scope):
            for argument in task.arguments_schema()["properties"]:
                found.setdefault(argument, f"argument of {task.name} (scan)")
        return sorted(found.items())
    page = await store.find(Query(scope.app), limit=JOBS_READ, cursor=None)
    seen = [job for job in page.jobs if scope.sees(queue_of(job.lane))]
    names = {key for job in seen for key in options_of(job).meta or {}}
    return [(key, "meta (scan)") for key in sorted(names) if is_path(key)]


def is_path(key: str) -> bool:
    """Whether the key can be written in a query as it is."""
    return not any(char.isspace() or char in ':,".' for char in key)


# --- values


Values = Sequence[tuple[str, str]]  # each with a note


async def values_of(store: Store, key: QueryKey, scope: CompletionScope) -> Values:
    """Return known values of a key; none for one whose values are not listed."""
    fixed = FIXED.get(key.name)
    if fixed is not None:
        return fixed
    read = READ.get(key.name)
    return [] if read is None else await read(store, scope)


async def visible_tasks(store: Store, scope: CompletionScope) -> list[KnownTask]:
    sees_task = scope.sees_task
    return [
        each
        for each in await list_tasks(store, scope.app)
        if scope.sees(each.queue) and (sees_task is None or sees_task(each.name))
    ]


async def task_values(store: Store, scope: CompletionScope) -> Values:
    own = f"{scope.app}."
    return [
        (each.name.removeprefix(own), f"task of queue {each.queue} (scan)")
        for each in await visible_tasks(store, scope)
    ]


async def queue_values(store: Store, scope: CompletionScope) -> Values:
    rows = await store.queues(scope.app)
    names = (queue_of(row.name) for row in rows[:NAMES_READ_MAX])
    return [(name, "queue (indexed)") for name in names if scope.sees(name)]


async def schedule_values(store: Store, scope: CompletionScope) -> Values:
    kind = schedules_kind(scope.app)
    records = await store.list_records(kind, limit=NAMES_READ_MAX)
    return [(record.name, "schedule (scan)") for record in records]


async def worker_values(store: Store, scope: CompletionScope) -> Values:
    rows = await store.workers(scope.app)
    return [(row.info["name"], f"worker {row.id} (scan)") for row in rows]


async def version_values(store: Store, scope: CompletionScope) -> Values:
    rows = await store.workers(scope.app)
    versions = {
        str(version) for row in rows if (version := row.info.get("code_version"))
    }
    return [(version, "version of code (scan)") for version in sorted(versions)]


async def group_values(store: Store, scope: CompletionScope) -> Values:
    if not scope.sees_all:
        return []
    groups = await list_groups(store, scope.app)
    return [(one.fingerprint, f"{one.group.type} (scan)") for one in groups]


async def error_values(store: Store, scope: CompletionScope) -> Values:
    groups = await list_groups(store, scope.app) if scope.sees_all else []
    types = dict.fromkeys(one.group.type for one in groups)
    return [(each, "type of error (scan)") for each in types]


def scanned(values: Iterable[str], note: str) -> Values:
    return [(value, f"{note} (scan)") for value in values]


AGES = [(value, f"{note} (indexed)") for value, note in DURATIONS.items()]
FIXED: dict[str, Values] = {
    "state": [(state.value, "state (indexed)") for state in State],
    "reason": scanned(REASONS, "reason of a death"),
    "priority": scanned(
        [*(p.name.lower() for p in Priority), *map(str, range(PRIORITY_MAX + 1))],
        "priority",
    ),
    "attempt": scanned((">1", ">3"), "number of the attempt"),
    "age": AGES,
    "created": AGES,
    "finished": scanned(DURATIONS, "ago"),
    "wait": scanned(DURATIONS, "time"),
    "run": scanned(DURATIONS, "time"),
}
READ: dict[str, Callable[[Store, CompletionScope], Awaitable[Values]]] = {
    "task": task_values,
    "queue": queue_values,
    "schedule": schedule_values,
    "worker": worker_values,
    "version": version_values,
    "group": group_values,
    "error": error_values,
}
