"""Tells whoever listens to the store what happens here: a subscriber like the log.

Nothing is built while nobody listens: that is looked up once a second.
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
from durio.telemetry.log import job_fields, stamped
from durio.telemetry.names import JOB_ENQUEUED, LEVELS, MEANINGS, Meaning

LOOK_SECONDS = 1.0
encoder = msgspec.json.Encoder(enc_hook=repr)


class LiveTeller:
    """Forwards emissions of one App to the store's listeners."""

    def __init__(
        self, namespace: str, clock: Clock, store: Callable[[], Live | None]
    ) -> None:
        self._namespace = namespace
        self._clock = clock
        self._store = store
        self._is_heard = False
        self._look_at = float("-inf")

    def is_heard(self) -> bool:
        """Whether anybody listens, as of a moment ago; asked for every batch of jobs."""
        now = self._clock.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            store = self._store()  # one that is not open has no listeners
            self._is_heard = store is not None and store.is_heard()
        return self._is_heard

    def wants(self, meaning: Meaning) -> bool:
        """A listener wants everything: it chooses for itself."""
        del meaning
        return self.is_heard()

    def on_event(self, name: str, meaning: Meaning, fields: dict[str, Any]) -> None:
        """One thing happened."""
        if self.is_heard():
            self._tell([self._head(name, meaning) | fields])

    def on_jobs(self, events: Sequence[JobEvent]) -> None:
        """Things happened to jobs."""
        if self.is_heard():
            self._tell(
                [
                    self._head(event.name, MEANINGS[event.name])
                    | {"namespace": namespace_of(event.lane)}
                    | job_fields(event)
                    for event in events
                ]
            )

    def on_enqueued(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """Jobs were stored; told to listeners only, never to the log."""
        if not self.is_heard():
            return
        head = self._head(JOB_ENQUEUED, MEANINGS[JOB_ENQUEUED])
        self._tell(
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

    def _head(self, name: str, meaning: Meaning) -> dict[str, Any]:
        return {
            "ts": stamped(datetime.fromtimestamp(self._clock.now(), UTC)),
            "level": LEVELS[meaning.level],
            "event": name,
            "namespace": self._namespace,
            "process": str(process_name()),
        }

    def _tell(self, told: Sequence[dict[str, Any]]) -> None:
        store = self._store()
        if store is not None:
            store.tell([encoder.encode(fields) for fields in told])
