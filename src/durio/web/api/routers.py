"""The list of all areas of the API."""

from fastapi import APIRouter

from durio.web.api import errors, jobs, me, queues, tasks

PREFIX = "/admin"
ROUTERS: tuple[APIRouter, ...] = (
    me.router,
    jobs.router,
    queues.router,
    tasks.router,
    errors.router,
)
