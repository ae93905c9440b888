"""Logs of the model store.

A store may append entries later than in the transaction that wrote them, and which of two
transactions comes first is not promised if they overlapped. So the model follows the store:
it is given what a log contains, and checks that each new entry may be the next one.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from durio.model.effects import Append


class ModelEntry(NamedTuple):
    """An entry of a log."""

    tag: int
    state: int | None
    job: bytes | None
    uid: str | None
    body: bytes | None


@dataclass
class Batch:
    """Entries of one writer for one log, in this order."""

    log: str
    left: list[ModelEntry]  # not appended yet
    began: int  # number of the step in which its transaction began,
    ended: int  # and in which it was committed
    may_wait: bool  # it need not be appended at once


@dataclass
class ModelLogs:
    """What the logs contain, and what has to come."""

    step: int = 0  # number of the operation that is carried out now
    appended: dict[str, list[ModelEntry]] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    locked: set[str] = field(default_factory=set)  # their entries have to wait
    collected: list[tuple[str, ModelEntry]] | None = None  # of an open transaction

    def length(self, log: str) -> int:
        return len(self.appended.get(log, ()))

    def write(
        self, entries: Sequence[tuple[str, ModelEntry]], began: int | None = None
    ) -> None:
        """Let the store append these entries, whose transaction is committed.

        `began` is the step in which a transaction began that may be long. The store may
        append its entries later.
        """
        if self.collected is not None:
            self.collected += entries
            return
        first = self.step if began is None else began
        for log in dict.fromkeys(log for log, _ in entries):
            own = [entry for name, entry in entries if name == log]
            may_wait = began is not None or log in self.locked
            self.batches.append(Batch(log, own, first, self.step, may_wait))

    @contextmanager
    def transaction(self) -> Generator[list[tuple[str, ModelEntry]]]:
        """Collect what is written; the caller writes it when it commits."""
        self.collected = []
        try:
            yield self.collected
        finally:
            self.collected = None

    def follow(self, log: str, found: Sequence[ModelEntry]) -> None:
        """Append what the store has appended; each entry must be allowed to be the next."""
        known = self.appended.setdefault(log, [])
        assert list(found[: len(known)]) == known
        self.forget_repeats(log)
        for entry in found[len(known) :]:
            batch = next((b for b in self.next_of(log) if b.left[0] == entry), None)
            assert batch is not None, f"{entry} may not be the next one of {log}"
            batch.left.pop(0)
            known.append(entry)
            self.forget_repeats(log)

    def next_of(self, log: str) -> Iterator[Batch]:
        """Yield the batches that may give the next entry.

        What was committed before another transaction began comes first.
        """
        waiting = [batch for batch in self.batches if batch.log == log]
        first_end = min((batch.ended for batch in waiting), default=0)
        return (batch for batch in waiting if batch.began <= first_end)

    def forget_repeats(self, log: str) -> None:
        """Remove entries whose id the log has, and batches without entries."""
        ids = {entry.uid for entry in self.appended[log]} - {None}
        for batch in self.batches:
            if batch.log == log:
                batch.left = [entry for entry in batch.left if entry.uid not in ids]
        self.batches = [batch for batch in self.batches if batch.left]


def new_entries(appends: Iterable[Append]) -> Iterator[tuple[str, ModelEntry]]:
    """Yield the entries of effects, each with its log."""
    for log, entries, _ in appends:
        for entry in entries:
            yield log, ModelEntry(entry.tag, None, None, entry.uid, entry.body)
