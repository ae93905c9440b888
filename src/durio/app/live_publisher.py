"""Publish the events of this process to live subscribers of the store.

It receives the same events as the log. Without subscribers nothing is built; the store is
checked for subscribers once a second.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from durio.host.signals import process_name
from durio.model.ids import id_text
from durio.model.job import NewJob
from durio.model.names import namespace_of, queue_of
from durio.ports.clock import Clock
from durio.ports.enqueue import Enqueued
from durio.ports.live import Live
from durio.telemetry.emit import JobEvent
from durio.telemetry.log import format_time, job_fields
from durio.telemetry.names import JOB_ENQUEUED, LEVELS, MEANINGS, EmissionMeaning

CHECK_SECONDS = 1.0
encoder = msgspec.json.Encoder(enc_hook=repr)


class LivePublisher:
    """Forwards events of one App to the store's subscribers."""

    def __init__(
        self,
        namespace: str,
        clock: Callable[[], Clock],
        store: Callable[[], Live | None],
    ) -> None:
        self._namespace = namespace
        self._clock = clock
        self._store = store
        self.reset()

    def reset(self) -> None:
        """Ask for subscribers again at the next event, because the store may be another one."""
        self._has_subscribers = False
        self._next_check_at = float("-inf")

    def has_subscribers(self) -> bool:
        """Return whether there are subscribers; ask the store at most once a second."""
        now = self._clock().monotonic()
        if now >= self._next_check_at:
            self._next_check_at = now + CHECK_SECONDS
            store = self._store()  # a store that is not open has no subscribers
            self._has_subscribers = store is not None and store.publish(())
        return self._has_subscribers

    def wants(self, meaning: EmissionMeaning) -> bool:
        """Accept events of every level, because subscribers filter them themselves."""
        del meaning
        return self.has_subscribers()

    def on_event(
        self, name: str, meaning: EmissionMeaning, fields: dict[str, Any]
    ) -> None:
        if self.has_subscribers():
            self._publish([self._head(name, meaning) | fields])

    def on_jobs(self, events: Sequence[JobEvent]) -> None:
        if self.has_subscribers():
            self._publish(
                [
                    self._head(event.name, MEANINGS[event.name])
                    | {"namespace": namespace_of(event.lane)}
                    | job_fields(event)
                    for event in events
                ]
            )

    def on_enqueued(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """Publish stored jobs, which are not logged."""
        if not self.has_subscribers():
            return
        head = self._head(JOB_ENQUEUED, MEANINGS[JOB_ENQUEUED])
        self._publish(
            [
                head
                | {
                    "namespace": namespace_of(job.lane),
                    "job_id": id_text(answer.id),
                    "task": job.task,
                    "queue": queue_of(job.lane),
                }
                for job, answer in zip(jobs, answers, strict=False)
                if answer.created
            ]
        )

    def _head(self, name: str, meaning: EmissionMeaning) -> dict[str, Any]:
        return {
            "ts": format_time(datetime.fromtimestamp(self._clock().now(), UTC)),
            "level": LEVELS[meaning.level],
            "event": name,
            "namespace": self._namespace,
            "process": str(process_name()),
        }

    def _publish(self, events: Sequence[dict[str, Any]]) -> None:
        store = self._store()
        if store is not None:
            store.publish([encoder.encode(fields) for fields in events])
