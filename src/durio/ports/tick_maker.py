"""The interface through which a scheduler makes the jobs of a tick; an App provides it."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from durio.model.effects import Effects
from durio.model.schedule import TickRun
from durio.model.tick import TickPlace


class MadeTick(NamedTuple):
    """The job or plan of a tick, before it is stored."""

    run: TickRun
    effects: Effects


class TickMaker(Protocol):
    """Encodes the job or plan of a tick; it writes nothing."""

    async def make(
        self, link: Mapping[str, Any], tick: TickPlace, run_id: bytes, delay: float
    ) -> MadeTick:
        """Return the job or plan with this id, which starts after `delay` seconds.

        Raises UsageError if the code has changed so that the arguments no longer fit.
        """
        ...
