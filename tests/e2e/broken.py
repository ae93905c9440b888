"""An App that cannot be used, in the way that the environment names."""

import os
import signal

from durio import App

HOW = os.environ["E2E_BROKEN"]

if HOW == "crashes":
    os.kill(os.getpid(), signal.SIGKILL)
if HOW == "cannot be imported":
    raise ValueError("a mistake of the user's own")
if HOW == "cannot be imported any more" and os.path.exists(os.environ["E2E_FLAG"]):  # noqa: PTH110
    raise ValueError("a mistake of the user's own")

app = App(
    name="e2e", settings={"worker": {"processes": 2}} if HOW == "wants two" else None
)
