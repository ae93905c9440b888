"""Settings of the interpreter for a process that does nothing but run a worker."""

import gc
import sys

COLLECTOR_OBJECTS = 20_000  # new objects between two runs of the collector
SWITCH_SECONDS = 0.001  # a fifth of the usual


def tune_interpreter() -> None:
    """Adapt the garbage collector and the switching of threads to the work of a worker.

    Jobs leave few cycles behind, and the collector looks at every live object each time.
    The store's thread needs the interpreter's lock after each statement, and each time the
    event loop gives it up only after this interval.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTOR_OBJECTS, 20, 50)
    sys.setswitchinterval(SWITCH_SECONDS)
