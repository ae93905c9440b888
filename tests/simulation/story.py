"""The history of a job, printed for people.

Times are seconds since the world began. A line with a `!` is a fault.
"""

from collections.abc import Iterator

from durio.model.job import STATE_BY_CODE
from durio.testing.clock import STARTED_SECONDS
from tests.simulation.checks import Violation
from tests.simulation.ledger import ALL_NODES, LedgerLine
from tests.simulation.scenario import Played

LINES_MAX = 60
# Lines about processes, not about a job.
OF_PROCESSES = {"fault", "exit", "registered", "left"}


def describe(played: Played, violation: Violation) -> str:
    """Return the last events before a broken invariant."""
    entries = list(concerning(played, violation.n))
    left_out = len(entries) - LINES_MAX
    lines = [f"story of {violation}"]
    lines += headline(played, violation.n)
    if left_out > 0:
        lines.append(f"  ... {left_out} lines before")
    lines += [line(entry) for entry in entries[-LINES_MAX:]]
    lines += ending(played, violation.n)
    return "\n".join(lines)


def is_known(played: Played, n: int | None) -> bool:
    """Whether a job with this number was asked for; None stands for all jobs."""
    return n is None or any(wish.n == n for wish in played.wishes)


def timeline(played: Played, n: int | None = None) -> Iterator[str]:
    """Yield the whole history, or that of one job."""
    entries = played.ledger.entries if n is None else concerning(played, n)
    yield from headline(played, n)
    yield from (line(entry) for entry in entries)
    yield from ending(played, n)


def concerning(played: Played, n: int | None) -> Iterator[LedgerLine]:
    """Yield lines about a job, and about the processes that held it."""
    if n is None:
        yield from played.ledger.entries
        return
    ours = {n} | {e.n for e in played.ledger.of("node") if e.fields["plan"] == n}
    ours |= {e.n for e in played.ledger.of("tick") if e.fields["schedule"] == n}
    own = [entry for entry in played.ledger.entries if entry.n in ours]
    nodes = {entry.node for entry in own} | {ALL_NODES}
    since = min((entry.at for entry in own), default=0.0)
    until = max((entry.at for entry in own), default=0.0)
    for entry in played.ledger.entries:
        lasts = entry.fields.get("seconds", 0.0) if entry.what == "fault" else 0.0
        is_near = entry.at <= until and entry.at + lasts >= since
        is_beside = entry.what in OF_PROCESSES and entry.node in nodes and is_near
        if entry.n in ours or (entry.n is None and is_beside):
            yield entry


def line(entry: LedgerLine) -> str:
    at = entry.at - STARTED_SECONDS
    mark = "!" if entry.what == "fault" else " "
    node = "everybody" if entry.node == ALL_NODES else entry.node
    about = "" if entry.n is None else f"job {entry.n}"
    told = " ".join(
        f"{name}={value}" for name, value in entry.fields.items() if value is not None
    )
    return f"{at:10.3f} {mark} {node:<11} {entry.what:<13} {about:<8} {told}".rstrip()


def headline(played: Played, n: int | None) -> Iterator[str]:
    """Yield lines about the jobs that were requested."""
    for wish in played.wishes:
        if wish.n == n:
            at = wish.at - STARTED_SECONDS
            yield f"  job {n}: {wish.kind}, asked for at {at:.3f}, must end as " + (
                " or ".join(sorted(wish.ends))
            )


def ending(played: Played, n: int | None) -> Iterator[str]:
    """Yield the final state in the store."""
    if n is None:
        return
    records = [one for one in played.records if played.ledger.number(one) == n]
    for record in records:
        state = STATE_BY_CODE[record.state].value
        because = f" ({record.reason})" if record.reason else ""
        yield (
            f"  at the end the store says: {state}{because}, claim {record.claim_no}, "
            f"retried {record.retried}, losses {record.losses}"
        )
    if not records:
        yield "  at the end the store knows no such job"
