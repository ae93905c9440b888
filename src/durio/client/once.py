"""`app.once(key)`: work that succeeds once for a key, whoever tries it."""

from durio.client.held_record import HeldRecord
from durio.client.lock_block import LockBlock, LockClient
from durio.model.errors import UsageError
from durio.model.lock import LockHolder, load_holder, once_kind


class Once(LockBlock):
    """The claim of a key, true in the one block that is to do the work: see `App.once`."""

    __module__ = "durio"
    what = "once"

    def __init__(
        self, client: LockClient, key: str, holder: LockHolder, ttl_seconds: float
    ) -> None:
        super().__init__(client, once_kind(client.name), key, holder)
        self._ttl_seconds = ttl_seconds
        self._is_first: bool | None = None
        self._is_done = False

    def __bool__(self) -> bool:
        """Whether this block is to do the work."""
        if self._is_first is None:
            raise UsageError(
                f"once {self.name!r} was not entered",
                cure="Write: async with app.once(key) as first, and then: if first.",
            )
        return self._is_first

    @property
    def is_done(self) -> bool:
        """Whether the work was done before; False: it is ours, or another block does it now."""
        return self._is_done

    async def _acquire(self, held: HeldRecord) -> bool:
        standing = await held.take(self.new_body())
        self._is_first = standing is None
        self._is_done = standing is not None and load_holder(standing.body).is_done
        return self._is_first

    async def _end(self, held: HeldRecord, error: BaseException | None) -> bool:
        if error is not None:
            return await held.end(None)
        return await held.end(self.new_body(is_done=True), self._ttl_seconds)
