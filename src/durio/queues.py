"""Queues declared in code: `App(queues=TIERS)`, or one by one with `app.queue`."""

from durio.model.queues import TIERS as TIERS
from durio.model.queues import Queue as Queue
