"""The list of all areas of the API."""

from fastapi import APIRouter

from durio.web.api import jobs, me, queues

PREFIX = "/admin"
ROUTERS: tuple[APIRouter, ...] = (me.router, jobs.router, queues.router)
