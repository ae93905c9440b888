"""Runs in the mutant's own process: tries the checks that must catch it, in order.

`python -m tests.mutants.strike NAME FOLDER` prints one JSON object at the end: which
check caught it and how, or none. Only a broken promise counts. A mutant that cannot be
loaded, or whose statements SQLite refuses, is a mistake in the mutant: then this process
fails.
"""

import logging
import re
import subprocess
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

import durio
from durio.model.errors import InvariantBroken
from durio.testing.clock import Stuck
from tests.mutants.catalogue import find
from tests.mutants.planting import Killer, Promises, Seeds, Tests

HEALED_SECONDS = 900.0


class Caught(msgspec.Struct):
    """Which check caught it, and what was seen."""

    by: str
    how: str
    story: str = ""  # the events before, short enough for a person to read


def try_seeds(seeds: Seeds) -> Caught | None:
    from tests.mutants.clean import clean_invariants, played  # noqa: PLC0415 - only who needs it
    from tests.simulation import scenario  # noqa: PLC0415
    from tests.simulation.story import describe  # noqa: PLC0415

    # Long enough for every promise about time. A world that never ends is caught then,
    # and is not played for hours.
    scenario.HEALED_SECONDS_MAX = min(scenario.HEALED_SECONDS_MAX, HEALED_SECONDS)
    for seed in range(1, seeds.worlds + 1):
        name = seeds.name(seed)
        print(name, file=sys.stderr, flush=True)
        try:
            world = played(seed, seeds)
        except (Stuck, InvariantBroken) as error:
            how = f"{type(error).__name__}: {error}"[:200]
            return Caught(name, how, traceback.format_exc())
        violations = world.violations
        known = clean_invariants(seed, seeds) if violations else set[str]()
        for violation in violations:
            if violation.invariant not in known:
                return Caught(name, str(violation), describe(world, violation))
    return None


def try_promises(promises: Promises) -> Caught | None:
    from tests.conformance import SUITE, check  # noqa: PLC0415
    from tests.conformance.conftest import subject_at  # noqa: PLC0415

    chosen = [p for p in SUITE if str(p).startswith(promises.begins)]
    if not chosen:
        raise LookupError(f"no promise begins with {promises.begins!r}")
    for promise in chosen:
        print(f"promise {promise}", file=sys.stderr, flush=True)
        with TemporaryDirectory() as folder:
            is_file = promises.subject == "file"
            subject = subject_at(Path(folder) / "jobs.db" if is_file else None)
            if promise.lacks(subject):
                raise LookupError(f"{promise} cannot be judged in {promises.subject}")
            try:
                check(promise, subject)
            except (AssertionError, TimeoutError, InvariantBroken) as error:
                return Caught(
                    f"promise {promise}", seen_at(error), traceback.format_exc()
                )
    return None


def try_tests(tests: Tests) -> Caught | None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, tests.path], capture_output=True, text=True, check=False
    )
    if ended.returncode == 0:
        return None
    failed = re.search(r"^FAILED (.+?)(?: - (.*))?$", ended.stdout, re.MULTILINE)
    if failed is None:
        raise LookupError(f"{tests.path} could not be run:\n{ended.stdout[-2000:]}")
    return Caught(failed[1], (failed[2] or "failed")[:200], ended.stdout)


def seen_at(error: BaseException) -> str:
    """Return the line of the promise's code that failed."""
    lines = [
        f"{frame.name}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "conformance" in frame.filename and frame.line
    ]
    return (lines or [repr(error)])[-1][:200]


def strike(killer: Killer) -> Caught | None:
    if isinstance(killer, Seeds):
        return try_seeds(killer)
    if isinstance(killer, Tests):
        return try_tests(killer)
    return try_promises(killer)


def main(name: str, folder: str) -> None:
    """Stop at the first check that catches it."""
    if not Path(durio.__file__).is_relative_to(folder):
        raise RuntimeError(f"this process runs {durio.__file__}, not the mutant")
    logging.disable(logging.CRITICAL)
    caught = None
    for killer in find(name).killers:
        caught = strike(killer)
        if caught is not None:
            break
    print(msgspec.json.encode(caught).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
