"""What workers are asked to do through the store, and what they answer.

An order is brought by the worker's next renewal, which a ring makes happen at once. When
its worker is gone, or an hour is over, nobody will answer: then the answer is empty.
"""

from collections.abc import Sequence

from durio.ports.lease import Command
from durio.stores.postgres.audit import write_audit_line
from durio.stores.postgres.driver import Row
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

INSERT_COMMAND = statement("insert_command")
FIND_COMMANDS = statement("find_commands")
ANSWER_COMMAND = statement("answer_command")
CLOSE_COMMANDS = statement("close_commands")
READ_ANSWER = statement("read_answer")
PRUNE_COMMANDS = statement("prune_commands")

ANSWER_BYTES_MAX = 256 * 1024
TRUNCATED = "\n... cut: the answer was {} bytes long"
DONE = "done"  # an answer without words
NO_ANSWER = ""
KEPT_SECONDS = 3600.0


async def send_command(
    tx: PostgresTransaction, worker: int, verb: str, by: str
) -> int | None:
    """Note it, and let the worker know that somebody wants something."""
    rows = await tx.rows(INSERT_COMMAND, worker, verb, await tx.now())
    if not rows:
        return None
    number, namespace = rows[0]
    tx.wake_worker(worker)
    await write_audit_line(tx, namespace, by, verb, f"worker {worker}")
    return number


async def open_commands(tx: PostgresTransaction, worker: int) -> list[Command]:
    """What a worker has not answered yet, the oldest first."""
    return [Command(*row) for row in await tx.rows(FIND_COMMANDS, worker)]


async def answer_command(
    tx: PostgresTransaction, worker: int, command: int, body: str
) -> None:
    """The first answer stays."""
    told = bounded_answer(body) or DONE
    await tx.rows(ANSWER_COMMAND, command, worker, await tx.now(), told)


def bounded_answer(body: str) -> str:
    """An answer that a store can keep: not too long, and without NUL."""
    raw = body.encode("utf-8", "replace").replace(b"\0", b"")
    if len(raw) <= ANSWER_BYTES_MAX:
        return raw.decode()
    note = TRUNCATED.format(len(raw))
    kept = raw[: ANSWER_BYTES_MAX - len(note)]
    return kept.decode("utf-8", "ignore") + note


async def close_commands(tx: PostgresTransaction, workers: Sequence[int]) -> None:
    """These are gone: called after their rows have been deleted."""
    await tx.rows(CLOSE_COMMANDS, workers, await tx.now())


def parse_answer(rows: Sequence[Row]) -> str | None:
    """None: nothing yet; NEVER: the worker is gone, or the order long over."""
    if not rows:
        return NO_ANSWER
    answered_at, answer = rows[0]
    return None if answered_at is None else answer


async def prune_commands(tx: PostgresTransaction, limit: int) -> None:
    """Whoever asked has long seen the answer."""
    await tx.rows(PRUNE_COMMANDS, await tx.now() - KEPT_SECONDS, limit)
