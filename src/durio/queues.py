"""Queues declared in code, `App(queues=TIERS)`, and routes to them, `App(routes=[...])`."""

from durio.model.queues import TIERS as TIERS
from durio.model.queues import Queue as Queue
from durio.model.routes import Route as Route
