"""The frames of a traceback that is stored as text."""

import re
from typing import NamedTuple

from durio.model.error_groups import NOT_OF_THE_USER, TRACEBACK_START
from durio.model.failure import HIDDEN

FRAMES_MAX = 200
# In a group of exceptions each line begins with bars.
HEAD = re.compile(r'[\s|]*File "([^"]*)", line (\d{1,9}), in (.+)')
MARKS = re.compile(r"[\s|]*[~^]+[\s~^]*")
CAUSE_MARKERS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
CAUSE_CHARS_MAX = 500
CODE = re.compile(r"[\s|]{4,}\S")


class Frame(NamedTuple):
    """One call of a traceback."""

    file: str
    line: int
    function: str
    code: str | None  # None: the source was not there
    own: bool  # of the user's code: not of Python, an installed package, or Durio


def frames_of(traceback: str) -> list[Frame]:
    """Return the frames of the last exception of a traceback, outermost first."""
    lines = traceback[max(0, traceback.rfind(TRACEBACK_START)) :].splitlines()
    found: list[Frame] = []
    for number, text in enumerate(lines):
        head = HEAD.fullmatch(text)
        if head is None:
            continue
        file, line, function = head.groups()
        own = file != HIDDEN and NOT_OF_THE_USER.search(file) is None
        after = lines[number + 1] if number + 1 < len(lines) else ""
        found.append(Frame(file, int(line), function.strip(), code_in(after), own))
    return found[-FRAMES_MAX:]


def code_in(line: str) -> str | None:
    """Return the source that follows the head of a frame; None if it is another line."""
    if HEAD.fullmatch(line) or MARKS.fullmatch(line) or not CODE.match(line):
        return None
    return line.strip(" |") or None


def cause_of(traceback: str) -> str | None:
    """Return the last line of the error that led to the last one; None without one."""
    found = [traceback.rfind(marker) for marker in CAUSE_MARKERS]
    at = max(found)
    if at < 0:
        return None
    lines = [line for line in traceback[:at].splitlines() if line.strip()]
    return lines[-1].strip(" |")[:CAUSE_CHARS_MAX] if lines else None
