"""Settings of the interpreter for a process that does nothing but run a worker."""

import gc
import sys
from collections.abc import Callable

# After this time a busy thread gives up the interpreter's lock, if another one waits for it.
SWITCH_SECONDS = 0.0001


def tune_interpreter() -> Callable[[bool], None]:
    """Adapt the garbage collector and the switching of threads to the work of a worker.

    The longest runs of the collector look at every live object. Those that exist now, above
    all the code, are hidden from it. It runs as often as in any program: fewer runs would
    be faster, but garbage in cycles may hold large buffers.

    The store's thread needs the interpreter's lock after each statement, so threads switch
    fast. Between tasks that compute in threads, many switches would cost more than they
    bring: call the returned function with True while there are such tasks.
    """
    gc.collect()
    gc.freeze()
    usual_seconds = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)

    def on_busy_threads(is_busy: bool) -> None:  # noqa: FBT001 - the only argument
        sys.setswitchinterval(usual_seconds if is_busy else SWITCH_SECONDS)

    return on_busy_threads
