"""Read the inputs of plan nodes: results of other jobs, as the first argument.

A node of a plan is stored without the results of the nodes before it. The worker reads them
after the claim, from the logs that those nodes have appended to, and writes them into the
arguments of the claim. So a child process gets them with the claim, too.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from durio.model.errors import DurioError, InvalidArguments, OperatingError
from durio.model.failure import short_failure
from durio.model.ids import id_text
from durio.model.job import DONE, Claim
from durio.model.outcome import Reason
from durio.model.plan_change import load_change
from durio.model.plan_ends import Err, Ok
from durio.model.plan_names import plan_of_log
from durio.model.plan_payload import plan_place_of, with_first
from durio.model.plan_place import Input
from durio.ports.logs import Entry
from durio.ports.plan_reader import change_records, whole_log
from durio.ports.store import Store

JOBS_MAX = 200  # per read of long results
# Logs with few entries are read together: at most 16 times 100 entries of 4 KiB.
SHORT_MAX, LOGS_MAX = 16, 100

Tagged = dict[int, Entry]  # the entries of a log, by tag


class FailedInput(NamedTuple):
    """A claim whose input cannot be read, and why."""

    claim: Claim
    error: DurioError
    reason: str


class InputTooLarge(Exception):
    """The results that one node would get exceed the bound."""


class PlanInputs:
    """Gives claims of plan nodes their inputs."""

    def __init__(self, store: Store, bytes_max: int) -> None:
        self._store = store
        self._bytes_max = bytes_max

    async def read(
        self, claims: Sequence[Claim]
    ) -> tuple[list[Claim], list[FailedInput]]:
        """Return the claims with their inputs, in order, and those without one.

        A log that several claims wait for is read once, and short ones are read
        together. Raises StoreError.
        """
        places = [plan_place_of(claim.opts) for claim in claims]
        inputs = [None if place is None else place.input for place in places]
        entries = await self._short_logs([given for given in inputs if given])
        ready: list[Claim] = []
        failed: list[FailedInput] = []
        for claim, given in zip(claims, inputs, strict=True):
            if given is None:
                ready.append(claim)
                continue
            try:
                value = await self._value(given, entries)
            except InputTooLarge:
                failed.append(
                    FailedInput(claim, self._too_large(), Reason.INPUT_TOO_LARGE)
                )
            except KeyError as missing:
                error = lost_input(claim, str(missing.args[0]))
                failed.append(FailedInput(claim, error, Reason.INPUT_LOST))
            else:
                try:
                    payload = with_first(claim.payload, value)
                except msgspec.MsgspecError as error:
                    broken = bad_arguments(claim, error)
                    failed.append(FailedInput(claim, broken, Reason.BAD_PAYLOAD))
                else:
                    ready.append(claim._replace(payload=payload))
        return ready, failed

    async def _short_logs(self, inputs: Sequence[Input]) -> dict[str, Tagged]:
        """Read the logs of inputs with few entries, many in one call."""
        short = (given.log for given in inputs if given.members < SHORT_MAX)
        logs = list(dict.fromkeys(log for log in short if log is not None))
        found: dict[str, Tagged] = {}
        for at in range(0, len(logs), LOGS_MAX):
            some = logs[at : at + LOGS_MAX]
            read = await self._store.read_logs(some, limit=SHORT_MAX)
            # A full one may have more entries.
            whole = (item for item in read.items() if len(item[1]) < SHORT_MAX)
            found |= {log: by_tag(entries) for log, entries in whole}
        return found

    async def _value(self, given: Input, entries: dict[str, Tagged]) -> bytes:
        """Return the input as JSON; raises KeyError if a result is not stored."""
        kind, log, members = given
        if log is None:
            return b"[]"
        if log not in entries:
            entries[log] = by_tag(await whole_log(self._store, log))
        tagged = entries[log]
        chosen = [tagged[tag] for tag in range(members)]
        if len(tagged) > members:
            chosen += await self._added(log, tagged)
        bodies = await self._bodies(chosen)
        if kind == "one":
            return bodies[0]
        if kind == "collected":
            pairs = zip(chosen, bodies, strict=True)
            bodies = [collected_item(entry, body) for entry, body in pairs]
        return b"[" + b",".join(bodies) + b"]"

    async def _added(self, log: str, by_tag: dict[int, Entry]) -> list[Entry]:
        """Return the entries of added members, in the order of those who added them."""
        namespace, plan_id = plan_of_log(log)
        records = await change_records(self._store, namespace, plan_id)
        changes = [load_change(record.body) for record in records]
        numbers = [add.number for change in changes for add in change.added]
        return [by_tag[number] for number in numbers if number in by_tag]

    async def _bodies(self, chosen: Sequence[Entry]) -> list[bytes]:
        """Return the bodies of entries; long results are in the records of their jobs."""
        found = {e.offset: b"null" for e in chosen if e.state != DONE}
        found |= {e.offset: e.body for e in chosen if e.body is not None}
        size = sum(map(len, found.values()))
        long = {e.job: e.offset for e in chosen if e.offset not in found and e.job}
        ids = list(long)
        for at in range(0, len(ids), JOBS_MAX):
            for job in await self._store.get(ids[at : at + JOBS_MAX]):
                if job.result is not None:
                    found[long[job.id]] = job.result
                    size += len(job.result)
            if size > self._bytes_max:
                break
        if size > self._bytes_max:
            raise InputTooLarge
        return [found[entry.offset] for entry in chosen]

    def _too_large(self) -> DurioError:
        return OperatingError(
            f"the results before this node are more than {self._bytes_max} bytes",
            cure="Store large results elsewhere and return their ids, or raise "
            "plan.input_bytes_max.",
        )


def by_tag(entries: Sequence[Entry]) -> Tagged:
    """Return the entries of members; others only say that what is before is done."""
    return {entry.tag: entry for entry in entries if entry.tag >= 0}


def needs_input(claim: Claim) -> bool:
    place = plan_place_of(claim.opts)
    return place is not None and place.input is not None


def collected_item(entry: Entry, body: bytes) -> bytes:
    """Return an Ok or an Err as JSON."""
    if entry.state == DONE:
        return msgspec.json.encode(Ok(msgspec.Raw(body)))
    kind, message = short_failure(body)
    job = "" if entry.job is None else id_text(entry.job)
    return msgspec.json.encode(Err(kind, message, job))


def bad_arguments(claim: Claim, error: Exception) -> DurioError:
    return InvalidArguments(
        f"{claim.task}: the stored arguments are damaged: {error}",
        cure="Edit them: durio dead retry --edit, or enqueue the plan again.",
        task=claim.task,
    )


def lost_input(claim: Claim, what: str) -> DurioError:
    return OperatingError(
        f"{claim.task}: a result before this node is not stored any more ({what})",
        cure="Results of a plan are kept for 7 days after its end; run the plan again.",
    )
