"""Durio: jobs, schedules, plans, workflows and events on one durable store.

Public names are loaded on first use: `import durio` and `durio --help` load no App.
"""

import importlib as _importlib
import sys as _sys
import typing as _typing

from durio.model.version import __version__ as __version__

__all__ = (
    "App",
    "Cancel",
    "Concurrency",
    "Context",
    "Cron",
    "DeadLetter",
    "DurioError",
    "HookEvent",
    "Job",
    "JobCancelled",
    "JobDead",
    "JobDetails",
    "JobNotFound",
    "JobStatus",
    "Keep",
    "KeyConflict",
    "Permanent",
    "Priority",
    "Progress",
    "QueueFull",
    "Rate",
    "Retry",
    "Settings",
    "Signature",
    "Snooze",
    "SoftTimeLimit",
    "State",
    "chain",
    "chord",
    "group",
)

# Both parts list the names of `__all__`. Type checkers read the first part. They must not see
# `__getattr__`, or they would accept every name.
if _typing.TYPE_CHECKING:
    from durio.app.app import App as App
    from durio.client.handle import Job as Job
    from durio.client.plan import Signature as Signature
    from durio.client.plan import chain as chain
    from durio.client.plan import chord as chord
    from durio.client.plan import group as group
    from durio.model.cron import Cron as Cron
    from durio.model.errors import Cancel as Cancel
    from durio.model.errors import DeadLetter as DeadLetter
    from durio.model.errors import DurioError as DurioError
    from durio.model.errors import JobCancelled as JobCancelled
    from durio.model.errors import JobDead as JobDead
    from durio.model.errors import JobNotFound as JobNotFound
    from durio.model.errors import KeyConflict as KeyConflict
    from durio.model.errors import Permanent as Permanent
    from durio.model.errors import QueueFull as QueueFull
    from durio.model.job import JobDetails as JobDetails
    from durio.model.job import JobStatus as JobStatus
    from durio.model.job import Priority as Priority
    from durio.model.job import Progress as Progress
    from durio.model.job import State as State
    from durio.model.limits import Concurrency as Concurrency
    from durio.model.limits import Rate as Rate
    from durio.model.option_values import Keep as Keep
    from durio.model.retry import Retry as Retry
    from durio.model.retry import Snooze as Snooze
    from durio.model.settings import Settings as Settings
    from durio.ports.executor import SoftTimeLimit as SoftTimeLimit
    from durio.worker.context import Context as Context
    from durio.worker.middleware import HookEvent as HookEvent
else:
    _MODULE_OF = {
        "App": "durio.app.app",
        "Cancel": "durio.model.errors",
        "Concurrency": "durio.model.limits",
        "Context": "durio.worker.context",
        "Cron": "durio.model.cron",
        "DeadLetter": "durio.model.errors",
        "DurioError": "durio.model.errors",
        "HookEvent": "durio.worker.middleware",
        "Job": "durio.client.handle",
        "JobCancelled": "durio.model.errors",
        "JobDead": "durio.model.errors",
        "JobDetails": "durio.model.job",
        "JobNotFound": "durio.model.errors",
        "JobStatus": "durio.model.job",
        "Keep": "durio.model.option_values",
        "KeyConflict": "durio.model.errors",
        "Permanent": "durio.model.errors",
        "Priority": "durio.model.job",
        "Progress": "durio.model.job",
        "QueueFull": "durio.model.errors",
        "Rate": "durio.model.limits",
        "Retry": "durio.model.retry",
        "Settings": "durio.model.settings",
        "Signature": "durio.client.plan",
        "Snooze": "durio.model.retry",
        "SoftTimeLimit": "durio.ports.executor",
        "State": "durio.model.job",
        "chain": "durio.client.plan",
        "chord": "durio.client.plan",
        "group": "durio.client.plan",
    }

    def __getattr__(name: str) -> object:
        """Load a public name on first use."""
        if name not in _MODULE_OF:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}",
                name=name,
                obj=_sys.modules[__name__],
            )
        value = getattr(_importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> set[str]:
        """List public names before they are loaded, too."""
        return {*globals(), *__all__}
