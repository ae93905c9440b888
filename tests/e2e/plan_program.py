"""Plans in real processes, which may kill themselves at a named point.

    python -m tests.e2e.plan_program work POINT
    python -m tests.e2e.plan_program large POINT        # or another name of PLANS

plan.written_chunk      a part of a large plan is committed, the rest is not
settle.before_commit    jobs are let go whose wait was over, and it is not committed
failure.before_sweep    a plan is failing, and nothing is cancelled that depends on that
none                    nowhere

On PostgreSQL the server commits what `settle` does, so the process dies before the call.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from durio import App, Permanent, group
from durio.app.worker_builder import make_worker
from durio.model.effects import Effects
from durio.plans import PlanFailure
from durio.ports import plan_writes
from durio.ports.store import Store
from durio.stores.sqlite import logs
from durio.stores.sqlite.write_session import SqliteTransaction, WriteSession
from durio.telemetry.log import configure
from tests.e2e.ledger import VARIABLE

MEMBERS = 1500  # over 1,000 nodes a plan is written in parts; over 1,000 waiters settle
CHORDS = 15
BOTH_SECONDS = 20.0
app = App(name="shop")  # DURIO_URL


def see(line: str) -> None:
    """Append a line to a file that all processes share."""
    with Path(os.environ[VARIABLE], "seen").open("a") as seen:
        seen.write(f"{line}\n")


@app.task
async def one(n: int) -> int:
    see(f"one {n}")
    return n


@app.task
async def total(values: list[int]) -> int:
    see(f"total {sum(values)}")
    return sum(values)


@app.task(retry=0)
def boom(n: int) -> int:
    if not Path(os.environ[VARIABLE], "repaired").exists():
        raise Permanent(f"no {n}")
    return n


@app.task
async def alert(failure: PlanFailure) -> None:
    see(f"alert {failure.text}")


@app.task
async def both(chord: int, member: int) -> int:
    """End at the same time as the other member of this chord, in another process."""
    folder = Path(os.environ[VARIABLE])
    (folder / f"{chord}-{member}").touch()
    until = app.clock.monotonic() + BOTH_SECONDS
    while not (folder / f"{chord}-{1 - member}").exists():
        assert app.clock.monotonic() < until, "the other member runs nowhere"
        await app.clock.sleep(0.001)
    see(f"pid {chord} {os.getpid()}")
    return member + 1


PLANS: dict[str, list[Any]] = {
    "large": [group(one.s(n) for n in range(MEMBERS)) | total.s()],
    "failing": [(group(boom.s(1), one.s(2)) | total.s()).on_error(alert.s())],
    "chords": [
        group(both.s(number, member) for member in (0, 1)) | total.s()
        for number in range(CHORDS)
    ],
}


class Deadly:
    """A store whose process dies at one point."""

    def __init__(self, store: Store, point: str) -> None:
        self._store = store
        self._point = point
        self._settling: SqliteTransaction | None = None
        if point == "settle.before_commit":
            logs.settle = self._settle_in
            deadly = self
            # A bound method would not get the session.
            WriteSession.commit = lambda self, tx: deadly._commit_in(self, tx)  # noqa: PLW0108

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, effects: Effects, **options: Any) -> Any:
        answer = await self._store.commit(effects, **options)
        if effects.jobs:
            self._die_at("plan.written_chunk")
        return answer

    async def act(self, ids: Any, action: Any, **options: Any) -> Any:
        if getattr(action, "reason", None) == "parent_dead":
            self._die_at("failure.before_sweep")
        return await self._store.act(ids, action, **options)

    async def settle(self, limit: int) -> Any:
        if app.url.startswith("postgresql") and (await self._has_begun()):
            self._die_at("settle.before_commit")
        return await self._store.settle(limit)

    async def _has_begun(self) -> bool:
        found = await self._store.list_records(f"plan:{app.name}")
        return any(b'"is_whole":false' not in record.body for record in found)

    # --- in the writer's thread of SQLite

    def _settle_in(self, tx: SqliteTransaction, limit: int) -> Any:
        self._settling = tx
        return settle(tx, limit)

    def _commit_in(self, session: WriteSession, tx: SqliteTransaction) -> None:
        if tx is self._settling:
            self._die_at("settle.before_commit")
        commit(session, tx)

    def _die_at(self, point: str) -> None:
        if point == self._point:
            os.kill(os.getpid(), signal.SIGKILL)


settle, commit = logs.settle, WriteSession.commit


async def main(role: str, point: str) -> None:
    configure(app.settings.log)
    deadly = Deadly(await app.store(), point)

    async def store() -> Any:
        return deadly

    app.store = store
    if role == "work":
        await (await make_worker(app)).run()
        return
    # A leader deletes what is not whole after this time.
    plan_writes.WRITTEN_SECONDS_MAX = 1.0
    for plan in PLANS[role]:
        see(f"plan {(await plan.enqueue()).id}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
