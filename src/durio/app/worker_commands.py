"""Send commands to workers through the store, and read their answers."""

from collections.abc import Mapping

from durio.model.effects import Effects
from durio.model.ids import id_text
from durio.model.worker_commands import answer_kind, commands_kind
from durio.ports.browse import WorkerRow
from durio.ports.clock import Clock
from durio.ports.control import AuditNote
from durio.ports.lease import command_put
from durio.ports.store import Store

NO_ANSWER = ""  # the command will never be answered


async def send_command(
    store: Store, clock: Clock, worker: WorkerRow, verb: str, *, by: str
) -> str:
    """Send a command, wake its worker, and write an audit line; return its id."""
    command = id_text(clock.new_id())
    note = AuditNote(str(worker.info["namespace"]), by, verb, f"worker {worker.id}")
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
