"""What workers are asked to do through the store, and what they answer.

An order is brought by the worker's next renewal, which a ring makes happen at once. When
its worker is gone, or an hour is over, nobody will answer: then the answer is empty.
"""

from durio.ports.lease import Command
from durio.stores.sqlite.audit import write_audit_line
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

FIND_WORKER_NAMESPACE = statement("find_worker_namespace")
INSERT_COMMAND = statement("insert_command")
FIND_COMMANDS = statement("find_commands")
ANSWER_COMMAND = statement("answer_command")
CLOSE_COMMANDS = statement("close_commands")
READ_ANSWER = statement("read_answer")
PRUNE_COMMANDS = statement("prune_commands")

ANSWER_BYTES_MAX = 256 * 1024
CUT = "\n... cut: the answer was {} bytes long"
DONE = "done"  # an answer without words
NO_ANSWER = ""
KEPT_SECONDS = 3600.0


def send_command(tx: SqliteTransaction, worker: int, verb: str, by: str) -> int | None:
    """Note it, and let the worker know that somebody wants something."""
    number = tx.db.value(INSERT_COMMAND, (worker, verb, tx.now))
    if number is not None:
        tx.woken_workers.add(worker)
        namespace = tx.db.value(FIND_WORKER_NAMESPACE, (worker,))
        write_audit_line(tx, namespace, by, verb, f"worker {worker}")
    return number


def open_commands(tx: SqliteTransaction, worker: int) -> list[Command]:
    """What a worker has not answered yet, the oldest first."""
    return [Command(*row) for row in tx.db.rows(FIND_COMMANDS, (worker,))]


def answer_command(tx: SqliteTransaction, worker: int, command: int, body: str) -> None:
    """The first answer stays."""
    tx.db.rows(ANSWER_COMMAND, (command, worker, tx.now, bounded_answer(body) or DONE))


def bounded_answer(body: str) -> str:
    """An answer that a store can keep."""
    raw = body.encode("utf-8", "replace")
    if len(raw) <= ANSWER_BYTES_MAX:
        return raw.decode()
    note = CUT.format(len(raw))
    kept = raw[: ANSWER_BYTES_MAX - len(note)]
    return kept.decode("utf-8", "ignore") + note


def close_commands(tx: SqliteTransaction, worker: int) -> None:
    """The worker is gone."""
    tx.db.rows(CLOSE_COMMANDS, (worker, tx.now))


def read_answer(db: Database, command: int) -> str | None:
    """None: nothing yet; NEVER: the worker is gone, or the order long over."""
    rows = db.rows(READ_ANSWER, (command,))
    if not rows:
        return NO_ANSWER
    answered_at, answer = rows[0]
    return None if answered_at is None else answer


def prune_commands(tx: SqliteTransaction, limit: int) -> None:
    """Whoever asked has long seen the answer."""
    tx.db.rows(PRUNE_COMMANDS, (tx.now - KEPT_SECONDS, limit))
