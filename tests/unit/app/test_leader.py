"""Who leads the upkeep, and who must leave it to others."""

from durio import App
from durio.maintenance.leader import Leader
from durio.ports.lease import WorkerInfo
from tests.unit.app.app_harness import virtual


@virtual
async def test_who_cannot_renew_leaves_the_lead_to_others(app: App) -> None:
    """It would judge no lease of others: nobody's jobs would come back."""
    store = await app.store()
    info = WorkerInfo(app.name, "x/1", "x", 1, (), 1, "0", {})
    stale, other = [await store.register(info, 600) for _ in range(2)]
    fresh = {stale: True, other: True}

    def leader(me: int) -> Leader:
        return Leader(store, app.clock, app.emit, lambda: me, lambda: fresh[me])

    first, second = leader(stale), leader(other)
    await first.turn()
    await second.turn()
    assert (first.leads, second.leads) == (True, False)
    fresh[stale] = False
    await first.turn()
    assert not first.leads, "it steps down at once, though nobody else leads yet"
    await app.clock.sleep(first.lease_seconds)
    await first.turn()
    await second.turn()
    assert (first.leads, second.leads) == (False, True)
