"""Limits and the pace of work."""

from durio.model.batch import Batch
from durio.model.batch import BatchErr as Err
from durio.model.batch import BatchOk as Ok
from durio.model.breaker_rule import Breaker
from durio.model.limits import Budget
from durio.model.poll import Poll
from durio.telemetry.breaker_events import BreakerEvent

__all__ = ["Batch", "Breaker", "BreakerEvent", "Budget", "Err", "Ok", "Poll"]
