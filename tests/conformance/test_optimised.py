"""Without asserts the suite would pass every store, so it refuses to judge any."""

import subprocess  # noqa: TID251 - the switch belongs to the whole process
import sys

from tests.checkout import ROOT

PROGRAM = """\
from durio.errors import UsageError
from tests.conformance import SUITE, check
from tests.conformance.conftest import subject_at

try:
    check(SUITE[0], subject_at(None))
except UsageError as error:
    print("refused:", error)
"""


def test_python_without_asserts_is_refused() -> None:
    ended = subprocess.run(
        [sys.executable, "-O", "-W", "ignore", "-c", PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "refused: the promises are told with assert" in ended.stdout, ended.stderr
