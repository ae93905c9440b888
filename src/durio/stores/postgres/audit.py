"""What people did by hand, written down in the transaction that does it."""

from collections.abc import Sequence
from datetime import UTC, datetime

from durio.model.ids import id_text
from durio.model.job import STATE_BY_CODE
from durio.ports.browse import Query
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

INSERT_AUDIT = statement("audit_insert")
ADD_TO_AUDIT = statement("audit_add")
PRUNE_AUDIT = statement("audit_prune")

KEPT_MAX = 10_000
WHO_CHARS_MAX = 200
TARGET_CHARS_MAX = 1000
IDS_NAMED_MAX = 5


async def write_down(
    tx: Transaction,
    namespace: str,
    who: str,
    verb: str,
    target: str,
    jobs: int = 0,
    *,
    step_of: int | None = None,
) -> int:
    """One line; `step_of` is the line of the act that this is one more step of."""
    now = await tx.now()
    if step_of is not None and await tx.rows(ADD_TO_AUDIT, step_of, now, jobs):
        return step_of
    who, target = storable(who)[:WHO_CHARS_MAX], storable(target)[:TARGET_CHARS_MAX]
    return await tx.value(INSERT_AUDIT, now, namespace, who, verb, target, jobs)


def storable(text: str) -> str:
    """Text as the database takes it: no NUL, no half characters."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


async def prune_audit(tx: Transaction, limit: int) -> None:
    """Only the newest lines stay."""
    await tx.rows(PRUNE_AUDIT, KEPT_MAX, limit)


def ids_in_words(ids: Sequence[bytes]) -> str:
    """The first few by name, the others by number."""
    named = ", ".join(id_text(job_id) for job_id in ids[:IDS_NAMED_MAX])
    more = len(ids) - IDS_NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named


def query_in_words(query: Query) -> str:
    """Which jobs a bulk act was meant for."""
    states = "all" if query.states is None else states_in_words(query.states)
    parts = [f"{states} jobs"]
    whose = query.lane or (query.namespace and f"{query.namespace}:*")
    parts += [f"of {whose}"] if whose else []
    parts += [f"task {query.task}"] if query.task is not None else []
    parts += [f"reason {query.reason}"] if query.reason is not None else []
    parts += [f"error {query.error!r}"] if query.error is not None else []
    parts += [f"worker {query.worker}"] if query.worker is not None else []
    if query.finished_before is not None:
        parts.append(f"before {moment_in_words(query.finished_before)}")
    if query.finished_after is not None:
        parts.append(f"after {moment_in_words(query.finished_after)}")
    return " ".join(parts)


def states_in_words(states: Sequence[int]) -> str:
    """Their names."""
    return " or ".join(STATE_BY_CODE[state].value for state in states) or "no"


def moment_in_words(seconds: float) -> str:
    """To the second, for people."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
