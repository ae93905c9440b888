"""The interface for logs: named lists that only grow.

`Commit`, the effects of an outcome, and the ends of jobs append to a log; see `model/logs.py`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

ENTRY_BYTES_MAX = 32 * 1024
LOG_NAME_BYTES_MAX = 128  # maximum of the name of a log, and of the id of an entry
ON_END_MAX = 8  # entries that a job appends when it ends


class Entry(NamedTuple):
    """An entry of a log."""

    offset: int  # 0, 1, 2 and so on
    at: float  # when it was appended, by the store's clock
    tag: int
    # Of a job that ended: its final state and its id. The body is its result, or the type
    # and message of its last error; None if it has none, or a result of more than 4 KiB.
    state: int | None
    job: bytes | None
    uid: str | None
    body: bytes | None


class Logs(Protocol):
    """Reads logs, and deletes what is not needed any more.

    A log that does not exist has the length 0. The entries of one commit are appended in its
    order, and so are those of the end of one job. What was committed before a transaction
    began comes before its entries. Between transactions that overlap, and between jobs that
    end together, the order is not promised. A store may append after the commit
    (`Upkeep.settle`), but loses and repeats no entry.
    """

    async def read_log(
        self, log: str, start: int = 0, *, limit: int = 1000
    ) -> list[Entry]:
        """Return entries from an offset on, in order and without gaps.

        When an entry is seen, all entries with lower offsets can be seen.
        """
        ...

    async def read_logs(
        self, logs: Sequence[str], *, limit: int
    ) -> dict[str, list[Entry]]:
        """Return the first `limit` entries of each of several logs, as `read_log`.

        Logs without entries are left out.
        """
        ...

    async def log_lengths(self, logs: Sequence[str]) -> dict[str, int]:
        """Return how many entries each log ever got; logs that do not exist are left out."""
        ...

    async def trim_log(self, log: str, before: int) -> None:
        """Delete entries with lower offsets; the others keep their offsets."""
        ...

    async def drop_logs(self, logs: Sequence[str]) -> None:
        """Delete whole logs; a job that waits for one goes on waiting."""
        ...
