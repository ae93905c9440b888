"""Notes at the store what schedulers and producers write about schedules.

It reads the bodies of records and the options of jobs as JSON, with no code of the engine.
"""

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from durio.model.effects import Effects, Put
from durio.model.job import NewJob
from durio.ports.commit import Committed
from durio.ports.records import Due
from tests.simulation.world import Node

if TYPE_CHECKING:  # it writes there, and belongs to the recorder of all calls
    from tests.simulation.ledger import Ledger

SCHEDULES = "schedule:"  # begin of the kind of their records
CLIENTS = "producer"  # begin of the names of processes that change schedules
READS_MAX = 50  # reads per process and schedule that a late commit may follow


class ScheduleRead(NamedTuple):
    """A record that was due when a scheduler read it."""

    version: int
    now: float  # time of the store
    place: int  # lines of the ledger before it


class MadeJob(NamedTuple):
    """The job of a tick, as it was stored."""

    due: float
    n: int  # the number of the job
    mark: int  # which definition made it


class ScheduleRecorder:
    """Writes the lines `schedule` and `tick`."""

    def __init__(self, ledger: "Ledger") -> None:
        self.ledger = ledger
        self.reads: defaultdict[tuple[str, str], deque[ScheduleRead]] = defaultdict(
            lambda: deque(maxlen=READS_MAX)
        )
        self.noted: dict[str, dict[str, Any]] = {}  # name -> what was noted last

    def read(self, node: Node, kind: str, due: Due) -> None:
        """Remember what a scheduler has read: its next commit follows from that."""
        if kind.startswith(SCHEDULES):
            place = len(self.ledger.entries)
            for record in due.records:
                read = ScheduleRead(record.version, due.now, place)
                self.reads[node.name, record.name].append(read)

    def committed(self, node: Node, effects: Effects, answer: Committed) -> None:
        """Note what a commit has written, the jobs first."""
        puts = [put for put in effects.puts if put.kind.startswith(SCHEDULES)]
        if not puts:
            return
        made: defaultdict[str, list[MadeJob]] = defaultdict(list)
        for job, enqueued in zip(effects.jobs, answer.enqueued, strict=True):
            if enqueued.created:
                name, one = self._made(job)
                made[name].append(one)
                fields = {"schedule": number_of(name), "due": one.due}
                self.ledger.note(node.name, "tick", one.n, **fields)
        for put in puts:
            self._note(node, put, made[put.name])

    def _made(self, job: NewJob) -> tuple[str, MadeJob]:
        name, due, _backfill = msgspec.json.decode(job.opts or b"{}")["tick"]
        _args, kwargs = msgspec.json.decode(job.payload)
        n = self.ledger.new_number(job.id)
        return name, MadeJob(due, n, kwargs["mark"])

    def _note(self, node: Node, put: Put, made: list[MadeJob]) -> None:
        fields: dict[str, Any] = {"body": None}
        if put.body is not None:
            body = msgspec.json.decode(put.body)
            fields = {
                "body": body["definition"],
                "is_paused": body.get("pause") is not None,
                "next_at": body.get("next_at"),
                "waiting": body.get("waiting", []),
            }
        is_client = node.name.startswith(CLIENTS)
        if not made and not is_client and self.noted.get(put.name) == fields:
            return
        self.noted[put.name] = fields
        reads = [
            (read.now, read.place)
            for read in self.reads[node.name, put.name]
            if put.if_version in (None, read.version)
        ]
        self.ledger.note(
            node.name,
            "schedule",
            number_of(put.name),
            **fields,
            made=made,
            is_client=is_client,
            reads=[] if is_client else reads,
        )


def number_of(name: str) -> int:
    """Return the number in the name of a schedule."""
    return int(name[1:])
