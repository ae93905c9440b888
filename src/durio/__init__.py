"""Durio: jobs, schedules, plans, workflows and events on one durable store."""

from durio.app.app import App as App
from durio.client.handle import Job as Job
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
from durio.model.job import JobError as JobError
from durio.model.job import JobStatus as JobStatus
from durio.model.job import Priority as Priority
from durio.model.job import Progress as Progress
from durio.model.job import State as State
from durio.model.option_values import Keep as Keep
from durio.model.plan import Signature as Signature
from durio.model.retry import Retry as Retry
from durio.model.retry import Snooze as Snooze
from durio.model.settings import Settings as Settings
from durio.model.version import __version__ as __version__
from durio.ports.executor import SoftTimeLimit as SoftTimeLimit
from durio.worker.context import Context as Context
from durio.worker.middleware import HookEvent as HookEvent

# `import *` imports these names and none of our modules.
__all__ = [
    "App",
    "Cancel",
    "Context",
    "DeadLetter",
    "DurioError",
    "HookEvent",
    "Job",
    "JobCancelled",
    "JobDead",
    "JobDetails",
    "JobError",
    "JobNotFound",
    "JobStatus",
    "Keep",
    "KeyConflict",
    "Permanent",
    "Priority",
    "Progress",
    "QueueFull",
    "Retry",
    "Settings",
    "Signature",
    "Snooze",
    "SoftTimeLimit",
    "State",
]
