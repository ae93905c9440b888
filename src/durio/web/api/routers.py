"""The list of all areas of the API."""

from fastapi import APIRouter

from durio.web.api import (
    breakers,
    errors,
    jobs,
    limits,
    me,
    overview,
    plans,
    queues,
    schedule_changes,
    schedules,
    stream,
    tasks,
    workers,
)

PREFIX = "/admin"
ROUTERS: tuple[APIRouter, ...] = (
    me.router,
    overview.router,
    jobs.router,
    queues.router,
    tasks.router,
    errors.router,
    workers.router,
    limits.router,
    breakers.router,
    schedules.router,
    schedule_changes.router,
    plans.router,
    stream.router,
)
