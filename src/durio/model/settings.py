"""All settings, with unit and default.

An App takes a Settings, a dict of the same shape, or environment variables:
`DURIO_WORKER__CONCURRENCY=20` sets `worker.concurrency`. Unknown names are errors.
"""

from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

import msgspec

from durio.model.argument_errors import plain_words
from durio.model.errors import InvalidOption
from durio.model.names import did_you_mean

DAY = 86400.0
INFINITE = float("inf")
JOBS_MAX = 10_000  # highest concurrency and prefetch of a worker
PROCESSES_MAX = 256
# Environment variables with the same prefix that are not settings.
NOT_SETTINGS = frozenset(
    {"DURIO_URL", "DURIO_NAME", "DURIO_APP", "DURIO_VERSION", "DURIO_REQUIRE_ALL"}
)


class WorkerSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How a worker claims, keeps and gives back jobs."""

    concurrency: int = 10  # slots: jobs that run at the same time
    prefetch: int = 1024  # maximum of claimed jobs that wait for a slot; adaptive
    strict: bool = False  # serve queues in the given order, not by weight
    grace_seconds: float = 25.0  # time for running jobs to end after SIGTERM
    poll_seconds: float = 1.0  # interval of the safety poll for missed wakeups
    retry_after_max_seconds: float = 3600.0  # a longer Retry-After of HTTP is cut
    lease_seconds: float = 30.0
    heartbeat_seconds: float = 5.0
    rescue_seconds: float = 5.0  # how often to look for expired leases
    life_seconds: float = 2.0  # how often to look for dead workers on this host
    leader_seconds: float = 10.0
    block_seconds: float = 1.0  # time after which a blocked loop's stack is logged
    unknown_task_seconds: float = DAY  # time until a job of an unknown task is dead
    abandoned_max: int = 100  # maximum of attempts stuck past their hard limit
    spawned_max: int = 1000  # maximum of concurrent app.spawn calls per event loop
    processes: int = 0  # worker processes under a supervisor; 0: no supervisor
    recycle_jobs: int = 0  # a worker is replaced after this many jobs; 0: never
    recycle_rss_bytes: int = 0  # a worker is replaced above this memory; 0: never
    children: int = 0  # child processes for tasks with process=True; 0: one per core
    child_jobs: int = 1000  # a child is replaced after this many jobs; 0: never
    child_rss_bytes: int = 0  # a child is replaced above this memory; 0: never


class QueueSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How queues are bounded."""

    full_seconds: float = 5.0  # how long an enqueue waits for room before QueueFull
    soft_max: int = 1_000_000  # maximum of waiting jobs in a queue without a bound
    embedded_max: int = 1000  # the same, in memory or with an embedded worker


class PayloadSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Size limits of arguments, results and metadata."""

    warn_bytes: int = 64 * 1024
    bytes_max: int = 1024 * 1024
    result_bytes_max: int = 1024 * 1024
    meta_bytes_max: int = 16 * 1024


class PlanSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Bounds of plans."""

    input_bytes_max: int = 64 * 1024 * 1024  # results that one node gets, together


class RetentionSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How long final jobs and results are kept."""

    done_seconds: float = 7 * DAY
    dead_seconds: float = 30 * DAY
    dead_count: int = 500  # the newest dead jobs, kept even past their age
    result_seconds: float = 3600.0


Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
Format = Literal["text", "json", "none"]
CHOICES = {"log.level": get_args(Level), "log.format": get_args(Format)}


class LogSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What a worker writes to its log."""

    level: Level = "INFO"
    format: Format = "text"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of an App, in six groups; the settings page lists them all."""

    __module__ = "durio"

    worker: WorkerSettings = WorkerSettings()  # how a worker claims and runs jobs
    queue: QueueSettings = QueueSettings()  # how queues are bounded
    payload: PayloadSettings = PayloadSettings()  # sizes of arguments and results
    plan: PlanSettings = PlanSettings()  # bounds of plans
    retention: RetentionSettings = RetentionSettings()  # how long jobs are kept
    log: LogSettings = LogSettings()  # what a worker writes to its log

    def __post_init__(self) -> None:
        worker = self.worker
        _check(1 <= worker.concurrency <= JOBS_MAX, "worker.concurrency", "1 to 10000")
        _check(0 <= worker.prefetch <= JOBS_MAX, "worker.prefetch", "0 to 10000")
        _check(
            0 < worker.heartbeat_seconds * 3 <= worker.lease_seconds,
            "worker.heartbeat_seconds",
            "more than 0 and at most a third of worker.lease_seconds",
        )
        _check(worker.processes <= PROCESSES_MAX, "worker.processes", "0 to 256")
        for name in ("worker", "queue", "payload", "plan", "retention"):
            group = getattr(self, name)
            for field in group.__struct_fields__:
                holds = 0 <= getattr(group, field) < INFINITE
                _check(holds, f"{name}.{field}", "0 or more")


def _check(holds: bool, name: str, wanted: str) -> None:  # noqa: FBT001
    if not holds:
        raise InvalidOption(
            f"setting {name} is out of range", cure=f"Give {wanted}.", setting=name
        )


def settings_from(given: Settings | Mapping[str, Any] | None) -> Settings:
    """Convert a value or a nested dict to Settings; refuse unknown names."""
    if isinstance(given, Settings):
        return given
    tree = {} if given is None else merged(given)
    _refuse_unknown("", Settings, tree)
    for group, fields in tree.items():
        if isinstance(fields, Mapping):
            kind = cast("type[msgspec.Struct]", type(getattr(Settings(), group)))
            chosen = dict(cast("Mapping[str, Any]", fields))
            _refuse_unknown(f"{group}.", kind, chosen)
    try:
        return msgspec.convert(_with_upper_level(tree), Settings, strict=False)
    except msgspec.ValidationError as error:
        why, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`")
        choices = CHOICES.get(name)
        raise InvalidOption(
            f"setting {name or '?'}: {plain_words(why)}",
            cure=f"Give {' or '.join(choices)}."
            if choices
            else "Correct it where it is set: settings=, a file, or the variable "
            f"DURIO_{name.replace('.', '__').upper()}.",
            setting=name,
        ) from None


def _with_upper_level(tree: dict[str, Any]) -> dict[str, Any]:
    """Accept the log level in any case, as on the command line."""
    level = tree["log"].get("level") if _is_group(tree.get("log")) else None
    if not isinstance(level, str):
        return tree
    return merged(tree, {"log": {"level": level.upper()}})


def settings_from_environment(environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return `DURIO_GROUP__NAME` variables as a tree for `settings_from`."""
    tree: dict[str, dict[str, str]] = {}
    for variable, value in environ.items():
        if not variable.startswith("DURIO_") or variable in NOT_SETTINGS:
            continue
        group, double, name = variable[6:].lower().partition("__")
        if double:
            tree.setdefault(group, {})[name] = value
        else:
            _refuse_half_named(variable, group)
    return tree


def _refuse_half_named(variable: str, name: str) -> None:
    """Refuse a variable that is almost a setting, because it would be ignored.

    Other variables are allowed: a cluster with a service named durio sets DURIO_PORT.
    """
    if name in Settings.__struct_fields__:
        raise InvalidOption(
            f"{variable} is a group of settings",
            cure=f"Name one of its settings: {variable}__..., see durio config show.",
            place=variable,
        )
    for group in Settings.__struct_fields__:
        for field in getattr(Settings(), group).__struct_fields__:
            if name in (field, f"{group}_{field}"):
                raise InvalidOption(
                    f"there is no environment variable {variable}",
                    cure=f"The setting is DURIO_{group.upper()}__{field.upper()}.",
                    place=variable,
                )
    known = [other.removeprefix("DURIO_") for other in NOT_SETTINGS]
    if meant := did_you_mean(name.upper(), known):
        raise InvalidOption(
            f"there is no environment variable {variable}",
            cure=meant.strip().replace("'", "'DURIO_", 1),
            place=variable,
        )


def merged(*trees: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested dicts field by field; later ones win."""
    out: dict[str, Any] = {}
    for tree in trees:
        if not isinstance(tree, Mapping):
            raise InvalidOption(
                f"settings cannot be a {type(tree).__name__}",
                cure="Give a Settings, or a dict: {'worker': {'concurrency': 20}}.",
            )
        for group, fields in tree.items():
            if isinstance(fields, Mapping):
                known: Any = out.get(group)
                weaker = cast("Mapping[str, Any]", known)
                out[group] = {**weaker, **fields} if _is_group(known) else {**fields}
            else:
                out[group] = fields
    return out


def _is_group(value: object) -> bool:
    return isinstance(value, Mapping)


def _refuse_unknown(
    prefix: str, kind: type[msgspec.Struct], given: dict[str, Any]
) -> None:
    known = kind.__struct_fields__
    for name, value in given.items():
        if name not in known:
            raise InvalidOption(
                f"there is no setting {prefix}{name}",
                cure=f"Known here: {', '.join(known)}.{did_you_mean(name, known)}",
                setting=".".join([f"{prefix}{name}", *_first_of(value)]),
            )


def _first_of(fields: object) -> list[str]:
    """Return the first name of a group: origins of values are kept by `group.name`."""
    if not isinstance(fields, Mapping):
        return []
    return [str(name) for name in cast("Mapping[str, Any]", fields)][:1]
