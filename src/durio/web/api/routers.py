"""The list of all areas of the API."""

from fastapi import APIRouter

from durio.web.api import (
    breakers,
    dead,
    errors,
    job_changes,
    job_detail,
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
    job_detail.router,
    job_changes.router,
    dead.router,
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
