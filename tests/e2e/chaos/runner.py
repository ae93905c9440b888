"""A worker that kills itself at a named point, and says so first; the product knows nothing.

python -m tests.e2e.chaos.runner uncommitted 3      # the third time that it gets there

claimed         the claims are committed, nothing has started
unsent          tasks have had their effect, their outcomes are on their way
uncommitted     the finish is written, its transaction not committed
committed       the finish is committed, its answer not delivered
torn            in the middle of a commit: half of its pages are in the log
unsynced        the commit's pages are in the log, but not yet on disk
"""

import asyncio
import sys
from typing import Any

import apsw

from durio.app.worker_builder import make_worker
from durio.ports.store import Store
from durio.telemetry.log import configure
from tests.e2e.chaos.fate import Fate
from tests.e2e.chaos.jobs import app
from tests.e2e.ledger import note
from tests.e2e.runner import Deadly

SYSTEM_VFS = "unix"
FRAME_HEADER_BYTES = 24


class Doomed(Deadly):
    """A store whose process dies at one point of an exchange, the n-th time."""

    def __init__(self, store: Store, fate: Fate) -> None:
        super().__init__(store, fate.point)
        self._fate = fate

    def die_at(self, point: str) -> None:
        self._fate.meet(point)


class TornFile(apsw.VFSFile):
    """The write-ahead log; the process may die between two of its writes."""

    def __init__(self, name: Any, flags: list[int], fate: Fate) -> None:
        super().__init__(SYSTEM_VFS, name, flags)
        self._fate = fate

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - the driver's name
        super().xWrite(data, offset)
        if len(data) == FRAME_HEADER_BYTES:
            self._fate.meet("torn")

    def xSync(self, flags: int) -> None:  # noqa: N802 - the driver's name
        self._fate.meet("unsynced")
        super().xSync(flags)


class TornVFS(apsw.VFS):
    """The system's own files, except for the write-ahead log."""

    def __init__(self, fate: Fate) -> None:
        super().__init__("torn", SYSTEM_VFS, makedefault=True)
        self._fate = fate

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        if flags[0] & apsw.SQLITE_OPEN_WAL:
            return TornFile(name, flags, self._fate)
        return apsw.VFSFile(SYSTEM_VFS, name, flags)


async def main(point: str, times: int) -> None:
    configure(app.settings.log)
    fate = Fate(point, times)
    vfs = TornVFS(fate)
    note("up", "", vfs=str(vfs))
    doomed = Doomed(await app.store(), fate)

    async def store() -> Any:
        return doomed

    app.store = store
    worker = await make_worker(app)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
