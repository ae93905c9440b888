"""Settings of the interpreter for a process that does nothing but run a worker."""

import gc
import sys
from collections.abc import Callable

COLLECTOR_OBJECTS = 20_000  # new objects between two runs of the collector
# After this time a busy thread gives up the interpreter's lock, if another one waits for it.
SWITCH_SECONDS = 0.0001


def tune_interpreter() -> Callable[[bool], None]:
    """Adapt the garbage collector and the switching of threads to the work of a worker.

    Jobs leave few cycles behind, and the collector looks at every live object each time.
    The store's thread needs the interpreter's lock after each statement, so threads switch
    fast. Between tasks that compute in threads, many switches would cost more than they
    bring: call the returned function with True while there are such tasks.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTOR_OBJECTS, 20, 50)
    usual_seconds = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)

    def on_busy_threads(is_busy: bool) -> None:  # noqa: FBT001 - the only argument
        sys.setswitchinterval(usual_seconds if is_busy else SWITCH_SECONDS)

    return on_busy_threads
