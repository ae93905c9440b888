"""Makes a failing world small: fewer faults and jobs, and the same broken invariant.

It removes recorded decisions, not random numbers. The small world is kept as a file with
all its knobs, jobs and faults, so that it can still be played when the code that draws
worlds has changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar, final

import msgspec

from tests.simulation.account import Account, examine
from tests.simulation.nemesis import Fault
from tests.simulation.scenario import Played, Scenario, play
from tests.simulation.workload import Wish
from tests.simulation.world import World

T = TypeVar("T")

FOLDER = Path(__file__).parent / "regress"


class Kept(msgspec.Struct, kw_only=True):
    """A world that once broke an invariant, small enough to understand."""

    seed: int
    invariant: str
    showed: list[str]  # what was broken, in words
    commit: str  # where it was seen
    why: str = ""  # the cause, in one sentence
    knobs: dict[str, Any]
    faults: list[Fault]
    wishes: list[Wish]

    def play(self) -> Account:
        return examine(
            self.seed, faults=self.faults, wishes=self.wishes, knobs=self.knobs
        )

    def replay(self) -> Played:
        """Play the world again; return its whole history."""
        return play(self.seed, faults=self.faults, wishes=self.wishes, knobs=self.knobs)

    @property
    def name(self) -> str:
        """The name of the file, without the suffix."""
        return f"seed_{self.seed}_{self.invariant}.json"

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.name
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")
        return path


def read(path: Path) -> Kept:
    return msgspec.json.decode(path.read_bytes(), type=Kept)


def drawn(seed: int, invariant: str, commit: str) -> Kept:
    """Return the whole world of a seed, before anything is removed."""
    scenario = Scenario(World(seed), None, None, {})
    return Kept(
        seed=seed,
        invariant=invariant,
        showed=[],
        commit=commit,
        knobs=asdict(scenario.knobs),
        faults=scenario.faults,
        wishes=scenario.wishes,
    )


@final
class Shrinker:
    """Removes what a failure does not need, while there is time."""

    def __init__(
        self,
        kept: Kept,
        *,
        is_over: Callable[[], bool],
        show: Callable[[str], None],
    ) -> None:
        self.kept = kept
        self.is_over = is_over
        self.show = show
        self.plays = 0

    def run(self) -> Kept | None:
        """Remove faults first, because a reader must understand those.

        None if nothing breaks.
        """
        if not self.fails(self.kept.faults, self.kept.wishes):
            return None
        self.shorten()
        size = 0
        while size != (size := len(self.kept.faults) + len(self.kept.wishes)):
            reduce(self.kept.faults, self.fails_with_faults, self.is_over)
            reduce(self.kept.wishes, self.fails_with_wishes, self.is_over)
            if self.is_over():
                break
        return self.kept

    def shorten(self) -> None:
        """Drop what comes after the failure, because it cannot change what is before."""
        faults, wishes = self.kept.faults, self.kept.wishes
        times = sorted({one.at for one in [*faults, *wishes]})
        low, high = 0, len(times) - 1
        while low < high and not self.is_over():
            middle = (low + high) // 2
            until = max(times[middle], wishes[0].at)
            if self.fails(
                [fault for fault in faults if fault.at <= until],
                [wish for wish in wishes if wish.at <= until],
            ):
                high = middle
            else:
                low = middle + 1

    def fails_with_faults(self, faults: Sequence[Fault]) -> bool:
        """Whether these faults are enough."""
        return self.fails(list(faults), self.kept.wishes)

    def fails_with_wishes(self, wishes: Sequence[Wish]) -> bool:
        """Whether these jobs are enough; a world needs at least one."""
        return bool(wishes) and self.fails(self.kept.faults, list(wishes))

    def fails(self, faults: list[Fault], wishes: list[Wish]) -> bool:
        """Whether the same invariant breaks; if so, continue with this world."""
        self.plays += 1
        account = examine(
            self.kept.seed, faults=faults, wishes=wishes, knobs=self.kept.knobs
        )
        showed = [
            str(one)
            for one in account.violations
            if one.invariant == self.kept.invariant
        ]
        if showed:
            self.kept.faults, self.kept.wishes = faults, wishes
            self.kept.showed = showed
        self.show(
            f"{len(self.kept.faults)} faults, {len(self.kept.wishes)} jobs left "
            f"after {self.plays} worlds"
        )
        return bool(showed)


def reduce(
    items: Sequence[T],
    fails: Callable[[Sequence[T]], bool],
    is_over: Callable[[], bool],
) -> list[T]:
    """Return the fewest items that still fail, by delta debugging: no single one can go."""
    left = list(items)
    if is_over():
        return left
    if not left or fails([]):
        return []
    parts = 2
    while len(left) > 1 and not is_over():
        size = -(-len(left) // parts)
        for start in range(0, len(left), size):
            fewer = left[:start] + left[start + size :]
            if is_over():
                return left
            if fewer and fails(fewer):
                left, parts = fewer, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(left))
    return left
