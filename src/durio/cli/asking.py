"""Asking workers through the store, and waiting for what they answer."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec

from durio.model.duration import spoken
from durio.model.errors import DurioError
from durio.model.names import did_you_mean
from durio.ports.browse import WorkerRow
from durio.ports.clock import Clock
from durio.ports.store import Store

LOOK_SECONDS = 0.05


class WorkerNotFound(DurioError):
    """There is no such worker: never there, or gone."""

    code = "worker_not_found"


class Answered(NamedTuple):
    """What one worker said; without an answer, why there is none."""

    row: WorkerRow
    answer: dict[str, Any] | None
    why: str = ""

    def fields(self) -> dict[str, Any]:
        """As data."""
        return {
            "id": self.row.id,
            "name": self.row.info["name"],
            "ok": self.answer is not None,
            "answer": self.answer,
            "error": self.why or None,
        }


def find_workers(rows: Sequence[WorkerRow], ids: Sequence[str]) -> list[WorkerRow]:
    """Workers by number or host/pid; without any, all that are alive."""
    if not ids:
        return [row for row in rows if row.lease_seconds_left > 0]
    known = {str(row.id): row for row in rows}
    known |= {str(row.info["name"]): row for row in rows}
    for each in ids:
        if each not in known:
            raise WorkerNotFound(
                f"there is no worker {each!r}",
                cure=f"See: durio workers ls.{did_you_mean(each, known)}",
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
) -> list[Answered]:
    """Give each the order, then wait for all answers together."""
    orders = {row.id: await store.order(row.id, verb, by=by) for row in rows}
    answers: dict[int, str] = {}
    end = clock.monotonic() + wait_seconds
    while True:
        for worker, number in orders.items():
            if number is not None and worker not in answers:
                told = await store.answer_to(number)
                if told is not None:
                    answers[worker] = told
        waits = [w for w, n in orders.items() if n is not None and w not in answers]
        if not waits or clock.monotonic() >= end:
            break
        await clock.sleep(LOOK_SECONDS)
    return [answered(row, answers.get(row.id), wait_seconds, orders) for row in rows]


def answered(
    row: WorkerRow,
    told: str | None,
    waited_seconds: float,
    orders: dict[int, int | None],
) -> Answered:
    """An answer as data, or why there is none."""
    if told == "" or orders[row.id] is None:
        return Answered(row, None, "it is gone")
    if told is None:
        return Answered(row, None, f"no answer within {spoken(waited_seconds)}")
    try:
        body = msgspec.json.decode(told)
    except msgspec.DecodeError:
        body = None
    if not isinstance(body, dict):
        return Answered(row, None, "its answer cannot be read")
    fields = cast("dict[str, Any]", body)
    if "error" in fields:
        return Answered(row, None, str(fields["error"]))
    return Answered(row, fields)


def failed(answered: Answered) -> str:
    """Why there is no answer, and what can be seen from outside."""
    row, info = answered.row, answered.row.info
    return (
        f"{row.id}  {info['name']}  {answered.why} (lease {row.lease_told()}, "
        f"pid {info['pid']} on {info['host']}, {row.running} jobs)"
    )
