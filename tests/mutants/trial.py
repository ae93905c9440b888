"""The trial of one mutant, in the parent process: plant, run, stop after its budget."""

import os
import subprocess
import sys
import time

import msgspec

from tests.checkout import ROOT
from tests.mutants.planting import Mutant, planted
from tests.mutants.strike import Caught

BUDGET_SECONDS = 600.0


class Verdict(msgspec.Struct):
    """The result of a trial."""

    name: str
    killed: bool
    by: str
    how: str
    seconds: float
    story: str = ""


def trial(mutant: Mutant) -> Verdict:
    """Run the checks of a mutant in a separate process."""
    began = time.monotonic()
    with planted(mutant) as folder:
        path = os.pathsep.join((str(folder), str(ROOT)))
        command = [sys.executable, "-m", "tests.mutants.strike"]
        try:
            ended = subprocess.run(
                [*command, mutant.name, str(folder)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                timeout=BUDGET_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            told = late.stderr or b""
            last = told.decode().splitlines()[-1:] if isinstance(told, bytes) else []
            how = f"nobody within {BUDGET_SECONDS:g} s; at the end: {last}"
            return Verdict(mutant.name, False, "", how, time.monotonic() - began)
    seconds = time.monotonic() - began
    if ended.returncode:
        raise RuntimeError(
            f"mutant {mutant.name} could not be tried (exit {ended.returncode}):\n"
            + ended.stderr[-3000:]
        )
    told = ended.stdout.splitlines()[-1]
    caught = msgspec.json.decode(told, type=Caught | None)
    if caught is None:
        return Verdict(mutant.name, False, "", "every killer passed", seconds)
    return Verdict(mutant.name, True, caught.by, caught.how, seconds, caught.story)
