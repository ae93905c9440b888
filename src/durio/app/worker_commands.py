"""Send commands to workers through the store, and read their answers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from durio.model.effects import Effects
from durio.model.errors import DurioError
from durio.model.ids import id_text
from durio.model.names import did_you_mean
from durio.model.quantities import format_duration
from durio.model.worker_commands import answer_kind, commands_kind
from durio.ports.browse import WorkerRow
from durio.ports.clock import Clock
from durio.ports.control import AuditNote
from durio.ports.lease import command_put
from durio.ports.store import Store

POLL_SECONDS = 0.05
NO_ANSWER = ""  # the command will never be answered


async def send_command(
    store: Store,
    clock: Clock,
    worker: WorkerRow,
    verb: str,
    *,
    by: str,
    details: str = "",
) -> str:
    """Send a command, wake its worker, and write an audit line; return its id."""
    command = id_text(clock.new_id())
    namespace, target = str(worker.info["namespace"]), f"worker {worker.id}"
    note = AuditNote(namespace, by, verb, target, details)
    put = command_put(worker.id, command, verb)
    await store.commit(Effects(puts=[put]), note=note)
    return command


async def read_answers(store: Store, commands: Mapping[int, str]) -> dict[int, str]:
    """Return the answer of each worker; workers that have not answered are left out.

    NO_ANSWER means that the worker is gone, or that the command is older than an hour. A
    worker deletes the command and writes its answer in one transaction. So answers are read
    last: a command that is not open has its answer by then, or never gets one.
    """
    registered = {row.id for row in await store.workers(None)}
    answers: dict[int, str] = {}
    for worker, command in commands.items():
        is_open = worker in registered and bool(
            await store.records(commands_kind(worker), [command])
        )
        pieces = await store.list_records(answer_kind(command))
        if pieces:
            body = b"".join(piece.body for piece in pieces)
            answers[worker] = body.decode("utf-8", "replace")
        elif not is_open:
            answers[worker] = NO_ANSWER
    return answers


class WorkerNotFound(DurioError):
    """There is no such worker: it never existed, or it has ended."""

    code = "worker_not_found"


class WorkerResponse(NamedTuple):
    """The answer of one worker, or the reason why there is none."""

    row: WorkerRow
    answer: dict[str, Any] | None
    reason: str = ""

    def fields(self) -> dict[str, Any]:
        return {
            "id": self.row.id,
            "name": self.row.info["name"],
            "ok": self.answer is not None,
            "answer": self.answer,
            "error": self.reason or None,
        }


def find_workers(
    rows: Sequence[WorkerRow], ids: Sequence[str], flags: str = ""
) -> list[WorkerRow]:
    """Return workers by number or host/pid; without ids, all with a valid lease."""
    if not ids:
        return [row for row in rows if row.lease_seconds_left > 0]
    known = {str(row.id): row for row in rows}
    known |= {str(row.info["name"]): row for row in rows}
    for each in ids:
        if each not in known:
            raise WorkerNotFound(
                f"there is no worker {each!r}",
                cure=f"See: durio workers ls{flags}{did_you_mean(each, known)}",
            )
    return list({known[each].id: known[each] for each in ids}.values())


async def ask_workers(
    store: Store,
    clock: Clock,
    rows: Sequence[WorkerRow],
    verb: str,
    *,
    by: str,
    wait_seconds: float,
    details: str = "",
) -> list[WorkerResponse]:
    """Send the command to each worker, then wait for all answers together."""
    open_commands = {
        row.id: await send_command(store, clock, row, verb, by=by, details=details)
        for row in rows
    }
    answers: dict[int, str] = {}
    end = clock.monotonic() + wait_seconds
    while open_commands:
        answers |= await read_answers(store, open_commands)
        for worker in answers:
            open_commands.pop(worker, None)
        if not open_commands or clock.monotonic() >= end:
            break
        await clock.sleep(POLL_SECONDS)
    return [parse_response(row, answers.get(row.id), wait_seconds) for row in rows]


def parse_response(
    row: WorkerRow, answer: str | None, waited_seconds: float
) -> WorkerResponse:
    if answer == NO_ANSWER:
        return WorkerResponse(row, None, "it has stopped")
    if answer is None:
        return WorkerResponse(
            row, None, f"no answer within {format_duration(waited_seconds)}"
        )
    try:
        body = msgspec.json.decode(answer)
    except msgspec.DecodeError:
        body = None
    if not isinstance(body, dict):
        return WorkerResponse(row, None, "its answer cannot be read")
    fields = cast("dict[str, Any]", body)
    if "error" in fields:
        return WorkerResponse(row, None, str(fields["error"]))
    return WorkerResponse(row, fields)
