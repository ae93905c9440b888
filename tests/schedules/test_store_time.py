"""A client whose clock is wrong: schedules are judged by the time of the store."""

from typing import Any

import pytest

from durio import App
from durio.errors import InvalidSchedule
from durio.ports.records import Due
from tests.schedules.schedule_harness import HOUR, Runs, at, offset, sleeping_task
from tests.unit.app.app_harness import virtual


class AheadStore:
    """A store whose clock is ahead of the client's, also when nothing is due."""

    def __init__(self, store: Any, seconds: float) -> None:
        self.store = store
        self.seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def due_records(self, kind: str, *, limit: int) -> Due:
        due = await self.store.due_records(kind, limit=limit)
        return due._replace(now=due.now + self.seconds)


@virtual
async def test_a_client_that_is_hours_behind(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, ahead = sleeping_task(app, Runs()), AheadStore(await app.store(), 3 * HOUR)

    async def store() -> Any:
        return ahead

    monkeypatch.setattr(app, "store", store)
    first = await app.schedules.create("s", work, every="1h")
    assert offset(first.next_at) == 4 * HOUR
    preview = await app.schedules.preview("s", 1)
    assert offset(preview[0].at) == 4 * HOUR
    span: dict[str, Any] = {"start": at(HOUR), "end": at(3 * HOUR)}
    assert (await app.schedules.backfill("s", **span, dry_run=True)).total == 2
    with pytest.raises(InvalidSchedule, match="in the past"):
        await app.schedules.create("once", work, at=at(2 * HOUR))
    await app.schedules.pause("s")
    second = await app.schedules.create("t", work, every="1h")
    assert offset(second.next_at) == 4 * HOUR
    ahead.seconds = 6 * HOUR
    assert (await app.schedules.get("t")).state == "missed"
    assert [each.state for each in await app.schedules.list()] == ["paused", "missed"]
