"""What the Python reference shows, part by part: see python_reference.py."""

import importlib
import inspect
from collections.abc import Callable, Iterator

import durio.errors
from durio.app.app import App
from durio.app.batch_tasks import BatchTask, SyncBatchTask
from durio.app.embed import EmbeddedWorker
from durio.app.lifespan import Lifespan
from durio.app.mounting import Dashboard
from durio.app.named_task import NamedTask
from durio.app.schedule_decorator import ScheduleDecorator
from durio.app.task_decorator import TaskDecorator
from durio.app.tasks import SyncTask, Task, TaskWithOptions
from durio.client.backfills import Backfill
from durio.client.handle import Job
from durio.client.job_query import BulkResult, JobQuery
from durio.client.lock import Lock
from durio.client.once import Once
from durio.client.plan import (
    Immutable,
    ImmutablePlan,
    NamedSignature,
    Partial,
    PartialPlan,
    Plan,
    Signature,
)
from durio.client.plan_job import PlanJob, PlanStatus
from durio.client.queue_handle import QueueHandle, QueueStatus
from durio.client.schedule_view import HandledTick, Schedule
from durio.client.schedules import Schedules
from durio.keys import KeyPolicy
from durio.model.batch import Batch, BatchErr, BatchOk
from durio.model.breaker_rule import Breaker
from durio.model.cron import Cron, CronRun
from durio.model.explanation import AttemptStory, JobExplanation, JobReason
from durio.model.job import (
    JobDetails,
    JobError,
    JobStatus,
    LastError,
    Priority,
    Progress,
    State,
)
from durio.model.limits import Budget, Concurrency, Rate
from durio.model.option_values import Keep
from durio.model.plan import Complete, Following
from durio.model.plan_ends import Collected, Err, Ok, PlanFailure
from durio.model.plan_record import PlanState
from durio.model.plan_tree import PlanTree
from durio.model.poll import Poll
from durio.model.retry import Retry
from durio.model.routes import Route
from durio.model.settings import Settings
from durio.model.tick import Tick
from durio.queues import Queue
from durio.telemetry.breaker_events import BreakerEvent
from durio.testing import Box, BoxClock, BoxJob
from durio.web import User
from durio.worker.context import Context
from durio.worker.middleware import HookEvent, Hooks
from durio.worker.transaction import TaskTransaction
from tests.docs.python_reference import (
    Shown,
    assigned,
    constants,
    entry,
    function,
    index_table,
    meaning,
    options_table,
)
from tests.tidy.test_public_api import PUBLIC, exports

MODULES = [module for module in PUBLIC if module != "durio.errors"]

# Public by spelling, because other packages of Durio call them.
APP_INTERNAL = frozenset(
    [
        "configuration",
        "live",
        "emit",
        "registry",
        "bounds",
        "origin",
        "state",
        "folder",
        "default_maxsize",
        "declare_bounds",
        "enqueue_named",
        "find_task",
        "run_with",
        "store",
        "stall",
        "send",
        "waiters",
        "limits_of",
        "breakers",
        "retries_of",
        "declared_names",
        "acting_user",
        "decoder_of",
        "pasteable",
        "now",
        "manual_limits",
        "refresh_limits",
        "prepare_gates",
        "open_for_tx",
    ]
)
BOX_CLOCK_INTERNAL = frozenset(
    [
        "advance_to",
        "standing_still",
        "monotonic",
        "boot_id",
        "sleep",
        "random",
        "new_id",
        "secret_bytes",
    ]
)
LINK_INTERNAL = frozenset({"source"})
PLAN_INTERNAL = LINK_INTERNAL | {"size", "depth", "first_task"}
KEY_POLICY_INTERNAL = frozenset({"name", "mode", "ttl_seconds", "delay_seconds"})

