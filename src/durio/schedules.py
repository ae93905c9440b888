"""Schedules: cron, intervals and times at which tasks run."""

from durio.client.backfills import Backfill as Backfill
from durio.client.schedule_view import HandledTick as HandledTick
from durio.client.schedule_view import Schedule as Schedule
from durio.client.schedules import Schedules as Schedules
from durio.model.cron import Cron as Cron
from durio.model.cron import CronRun as CronRun
from durio.model.tick import Tick as Tick
