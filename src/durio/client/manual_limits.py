"""Limits that operators set: they hold for new jobs, in place of those in code.

The store keeps them as records. A process reads them before its first enqueue, and then
at most once a second, beside later calls: no call waits for that.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from durio.model.errors import DurioError
from durio.model.gate import GateSpec
from durio.model.gate_keys import CAP, gate_prefix
from durio.model.gate_rule import QUEUE_LIMIT, GateChoice
from durio.model.limit_records import ManualLimit, manual_limits_kind
from durio.ports.clock import Clock

if TYPE_CHECKING:
    from durio.ports.store import Store

READ_SECONDS = 1.0
LIMITS_MAX = 1000  # that an App may have set by hand


class ManualLimits:
    """The limits of one App that were set by hand, as this process knows them."""

    def __init__(self, namespace: str, clock: Clock) -> None:
        self.namespace = namespace
        self.choices: Mapping[str, GateChoice] = {}  # by the name of the limit
        self._clock = clock
        self._read_again_at = 0.0  # 0: never read
        self._of_queues: dict[str, tuple[GateSpec, ...]] = {}
        self._reading: set[asyncio.Task[bool]] = set()
        self.is_used = False  # whether a job of this process has gates

    @property
    def is_due(self) -> bool:
        return self._clock.monotonic() >= self._read_again_at

    async def refresh(self, store: "Store") -> bool:
        """Read them now if they were never read; else beside the calls of this loop.

        Return True if there are some now, and there were none before.

        A store that does not answer is reported by the enqueue that follows. Until it
        answers, the values that were read last hold, or else those of the code.
        """
        if not self._read_again_at:  # callers that come meanwhile read, too
            if await self._read(store):
                self._read_again_at = self._clock.monotonic() + READ_SECONDS
            return bool(self.choices)
        self._read_again_at = self._clock.monotonic() + READ_SECONDS
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # a write in a transaction of a caller without a loop
            return False
        task = loop.create_task(self._read(store))
        self._reading.add(task)  # a loop holds tasks weakly
        task.add_done_callback(self._reading.discard)
        return False

    async def _read(self, store: "Store") -> bool:
        """Read them; return False if the store did not answer."""
        kind = manual_limits_kind(self.namespace)
        try:
            records = await store.list_records(kind, limit=LIMITS_MAX)
        except DurioError:
            return False
        self.choices = {
            record.name: msgspec.json.decode(record.body, type=ManualLimit).choice
            for record in records
        }
        self._of_queues = {}
        return True

    def of_queue(self, queue: str) -> tuple[GateSpec, ...]:
        """Return the gate of a queue-wide limit; nothing without one."""
        gates = self._of_queues.get(queue)
        if gates is None:
            limit = f"{QUEUE_LIMIT}{queue}"
            choice = self.choices.get(limit)
            gates = ()
            if choice is not None:
                gates = (GateSpec(gate_prefix(CAP, self.namespace, limit), *choice),)
            self._of_queues[queue] = gates
        return gates