LOCK_INTERNAL = frozenset({"client", "new_body", "what"})
USER_INTERNAL = frozenset({"sees_payloads", "has", "sees"})
SHOWN = [
    Shown(App, "app", is_made=True, internal=APP_INTERNAL),
    Shown(TaskDecorator, "app.task"),
    Shown(
        ScheduleDecorator,
        "app.cron",
        "`app.cron(...)` and `app.every(...)` return it. Call it with a task, or with a "
        "function, which it makes a task.\nIt takes no options of a task: write "
        "`@app.task(...)` below it.",
        like=TaskDecorator,
        internal=frozenset({"__call__"}),
    ),
    Shown(
        Schedules,
        "app.schedules",
        internal=frozenset({"declared", "declare_at_start", "by"}),
    ),
    Shown(Schedule, "schedule", "`await app.schedules.get(name)` returns it."),
    Shown(HandledTick, "tick"),
    Shown(Backfill, "backfill", "`await app.schedules.backfill(...)` returns it."),
    Shown(Tick, "ctx.tick"),
    Shown(Cron, "cron", is_made=True, internal=frozenset({"_runs"})),
    Shown(Dashboard, "dashboard", "`app.dashboard(...)` returns it."),
    Shown(User, "user", is_made=True, internal=USER_INTERNAL),
    Shown(CronRun, "run", "`cron.preview(...)` returns a list of them."),
    Shown(EmbeddedWorker, "worker", "`app.worker()` returns it."),
    Shown(Lifespan, "app.lifespan"),
    Shown(Task, "task", "`@app.task` returns it for an `async def` function."),
    Shown(SyncTask, "task", "`@app.task` returns it for a `def` function.", like=Task),
    Shown(
        BatchTask,
        "task",
        "`@app.task(batch=...)` returns it for an `async def` function.",
        like=Task,
    ),
    Shown(
        SyncBatchTask,
        "task",
        "`@app.task(batch=...)` returns it for a `def` function.",
        like=Task,
    ),
    Shown(TaskWithOptions, "task", "`task.options(...)` returns it.", like=Task),
    Shown(NamedTask, "task", "`app.named(name)` returns it.", like=Task),
    Shown(Signature, "signature", "`task.s(...)` returns it.", internal=LINK_INTERNAL),
    Shown(
        Plan,
        "plan",
        "`chain`, `group`, `chord` and `a | b` return it.",
        internal=PLAN_INTERNAL,
    ),
    Shown(Complete, "link", like=Signature),
    Shown(Following, "link", like=Signature),
    Shown(
        Partial,
        "partial",
        "`task.s(...)` without the first argument returns it.",
        like=Signature,
    ),
    Shown(
        PartialPlan,
        "plan",
        "`chain`, `group` and `chord` of such signatures and plans return it, and `a | b`.",
        like=Plan,
    ),
    Shown(
        Immutable,
        "signature",
        "`task.si(...)` returns it.",
        like=Signature,
    ),
    Shown(ImmutablePlan, "plan", like=Plan, internal=PLAN_INTERNAL),
    Shown(
        NamedSignature,
        "signature",
        "`app.s(...)` returns it.",
        like=Signature,
        internal=LINK_INTERNAL,
    ),
    Shown(Ok, "ok"),
    Shown(Err, "err"),
    Shown(Collected, "ends"),
    Shown(PlanFailure, "failure"),
    Shown(
        PlanJob,
        "plan",
        "`await plan.enqueue()` and `await app.plan(plan_id)` return it.",
    ),
    Shown(PlanStatus, "status", "`await plan.status()` returns it."),
    Shown(PlanTree, "tree", "`await plan.tree()` returns it."),
    Shown(PlanState, "state"),
    Shown(Job, "job", "`enqueue` and `await app.job(job_id)` return it."),
    Shown(JobStatus, "status", "`await job.status()` returns it."),
    Shown(JobDetails, "details", "`await job.details()` returns it.", like=JobStatus),
    Shown(Progress, "progress"),
    Shown(LastError, "error"),
    Shown(JobError, "error"),
    Shown(JobExplanation, "why", "`await job.explain()` returns it."),
    Shown(JobReason, "reason", internal=frozenset({"of_job"})),
    Shown(AttemptStory, "attempt"),
    Shown(State, "state"),
    Shown(Priority, "priority"),
    Shown(JobQuery, "jobs", "`app.jobs(...)` returns it."),
    Shown(BulkResult, "result"),
    Shown(QueueHandle, "queue", "`app.queue(name)` returns it."),
    Shown(QueueStatus, "status", "`await queue.status()` returns it."),
    Shown(Queue, "queue", internal=frozenset({"changed_by"})),
    Shown(Route, "route"),
    Shown(Context, "ctx"),
    Shown(TaskTransaction, "ctx.transaction()", internal=frozenset({"abandon"})),
    Shown(Lock, "lock", "`app.lock(name)` returns it.", internal=LOCK_INTERNAL),
    Shown(Once, "first", "`app.once(key)` returns it.", internal=LOCK_INTERNAL),
    Shown(
        Retry,
        "policy",
        is_made=True,
        internal=frozenset({"overridden", "has_no_backoff"}),
    ),
    Shown(Keep, "keep"),
    Shown(
        Poll,
        "poll",
        is_made=True,
        internal=frozenset({"active_seconds", "idle_max_seconds", "delay_seconds"}),
    ),
    Shown(Concurrency, "limit", is_made=True),
    Shown(Rate, "limit", is_made=True),
    Shown(Budget, "limit", is_made=True),
    Shown(Breaker, "breaker", is_made=True, internal=frozenset({"name", "on", "rule"})),
    Shown(BreakerEvent, "event"),
    Shown(Batch, "batch", internal=frozenset({"wait_seconds"})),
    Shown(BatchOk, "ok", "`from durio.limits import Ok`"),
    Shown(BatchErr, "err", "`from durio.limits import Err`"),
    Shown(KeyPolicy, "policy", internal=KEY_POLICY_INTERNAL),
    Shown(Hooks, "app.hooks", internal=frozenset({"by_kind", "by_state"})),
    Shown(HookEvent, "event"),
    Shown(Settings, "settings"),
    Shown(Box, "box", "`testing(app)` gives it to the `with` block."),
    Shown(BoxClock, "box.clock", internal=BOX_CLOCK_INTERNAL),
    Shown(BoxJob, "job", "`box.jobs()` returns a list of them.", like=JobDetails),
]
BY_NAME = {shown.kind.__name__: shown for shown in SHOWN}
# Public names that another module has too, and the names of their classes.
ALIKE = {
    ("durio.limits", "Ok"): "BatchOk",
    ("durio.limits", "Err"): "BatchErr",
}

