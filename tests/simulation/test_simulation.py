"""The engine survives faults: fixed seeds, fresh seeds, and the same history twice.

DURIO_SIM_SECONDS is the time box for fresh seeds. Their range is printed and derived
from the commit, so that a failing seed can be replayed anywhere: `make sim SEED=n`.
"""

import asyncio
import os
from collections.abc import Callable

import pytest

from tests.checkout import commit
from tests.conftest import SAID
from tests.simulation.account import Account
from tests.simulation.runner import WorldProcess, WorldSelection, run
from tests.simulation.summary import HELD, UNKNOWN, Summary, failure

# Together they exercise every invariant. When the way in which worlds are drawn has
# changed, `make sim SEEDS=100 SIM_ARGS="--pick 12"` names a new set.
FIXED = 1, 2, 4, 14, 16, 21, 25, 38, 39, 58, 65, 88
BOX_SECONDS = float(os.environ.get("DURIO_SIM_SECONDS", "50"))
FRESH_FROM, FRESH_RANGE = 1_000_000, 1_000_000_000
HASH_SEEDS = 11, 12


def fresh_seed() -> int:
    """Differs between commits; the same on every machine."""
    here = commit().removesuffix("-dirty")
    try:
        return FRESH_FROM + int(here, 16) % FRESH_RANGE
    except ValueError:  # not in a checkout
        return FRESH_FROM


def play_all(plan: WorldSelection) -> tuple[Summary, list[int]]:
    summary, told, here = Summary(), [], commit()

    def tell(account: Account) -> None:
        summary.add(account)
        told.append(account.seed)
        if account.has_failed:
            print(failure(account, here))

    run(plan, tell)
    print("\n".join(summary.lines(summary.wall_seconds)))
    return summary, told


Show = Callable[[str], None]


@pytest.fixture
def show(request: pytest.FixtureRequest) -> Show:
    """Prints a line at the end of the run, also when the test passes."""

    def say(text: str) -> None:
        request.node.user_properties.append((SAID, text))

    return say


@pytest.mark.proves("M97", "M98")
@pytest.mark.timeout(600)
def test_fixed_seeds_hold():
    plan = WorldSelection(only=FIXED, jobs=os.cpu_count() or 1, twin_every=6)
    summary, told = play_all(plan)
    assert told == list(FIXED), "told in the order of the seeds"
    assert summary.verdict == HELD, summary.named_failing()
    assert summary.twins == 2
    # A check that finds nothing to check in all of these worlds is useless.
    idle = {name for name, one in summary.verdicts().items() if one == UNKNOWN}
    assert not idle, f"nothing puts these to the test: {sorted(idle)}"
    assert summary.totals["reruns"], "nobody lost a job: the faults do not bite"


@pytest.mark.proves("M97", "M98")
@pytest.mark.timeout(BOX_SECONDS + 600)
def test_fresh_seeds_hold(show: Show):
    plan = WorldSelection(fresh_seed(), seconds=BOX_SECONDS, jobs=os.cpu_count() or 1)
    summary, _ = play_all(plan)
    first, last = summary.seeds
    show(
        f"simulation: seeds {first} to {last} in {BOX_SECONDS:.0f} s, "
        f"{summary.totals['attempts']:,} attempts, {summary.faults.total():,} faults, "
        f"{summary.verdict}"
    )
    assert summary.verdict == HELD, summary.named_failing()


@pytest.mark.timeout(300)
def test_same_seed_same_history_in_processes_with_other_hash_seeds():
    async def play_in(hash_seed: int) -> list[str]:
        seat = WorldProcess(hash_seed)
        try:
            # The first world of a process must not affect the second.
            return [(await seat.play(seed)).digest for seed in (3, 4, 3)]
        finally:
            await seat.end()

    async def play_in_both() -> list[list[str]]:
        return [await play_in(hash_seed) for hash_seed in HASH_SEEDS]

    first, second = asyncio.run(play_in_both())
    assert first == second
    assert first[0] == first[2]
    assert first[0] != first[1]
    assert all(first)
