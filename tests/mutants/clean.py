"""One world, and what the engine without a planted bug shows in it.

`python -m tests.mutants.clean SEED SEEDS` prints the invariants that break there. A
violation that also occurs without the bug is a real finding, not a caught mutant.
"""

import logging
import os
import subprocess
import sys

import msgspec

from durio.testing.clock import STARTED_SECONDS
from tests.checkout import ROOT
from tests.mutants.planting import Seeds
from tests.simulation.nemesis import Fault
from tests.simulation.scenario import Played, play


def played(seed: int, seeds: Seeds) -> Played:
    """Return the world of this seed, with the knobs and faults of `seeds`."""
    faults = None
    if seeds.faults is not None:
        faults = [
            Fault(STARTED_SECONDS + at, kind, node, seconds, size)
            for at, kind, node, seconds, size in seeds.faults
        ]
    return play(seed, faults=faults, knobs=seeds.knobs)


def clean_invariants(seed: int, seeds: Seeds) -> set[str]:
    """Return the invariants that break in this world without the bug; from a new process."""
    told = msgspec.json.encode(seeds).decode()
    ended = subprocess.run(
        [sys.executable, "-m", "tests.mutants.clean", str(seed), told],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(msgspec.json.decode(ended.stdout.splitlines()[-1]))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asked = msgspec.json.decode(sys.argv[2], type=Seeds)
    broken = {one.invariant for one in played(int(sys.argv[1]), asked).violations}
    print(msgspec.json.encode(sorted(broken)).decode())
