"""The supervisor in virtual time: starts, deaths, reloads, drains, and chance."""

import functools
import inspect
import itertools
import random  # noqa: TID251 - seeded
from collections.abc import Awaitable, Callable

import pytest

from durio.testing.clock import VirtualClock, run_virtual
from durio.worker.supervisor import EXIT_CRASH_LOOP
from tests.unit.worker.fake_fleet import (
    FINE,
    NEVER_READY,
    Life,
    SupervisorHarness,
    supervisor_harness,
)

pytestmark = pytest.mark.slow  # real processes, servers or seconds

DIES = Life(boot_seconds=0.1, dies_after=0.3)
UNREADY = Life(boot_seconds=9, dies_after=0.3)
SEGFAULTS = Life(dies_after=1.0, exit_code=-11)


def virtual(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a coroutine in virtual time; its first parameter is the clock."""

    @functools.wraps(test)
    def run(**fixtures: object) -> None:
        run_virtual(lambda clock: test(clock, **fixtures))

    signature = inspect.signature(test)
    fixtures = list(signature.parameters.values())[1:]
    run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
    return run


# --- starting and stopping


@virtual
async def test_starts_all_and_is_ready_with_the_first(clock: VirtualClock) -> None:
    place = supervisor_harness(
        clock, Life(boot_seconds=1), Life(boot_seconds=9), processes=2
    )
    await place.until(2)
    assert len(place.fleet.alive) == 2
    assert place.announce.calls == [
        "ready: 1 of 2 workers ready, no jobs running, 0 MiB"
    ]
    verdict = await place.end()
    assert (verdict.exit_code, verdict.signal, verdict.restarts) == (0, "SIGTERM", 0)
    assert place.announce.calls[-1] == "stopping"


@virtual
async def test_drain_shows_what_runs_each_second(clock: VirtualClock) -> None:
    place = supervisor_harness(clock, then=Life(drain_seconds=5))
    await place.until(10)
    verdict = await place.end()
    assert verdict.exit_code == 0
    assert len(place.shown) in {5, 6}
    assert {running for running, _ in place.shown} == {4}
    assert all(p.signals == ["SIGTERM"] for p in place.fleet.all)


@pytest.mark.parametrize(("signal", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
@virtual
async def test_what_is_cut_short_is_told(
    clock: VirtualClock, signal: str, code: int
) -> None:
    place = supervisor_harness(clock, FINE, Life(drain_seconds=100, grace_seconds=3))
    await place.until(10)
    assert (await place.end(signal)).exit_code == code


@virtual
async def test_second_signal_is_passed_on(clock: VirtualClock) -> None:
    place = supervisor_harness(clock, then=Life(drain_seconds=20))
    await place.until(10)
    place.supervisor.stop("SIGTERM")
    await place.until(1)
    place.supervisor.stop("SIGTERM")
    before = clock.monotonic()
    assert (await place.over()).exit_code == 143
    assert clock.monotonic() - before < 1


@virtual
async def test_who_does_not_hear_is_killed_after_grace_and_margin(
    clock: VirtualClock,
) -> None:
    place = supervisor_harness(clock, FINE, Life(ignores_signals=True, grace_seconds=3))
    await place.until(10)
    before = clock.monotonic()
    assert (await place.end()).exit_code == 143
    assert 23 <= clock.monotonic() - before <= 25
    assert [e["why"] for e in place.events_named("process.killed")] == [
        "it did not end in time"
    ]


@virtual
async def test_stop_while_they_boot(clock: VirtualClock) -> None:
    """Nothing was claimed: nothing is cut short."""
    place = supervisor_harness(clock)
    await place.until(0.1)
    assert (await place.end()).exit_code == 0


# --- deaths


@virtual
async def test_first_restart_is_at_once_then_pauses_double(clock: VirtualClock) -> None:
    place = supervisor_harness(clock, *[DIES] * 7, processes=1)
    await place.until(60)
    starts = [process.started_at for process in place.fleet.all]
    pauses = [after - before - 0.3 for before, after in itertools.pairwise(starts)]
    assert len(pauses) == 7
    assert pauses[0] < 0.01
    for pause, wanted in zip(pauses[1:], [0.5, 1, 2, 4, 8, 16], strict=True):
        assert 0.74 * wanted <= pause <= 1.26 * wanted
    assert (await place.end()).restarts == 7


@virtual
async def test_who_lived_for_a_minute_is_replaced_at_once(clock: VirtualClock) -> None:
    place = supervisor_harness(
        clock, DIES, DIES, Life(dies_after=61), DIES, processes=1
    )
    await place.until(70)
    third, fourth, fifth = place.fleet.all[2:5]
    assert fourth.started_at - third.started_at < 61.1
    assert 0.37 < fifth.started_at - fourth.started_at - 0.3 < 0.63
    await place.end()


@virtual
async def test_death_makes_the_others_look_at_once(clock: VirtualClock) -> None:
    place = supervisor_harness(clock, Life(dies_after=5, exit_code=-9), processes=3)
    await place.until(5.1)
    assert [process.looks for process in place.fleet.alive][:2] == [1, 1]
    assert len(place.fleet.alive) == 3
    await place.end()


@virtual
async def test_crash_loop_ends_with_its_own_exit_code(clock: VirtualClock) -> None:
    error = {"what": "boom", "code": "unexpected", "traceback": "Traceback"}
    place = supervisor_harness(
        clock, then=Life(dies_after=0.3, error=error), processes=4
    )
    verdict = await place.over()
    assert verdict.exit_code == EXIT_CRASH_LOOP
    assert (verdict.last_exit, verdict.error) == (1, error)
    assert len(place.events_named("process.ended")) == 10
    assert place.events_named("process.ended")[0]["stack"] == "Traceback"
    assert len(place.events_named("fleet.crashed")) == 1


@virtual
async def test_one_steady_worker_is_no_crash_loop(clock: VirtualClock) -> None:
    place = supervisor_harness(clock, FINE, then=DIES, processes=2)
    await place.until(3600)
    assert not place.events_named("fleet.crashed")
    assert len(place.fleet.claiming) == 1
    pauses = [event["pause"] for event in place.events_named("process.ended")]
    assert 22 < pauses[-1] < 38
    await place.end()


@virtual
async def test_blocked_worker_is_replaced_without_a_pause_or_a_count(
    clock: VirtualClock,
) -> None:
    place = supervisor_harness(
        clock, *[Life(dies_after=2, exit_code=70)] * 30, processes=1
    )
    await place.until(70)
    assert len(place.events_named("process.blocked")) == 30
    starts = [process.started_at for process in place.fleet.all]
    assert starts[30] - starts[0] == pytest.approx(60, abs=0.1)
    await place.end()


@pytest.mark.parametrize("code", [2, 3, 4, 5])
@virtual
async def test_a_start_that_cannot_work_is_not_repeated(
    clock: VirtualClock, code: int
) -> None:
    error = {"what": "no module", "code": "x", "cure": ""}
    bad = Life(boot_seconds=9, dies_after=0.5, exit_code=code, error=error)
    place = supervisor_harness(clock, then=bad, processes=3)
    verdict = await place.over()
    assert (verdict.exit_code, verdict.error) == (code, error)
    assert len(place.fleet.all) == 3


@pytest.mark.parametrize("code", [5, 130, 143, 0])
@virtual
async def test_a_start_that_ends_without_a_word_is_a_crash(
    clock: VirtualClock, code: int
) -> None:
    """Somebody's module ended the process: its code means nothing, and it is told."""
    bad = Life(boot_seconds=9, dies_after=0.5, exit_code=code)
    place = supervisor_harness(clock, then=bad, processes=1)
    assert (await place.over()).exit_code == EXIT_CRASH_LOOP
    ends = place.events_named("process.ended")
    assert {end["error"] for end in ends} == {f"exit code {code}"}


@virtual
async def test_no_more_are_ready_than_there_are(clock: VirtualClock) -> None:
    """Also while those that are replaced still drain."""
    place = supervisor_harness(clock, then=Life(drain_seconds=5), processes=2)
    await place.until(10)
    place.supervisor.reload()
    await place.until(60)
    counts = {text.partition(",")[0] for text in place.announce.texts}
    assert counts == {"0 of 2 workers ready", "2 of 2 workers ready"}
    await place.end()


@virtual
async def test_once_somebody_was_ready_such_a_start_is_repeated(
    clock: VirtualClock,
) -> None:
    """The store may come back, a half-copied module be whole."""
    gone = Life(boot_seconds=9, dies_after=0.5, exit_code=3)
    place = supervisor_harness(
        clock, Life(dies_after=5, exit_code=3), *[gone] * 30, processes=1
    )
    await place.until(1200)
    assert len(place.fleet.claiming) == 1
    assert (await place.end()).exit_code == 0


@virtual
async def test_where_the_jobs_have_moved_away_nobody_starts_again(
    clock: VirtualClock,
) -> None:
    """Workers that still drain, by order, are left in peace; then it is over."""
    moved = {"code": "store_moved", "what": "gone", "cure": "there"}
    place = supervisor_harness(
        clock,
        Life(dies_after=20.0, exit_code=-9),
        Life(ordered_after=15.0, drain_seconds=20.0),
        then=Life(boot_seconds=9, dies_after=0.3, exit_code=3, error=moved),
    )
    await place.until(30)
    drains = place.fleet.all[1]
    assert place.fleet.alive == [drains]
    assert not drains.signals
    verdict = await place.over()
    assert (verdict.exit_code, verdict.error) == (3, moved)
    assert len(place.fleet.all) == 3


@virtual
async def test_no_room_for_a_process(clock: VirtualClock) -> None:
    place = supervisor_harness(clock, 11, 11, 11, processes=1)
    await place.until(10)
    assert len(place.events_named("process.unstarted")) == 3
    assert len(place.fleet.claiming) == 1
    await place.end()


@virtual
async def test_silent_worker_is_killed_and_replaced(clock: VirtualClock) -> None:
    """Its lease is long over, its jobs are others': whatever it does, it hangs."""
    place = supervisor_harness(clock, Life(silent_after=10), processes=2)
    await place.until(90)
    assert [e["why"] for e in place.events_named("process.killed")] == [
        "no sign of life"
    ]
    assert len(place.fleet.claiming) == 2
    await place.end()


@virtual
async def test_a_supervisor_that_stood_still_blames_nobody(clock: VirtualClock) -> None:
    place = supervisor_harness(clock)
    await place.until(10)
    clock.loop.jumping.seconds += 300  # SIGSTOP, and SIGCONT five minutes later
    await place.until(30)
    assert not place.events_named("process.killed")
    await place.end()


@virtual
async def test_sign_of_life_only_while_workers_are_heard(clock: VirtualClock) -> None:
    place = supervisor_harness(clock, then=Life(silent_after=10), processes=1)
    place.announce.every_seconds = 0.5
    await place.until(10)
    assert place.announce.signs >= 19
    await place.until(30)
    before = place.announce.signs
    await place.until(20)
    assert place.announce.signs == before
    await place.end()


# --- reload


def check_gap(place: SupervisorHarness, least: int) -> Callable[[], None]:
    """At every moment from now on so many claim; the lowest number seen, in the end."""
    seen: list[int] = []

    def look() -> None:
        seen.append(len(place.fleet.claiming))
        if not place.running.done():
            place.clock.loop.call_later(0.01, look)

    look()
    return lambda: _check(seen, least)


def _check(seen: list[int], least: int) -> None:
    assert min(seen) >= least, f"only {min(seen)} claimed"


@virtual
async def test_reload_replaces_one_after_another_without_a_gap(
    clock: VirtualClock,
) -> None:
    place = supervisor_harness(clock, then=Life(drain_seconds=4), processes=3)
    await place.until(10)
    old = place.fleet.alive
    check = check_gap(place, 3)
    place.supervisor.reload()
    await place.until(30)
    check()
    assert not any(process.is_alive for process in old)
    assert len(place.fleet.claiming) == 3
    assert max(alive_at(place, moment) for moment in moments(place)) == 4
    assert place.announce.calls[1:] == [
        "reloading",
        "ready: 3 of 3 workers ready, 6 jobs running, 0 MiB",
    ]
    assert len(place.events_named("process.replaced")) == 3
    assert (await place.end()).restarts == 0


def moments(place: SupervisorHarness) -> list[float]:
    return [process.started_at for process in place.fleet.all]


def alive_at(place: SupervisorHarness, moment: float) -> int:
    return sum(
        p.started_at <= moment and (p.died_at is None or p.died_at > moment)
        for p in place.fleet.all
    )


@pytest.mark.parametrize("bad", [UNREADY, NEVER_READY], ids=["dies", "hangs"])
@virtual
async def test_reload_that_does_not_come_up_changes_nothing(
    clock: VirtualClock, bad: Life
) -> None:
    place = supervisor_harness(clock, FINE, FINE, bad)
    await place.until(10)
    old = place.fleet.alive
    place.supervisor.reload()
    await place.until(400)
    assert place.fleet.alive == old
    assert not any(process.signals for process in old)
    assert len(place.events_named("reload.failed")) == 1
    assert place.announce.calls[-1].startswith("ready: reload failed")
    assert not place.events_named("reload.ended")
    assert (await place.end()).exit_code == 0


@virtual
async def test_second_reload_begins_again(clock: VirtualClock) -> None:
    place = supervisor_harness(clock, FINE, FINE, NEVER_READY)
    await place.until(10)
    old = place.fleet.alive
    place.supervisor.reload()
    await place.until(5)
    place.supervisor.reload()
    await place.until(20)
    assert not any(process.is_alive for process in old)
    assert not place.fleet.all[2].is_alive
    assert len(place.fleet.claiming) == 2
    assert len(place.events_named("reload.ended")) == 1
    assert not place.events_named("reload.failed")
    await place.end()


@virtual
async def test_stop_in_the_middle_of_a_reload(clock: VirtualClock) -> None:
    """The one that drains already is not asked twice: it has its whole grace."""
    place = supervisor_harness(clock, then=Life(drain_seconds=10))
    await place.until(10)
    place.supervisor.reload()
    await place.until(2)
    draining = [process for process in place.fleet.alive if process.signals]
    assert len(draining) == 1
    verdict = await place.end()
    assert verdict.exit_code == 0
    assert draining[0].signals == ["SIGTERM"]


@virtual
async def test_reload_while_stopping_is_not_heard(clock: VirtualClock) -> None:
    place = supervisor_harness(clock, then=Life(drain_seconds=10))
    await place.until(10)
    place.supervisor.stop("SIGTERM")
    place.supervisor.reload()
    assert (await place.over()).exit_code == 0
    assert len(place.fleet.all) == 2


@virtual
async def test_reload_starts_an_empty_seat_at_once(clock: VirtualClock) -> None:
    place = supervisor_harness(clock, FINE, *[DIES] * 6, processes=2)
    await place.until(12)
    assert len(place.fleet.alive) == 1
    place.supervisor.reload()
    await place.until(5)
    assert len(place.fleet.claiming) == 2
    assert len(place.events_named("reload.ended")) == 1
    await place.end()


@virtual
async def test_successor_takes_the_seat_of_one_that_dies_meanwhile(
    clock: VirtualClock,
) -> None:
    place = supervisor_harness(
        clock, Life(dies_after=12, exit_code=-9), Life(boot_seconds=5), processes=1
    )
    await place.until(10)
    place.supervisor.reload()
    await place.until(10)
    assert len(place.fleet.all) == 2
    assert len(place.fleet.claiming) == 1
    await place.end()


# --- recycling, orders, bursts


@virtual
async def test_recycle_starts_the_replacement_first(clock: VirtualClock) -> None:
    grown = Life(recycles_after=20)
    place = supervisor_harness(clock, grown, grown)
    await place.until(10)
    check = check_gap(place, 2)
    await place.until(30)
    check()
    assert len(place.fleet.all) == 4
    assert len(place.fleet.claiming) == 2
    assert (await place.end()).restarts == 0


@virtual
async def test_recycle_that_fails_is_tried_again_later(clock: VirtualClock) -> None:
    place = supervisor_harness(clock, Life(recycles_after=20), UNREADY, processes=1)
    await place.until(40)
    assert [process.is_alive for process in place.fleet.all] == [True, False]
    await place.until(60)
    assert [process.is_alive for process in place.fleet.all] == [False, False, True]
    await place.end()


@virtual
async def test_who_was_ordered_to_drain_is_not_replaced(clock: VirtualClock) -> None:
    place = supervisor_harness(
        clock, Life(ordered_after=10), Life(ordered_after=40, drain_seconds=2)
    )
    await place.until(30)
    assert len(place.fleet.alive) == 1
    verdict = await place.over()  # nobody is left: nothing to supervise
    assert (verdict.exit_code, verdict.signal) == (0, None)
    assert len(place.events_named("process.drained")) == 2


@virtual
async def test_order_drops_a_successor_on_its_way(clock: VirtualClock) -> None:
    place = supervisor_harness(
        clock, Life(ordered_after=12, drain_seconds=9), NEVER_READY, processes=1
    )
    await place.until(10)
    place.supervisor.reload()
    assert (await place.over()).exit_code == 0
    assert not place.events_named("reload.failed")


@virtual
async def test_burst_is_over_when_all_are(clock: VirtualClock) -> None:
    ends = Life(dies_after=3, exit_code=0)
    place = supervisor_harness(clock, ends, SEGFAULTS, then=ends, is_burst=True)
    verdict = await place.over()
    assert (verdict.exit_code, verdict.restarts) == (0, 1)
    assert len(place.fleet.all) == 3


# --- chance


@pytest.mark.parametrize("seed", range(40))
@virtual
async def test_whatever_happens_it_recovers_and_ends(
    clock: VirtualClock, seed: int
) -> None:
    """Deaths, hangs, reloads at random; then peace, then a stop: no one is left."""
    chance = random.Random(seed)  # noqa: S311 - to be replayed
    place = supervisor_harness(
        clock, *[some_life(chance) for _ in range(20)], processes=3
    )
    for _ in range(20):
        await place.until(chance.uniform(0, 4))
        act = chance.randrange(4)
        if act == 0:
            place.supervisor.reload()
        elif act == 1 and place.fleet.alive:
            chance.choice(place.fleet.alive).die(chance.choice([-9, -11, 70, 143, 0]))
    await place.until(900)
    if not place.running.done():
        assert len(place.fleet.claiming) == 3
        assert len(place.fleet.alive) == 3
        place.supervisor.stop("SIGTERM")
    assert (await place.over()).exit_code in {0, 143, 2, 3, 4, 5, EXIT_CRASH_LOOP}


def some_life(chance: random.Random) -> Life:
    return Life(
        boot_seconds=chance.choice([0.1, 1.0, 5.0, float("inf")]),
        dies_after=chance.choice([0.5, 20.0, 100.0]),
        exit_code=chance.choice([1, -9, -11, 70, 3]),
        drain_seconds=chance.choice([0.0, 3.0, 60.0]),
        ignores_signals=chance.random() < 0.1,
        recycles_after=chance.choice([3.0, float("inf")]),
    )
