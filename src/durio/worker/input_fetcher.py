"""Hold claims of plan nodes back until their inputs are read."""

import asyncio
from collections.abc import Callable, Sequence

from durio.model.errors import StoreError
from durio.model.job import Claim
from durio.worker.plan_inputs import FailedInput, PlanInputs, needs_input

RETRY_SECONDS = 1.0  # a claim whose input could not be read is given back for this time


class InputFetcher:
    """Reads inputs beside the claim loop; other claims start meanwhile."""

    def __init__(
        self,
        inputs: PlanInputs,
        add: Callable[[Sequence[Claim]], None],
        fail: Callable[[FailedInput], None],
        release: Callable[[Claim, float], None],
    ) -> None:
        self._inputs = inputs
        self._add = add
        self._fail = fail
        self._release = release
        self.held: dict[bytes, Claim] = {}  # claims whose input is being read
        self._readers: set[asyncio.Task[None]] = set()

    def without_held(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Start to read the inputs of claims that need one; return the other claims."""
        needing = [claim for claim in claims if needs_input(claim)]
        if not needing:
            return claims
        new = [claim for claim in needing if claim.id not in self.held]
        self.held |= {claim.id: claim for claim in new}
        reader = asyncio.get_running_loop().create_task(self._read(new))
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)
        ids = {claim.id for claim in needing}
        return [claim for claim in claims if claim.id not in ids]

    def release_all(self) -> None:
        """Give back all claims that are held: the worker stops."""
        for claim in self.drop_all():
            self._release(claim, 0.0)

    def drop_all(self) -> list[Claim]:
        """Forget and return all claims that are held: the lease is lost."""
        dropped, self.held = list(self.held.values()), {}
        return dropped

    async def _read(self, claims: Sequence[Claim]) -> None:
        try:
            ready, failed = await self._inputs.read(claims)
        except StoreError:
            for claim in claims:
                if self.held.pop(claim.id, None) is not None:
                    self._release(claim, RETRY_SECONDS)
            return
        for each in failed:
            if self.held.pop(each.claim.id, None) is not None:
                self._fail(each)
        self._add([c for c in ready if self.held.pop(c.id, None) is not None])
