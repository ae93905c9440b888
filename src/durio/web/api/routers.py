"""The list of all areas of the API."""

from fastapi import APIRouter

from durio.web.api import (
    audit,
    breakers,
    bulk,
    dead,
    document,
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
    search,
    settings,
    stream,
    tasks,
    users,
    workers,
)

PREFIX = "/admin"
ROUTERS: tuple[APIRouter, ...] = (
    me.router,
    overview.router,
    jobs.router,
    job_detail.router,
    job_changes.router,
    bulk.router,
    search.router,
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
    audit.router,
    settings.router,
    users.router,
    document.router,
    stream.router,
)