# Page -> its parts -> the classes, functions and values in each, in this order.
PAGES = {
    "python.md": {
        "python_app": "App TaskDecorator",
        "python_tasks": "Task SyncTask TaskWithOptions NamedTask Signature",
    },
    "python-jobs.md": {
        "python_jobs": "Job JobStatus JobDetails Progress LastError JobError "
        "JobExplanation JobReason AttemptStory State Priority",
        "python_queries": "JobQuery BulkResult",
        "python_queues": "QueueHandle QueueStatus Queue TIERS Route",
    },
    "python-inside-tasks.md": {
        "python_context": "Context TaskTransaction",
        "python_policies": "Retry Keep Poll Concurrency Rate Budget Breaker Settings",
        "python_batches": "Batch BatchOk BatchErr BatchTask SyncBatchTask",
        "python_locks": "Lock Once",
        "python_keys": "KeyPolicy KEY_POLICIES window debounce",
        "python_hooks": "Hooks HookEvent BreakerEvent",
    },
    "python-plans.md": {
        "python_plans": "chain group chord Plan",
        "python_plan_jobs": "PlanJob PlanStatus PlanTree PlanState",
        "python_plan_types": "Complete Following Partial PartialPlan Immutable ImmutablePlan "
        "NamedSignature",
        "python_plan_ends": "Collected Ok Err PlanFailure",
    },
    "python-schedules.md": {
        "python_schedules": "ScheduleDecorator Schedules Schedule HandledTick Backfill "
        "Tick",
        "python_cron": "Cron CronRun",
    },
    "python-web.md": {
        "python_web": "Lifespan EmbeddedWorker Dashboard User",
    },
    "python-testing.md": {
        "python_testing": "testing Box BoxClock BoxJob durio_box",
    },
}
PARTS = {part: names for parts in PAGES.values() for part, names in parts.items()}
VALUES = {
    "KEY_POLICIES": ("model/keys.py", ["while_waiting", "while_active", "replace"]),
    "TIERS": ("model/queues.py", ["TIERS"]),
}
# Values stand in a table below a class.
ABOVE = {"KEY_POLICIES": "KeyPolicy", "TIERS": "Queue"}


def part(names: str) -> Callable[[], Iterator[str]]:
    def lines() -> Iterator[str]:
        yield ""
        for name in names.split():
            if name in BY_NAME:
                yield from entry(BY_NAME[name])
            elif name in VALUES:
                yield from constants(*VALUES[name])
            else:
                yield from function(name)

    return lines


def python_options() -> Iterator[str]:
    yield ""
    yield from options_table()


def python_names() -> Iterator[str]:
    """Every name that users import, with a link to what is said about it."""
    yield ""
    for module in MODULES:
        names = sorted(exports(PUBLIC[module]))
        found = {
            name: (text_about(module, name), link_to(module, name)) for name in names
        }
        yield from (f"From `{module}`:", "")
        yield from index_table(found)


def text_about(module: str, name: str) -> str:
    for where, names in VALUES.values():
        if name in names:
            return meaning(where, assigned(where, name))
    return inspect.getdoc(getattr(importlib.import_module(module), name)) or ""


def link_to(module: str, name: str) -> str:
    """The page and heading that are about a public name."""
    name = ALIKE.get((module, name), name)
    if name in vars(durio.errors):
        return "errors.md"
    for table, (_, names) in VALUES.items():
        name = ABOVE[table] if name in names else name
    page = next(
        page
        for page, parts in PAGES.items()
        if name in " ".join(parts.values()).split()
    )
    return f"{'' if page == 'python.md' else page}#{name.lower()}"


MAKE: dict[str, Callable[[], Iterator[str]]] = {
    "python_names": python_names,
    "python_options": python_options,
    **{name: part(names) for name, names in PARTS.items()},
}
