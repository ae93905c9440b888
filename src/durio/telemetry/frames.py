"""Tell the user's frames of a stack or traceback from those of Durio."""

import os
import sys

from durio.model.failure import fold_stack

OUR_FRAMES = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120 - pathlib costs an import
LIBRARY = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 - pathlib costs an import
# Frames of a live stack around those of a task.
AROUND_TASKS = (
    OUR_FRAMES,
    "<frozen runpy>",
    *(LIBRARY + name for name in ("asyncio", "concurrent", "threading.py")),
)


def user_stack(stack: str) -> str:
    """Return a live stack with the frames of the user's code first, ours as one line."""
    around = list(AROUND_TASKS)
    click = getattr(sys.modules.get("click"), "__file__", None)
    if click is not None:
        around.append(os.path.dirname(click))  # noqa: PTH120
    program = sys.argv[0] if sys.argv else ""
    if os.path.basename(program) == "durio":  # noqa: PTH119 - of a user otherwise
        around.append(program)
    return fold_stack(stack, tuple(around))
